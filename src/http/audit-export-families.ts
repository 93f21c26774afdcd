/** What the audit export says of its sinks, as families of metrics. */
import { AUDIT_EXPORT_ACTOR } from '../actors/audit-export/client.js';
import type { AuditExportFacts, SinkFacts } from '../actors/audit-export/messages.js';
import type { ActorSnapshot } from '../runtime/actor-metrics.js';
import type { MetricFamily, Sample } from './metrics-families.js';

/** None while the actor's thread does not answer. */
export function auditExportFamilies(actors: readonly ActorSnapshot[]): MetricFamily[] {
  const actor = actors.find(({ name }) => name === AUDIT_EXPORT_ACTOR);
  const { sinks } = (actor?.facts ?? {}) as Partial<AuditExportFacts>;
  if (sinks === undefined) return [];
  const each = (value: (sink: SinkFacts) => number): Sample[] =>
    sinks.map((sink) => ({ labels: { sink: sink.name }, value: value(sink) }));
  return [
    {
      name: 'halo_audit_sink_lag_records',
      help: 'Records of the evidence chain that the sink lacks, whichever replica forwards to it.',
      type: 'gauge',
      samples: each(({ lagRecords }) => lagRecords),
    },
    {
      name: 'halo_audit_sink_delivered_total',
      help: 'Records that this replica delivered to the sink, repeats included.',
      type: 'counter',
      samples: each(({ delivered }) => delivered),
    },
    {
      name: 'halo_audit_sink_errors_total',
      help: 'Attempts of this replica to deliver to the sink that failed.',
      type: 'counter',
      samples: each(({ errors }) => errors),
    },
  ];
}
