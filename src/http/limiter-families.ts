/** What the limiter of failed attempts counted, as families of metrics. */
import { LIMITER_ACTOR } from '../actors/limiter/client.js';
import type { LimiterFacts } from '../actors/limiter/messages.js';
import type { ActorSnapshot } from '../runtime/actor-metrics.js';
import type { MetricFamily, Sample } from './metrics-families.js';

/** None while the limiter's thread does not answer. */
export function limiterFamilies(actors: readonly ActorSnapshot[]): MetricFamily[] {
  const limiter = actors.find(({ name }) => name === LIMITER_ACTOR);
  if (limiter === undefined) return [];
  const facts = limiter.facts as unknown as LimiterFacts;
  const one = (value: number): Sample[] => [{ labels: {}, value }];
  return [
    {
      name: 'halo_limiter_failures_total',
      help: 'Attempts to authenticate that failed, refused with 429 or not.',
      type: 'counter',
      samples: Object.entries(facts.failures).map(([failureClass, value]) => ({
        labels: { class: failureClass },
        value,
      })),
    },
    {
      name: 'halo_limiter_blocked_addresses',
      help: 'Addresses whose failures are refused with 429 now, once for each class.',
      type: 'gauge',
      samples: one(facts.blocked),
    },
    {
      name: 'halo_limiter_tracked_addresses',
      help: 'Addresses that failed lately, the blocked ones among them.',
      type: 'gauge',
      samples: one(facts.tracked),
    },
    {
      name: 'halo_limiter_evicted_total',
      help: 'Addresses forgotten early, since no more can be remembered.',
      type: 'counter',
      samples: one(facts.evicted),
    },
    {
      name: 'halo_limiter_store_errors_total',
      help: 'Counts that the store did not take, or not in time.',
      type: 'counter',
      samples: one(facts.storeErrors),
    },
    {
      name: 'halo_limiter_writes_dropped_total',
      help: 'Addresses that other replicas were not told of: above the cap, or without the store.',
      type: 'counter',
      samples: one(facts.writesDropped),
    },
  ];
}
