/** What the decisions actor says of the policy: metrics, and whether a replica may serve. */
import { DECISIONS_ACTOR } from '../actors/decisions/client.js';
import type { PolicyFacts } from '../actors/decisions/messages.js';
import type { ActorSnapshot } from '../runtime/actor-metrics.js';
import type { MetricFamily, Sample } from './metrics-families.js';

type Actors = readonly { readonly name: string; readonly facts: unknown }[];

/** The policy's facts, while its actor's thread answers. */
export function policyFacts(actors: Actors): PolicyFacts | undefined {
  const decisions = actors.find(({ name }) => name === DECISIONS_ACTOR);
  const facts = decisions?.facts as PolicyFacts | undefined;
  return facts !== undefined && 'configured' in facts ? facts : undefined;
}

/** A replica that was given a directory and has no good policy yet must not decide. */
export function policyProblems(actors: Actors): string[] {
  const facts = policyFacts(actors);
  if (facts === undefined || !facts.configured || facts.digest !== null) return [];
  const [issue] = facts.issues;
  if (issue === undefined) return ['no policy was read yet'];
  return [`no acceptable policy: ${issue.file}:${issue.line}:${issue.column} ${issue.code}`];
}

/** None while the decisions actor's thread does not answer. */
export function policyFamilies(actors: readonly ActorSnapshot[]): MetricFamily[] {
  const facts = policyFacts(actors);
  if (facts === undefined) return [];
  const one = (value: number): Sample[] => [{ labels: {}, value }];
  return [
    {
      name: 'halo_policy_in_force',
      help: '1 under the digest of the policy that decides; none without a policy.',
      type: 'gauge',
      samples: facts.digest === null ? [] : [{ labels: { digest: facts.digest }, value: 1 }],
    },
    {
      name: 'halo_policy_accepted_total',
      help: 'Contents of the policy directory that were accepted.',
      type: 'counter',
      samples: one(facts.accepted),
    },
    {
      name: 'halo_policy_refused_total',
      help: 'Contents of the policy directory that were refused; the last good policy stays.',
      type: 'counter',
      samples: one(facts.refused),
    },
    {
      name: 'halo_policy_stale',
      help: '1 while the newest content of the policy directory is not what decides.',
      type: 'gauge',
      samples: one(facts.issues.some(({ severity }) => severity === 'error') ? 1 : 0),
    },
  ];
}
