/** Who acted while somebody else led: what a sink received against the lease's row. Pure. */
import type { Delivery } from './receiver.js';
import type { Look } from './watcher.js';

/** A replica was continued at that moment; one delivery that was under way may still arrive. */
export interface Continued {
  readonly replica: string;
  readonly atMs: number;
}

/** Names the replica of a holder; undefined: nobody knows it. */
export type ReplicaOf = (holder: string) => string | undefined;

/** From the leader's check to the sink's first sight of it: one machine, busy with the chaos. */
const ON_ITS_WAY_MS = 500;

/** Deliveries by a replica that had lost the lease to another before it began, a line each. */
export function actedDeposed(
  deliveries: readonly Delivery[],
  looks: readonly Look[],
  lease: string,
  replicaOf: ReplicaOf,
  continued: readonly Continued[],
): string[] {
  const spent = new Set<Continued>();
  return deliveries.flatMap(({ replica, atMs, firstSeq, lastSeq }) => {
    const other = holderBefore(looks, lease, atMs, replica, replicaOf);
    if (other === undefined) return [];
    const woken = continued.find(
      (one) => one.replica === replica && atMs >= one.atMs && atMs < one.atMs + ON_ITS_WAY_MS,
    );
    if (woken !== undefined && !spent.has(woken)) {
      spent.add(woken);
      return [];
    }
    return [`${replica} delivered ${firstSeq} to ${lastSeq} while ${other} led`];
  });
}

/**
 * The other replica that held the lease in every look shortly before and in the one after: who has
 * just taken it may act before anybody has looked. undefined: there is none.
 */
function holderBefore(
  looks: readonly Look[],
  lease: string,
  atMs: number,
  replica: string,
  replicaOf: ReplicaOf,
): string | undefined {
  const after = looks.find(({ askedMs }) => askedMs >= atMs);
  if (after === undefined) return undefined;
  let other: string | undefined;
  for (const look of looks) {
    const isBefore = look.askedMs >= atMs - ON_ITS_WAY_MS && look.seenMs <= atMs;
    if (!isBefore && look !== after) continue;
    const held = look.leases.get(lease);
    if (held === undefined || held.remainingMs <= 0) return undefined;
    other = replicaOf(held.holder);
    if (other === undefined || other === replica) return undefined;
  }
  return other;
}
