/** Acknowledgements in memory, for backends whose gateways are gone when they stop. */
import type { GatewayAck, GatewayAckRow } from './store.js';

/** As `Store` says, but with the store's time given. */
export class AckTable {
  /** By replica and gateway. Rows that expired are dropped at the next change. */
  private rows: readonly GatewayAckRow[] = [];

  /** Replaces all of that replica's rows. */
  record(
    replicaStart: string,
    acks: readonly GatewayAck[],
    expiresAtMs: number,
    nowMs: number,
  ): void {
    const others = this.live(nowMs).filter((row) => row.replicaStart !== replicaStart);
    const own = acks.map((ack) => ({ ...ack, replicaStart, expiresAtMs }));
    this.rows = [...others, ...own].sort(byName);
  }

  /** Ordered by replica and gateway. */
  live(nowMs: number): GatewayAckRow[] {
    return this.rows.filter((row) => row.expiresAtMs > nowMs);
  }
}

function byName(one: GatewayAckRow, other: GatewayAckRow): number {
  if (one.replicaStart !== other.replicaStart)
    return one.replicaStart < other.replicaStart ? -1 : 1;
  return one.gateway < other.gateway ? -1 : 1;
}
