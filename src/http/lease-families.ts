/** Who leads, as this process knows it: for `/v1/status` and as families of metrics. */
import { CONTROLLER_LEASE } from '../actors/lease-names.js';
import type { LeaseView } from '../runtime/elector.js';
import type { MetricFamily } from './metrics-families.js';

/** One lease in `/v1/status`. */
export interface LeaseStatus {
  readonly lease: string;
  /** Whether this replica holds it. */
  readonly isLeader: boolean;
  /** The holder's id, which begins with its replica's; '' while nobody is known. */
  readonly holder: string;
  readonly token: number;
  /** What was left of it when this replica last heard, less what has passed since; ms. */
  readonly remainingMs: number;
}

/** `leader` is the main lease; `leases` are all. `nowMs` is on the monotonic clock. */
export function leaderStatus(
  views: readonly LeaseView[],
  nowMs: number,
): { leader: LeaseStatus | null; leases: readonly LeaseStatus[] } {
  const leases = views.map(({ lease, isLeader, holder, token, answeredMs, remainingMs }) => ({
    lease,
    isLeader,
    holder,
    token,
    remainingMs: Math.max(0, Math.round(remainingMs - (nowMs - answeredMs))),
  }));
  return { leader: leases.find(({ lease }) => lease === CONTROLLER_LEASE) ?? null, leases };
}

/** `halo_leader` and `halo_leader_changes_total`, a sample for each lease. */
export function leaseFamilies(views: readonly LeaseView[]): MetricFamily[] {
  return [
    {
      name: 'halo_leader',
      help: 'Whether this replica holds the lease: 1, or 0.',
      type: 'gauge',
      samples: views.map(({ lease, isLeader }) => ({
        labels: { lease },
        value: isLeader ? 1 : 0,
      })),
    },
    {
      name: 'halo_leader_changes_total',
      help: 'New terms of the lease that this replica has seen, on whatever replica.',
      type: 'counter',
      samples: views.map(({ lease, changes }) => ({ labels: { lease }, value: changes })),
    },
  ];
}
