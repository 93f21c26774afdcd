/** What the audit chainer says of the chain, as families of metrics. */
import { AUDIT_CHAINER_ACTOR } from '../actors/audit-chainer/client.js';
import type { AuditFacts } from '../actors/audit-chainer/messages.js';
import type { ActorSnapshot } from '../runtime/actor-metrics.js';
import type { MetricFamily, Sample } from './metrics-families.js';

/** The chain's facts, while its actor's thread answers. */
export function auditFacts(
  actors: readonly { readonly name: string; readonly facts: unknown }[],
): AuditFacts | undefined {
  const chainer = actors.find(({ name }) => name === AUDIT_CHAINER_ACTOR);
  const facts = chainer?.facts as AuditFacts | undefined;
  return facts !== undefined && 'lagRecords' in facts ? facts : undefined;
}

/** None while the audit chainer's thread does not answer. */
export function evidenceFamilies(actors: readonly ActorSnapshot[]): MetricFamily[] {
  const facts = auditFacts(actors);
  if (facts === undefined) return [];
  const one = (value: number): Sample[] => [{ labels: {}, value }];
  return [
    {
      name: 'halo_chain_lag_records',
      help: 'Events that are durable and wait for their place in the evidence chain.',
      type: 'gauge',
      samples: one(facts.lagRecords),
    },
    {
      name: 'halo_chain_head_seq',
      help: 'Number of the newest record of the evidence chain; -1 before the first.',
      type: 'gauge',
      samples: one(facts.headSeq),
    },
    {
      name: 'halo_chain_drained_total',
      help: 'Records that this replica has chained.',
      type: 'counter',
      samples: one(facts.drained),
    },
    {
      name: 'halo_chain_drains_total',
      help: 'Transactions in which this replica has chained records.',
      type: 'counter',
      samples: one(facts.drains),
    },
    {
      name: 'halo_chain_errors_total',
      help: 'Times that this replica could not chain what waits.',
      type: 'counter',
      samples: one(facts.errors),
    },
    {
      name: 'halo_chain_stopped',
      help: '1 while this replica chains nothing, whatever the reason; the status says which.',
      type: 'gauge',
      samples: one(facts.stopped === '' ? 0 : 1),
    },
  ];
}
