/** The leases of a process: who holds one does that work for all replicas. */

/** The replica's main lease (ADR-0021). */
export const CONTROLLER_LEASE = 'controller';

/** One for each sink, so that different replicas may forward to different sinks. */
export function auditExportLease(sink: string): string {
  return `audit-export-${sink}`;
}
