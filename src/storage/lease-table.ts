/**
 * Leases in memory, for backends whose holders are gone when they stop: the rows of
 * `postgres/leases.ts` and the same rules.
 */
import type { ClaimedLease, Fence, LeaseClaim, LeaseRow } from '../runtime/lease.js';

/** Where a step-down is asked for: a KV row with the token of the term that should end. */
export const STEP_DOWN_PREFIX = 'lease-step-down/';

interface HeldLease extends Fence {
  readonly expiresAtMs: number;
}

/** As `LeaseStore` says, but with the store's time given. */
export class LeaseTable {
  private readonly rows = new Map<string, HeldLease>();

  /** The answer to one claim; `stepDownToken` is for the caller to find. */
  claim({ lease, holder }: LeaseClaim, ttlMs: number, nowMs: number): ClaimedLease {
    const row = this.rows.get(lease);
    const isLive = row !== undefined && row.expiresAtMs > nowMs;
    if (isLive && row.holder !== holder) {
      const { token, expiresAtMs } = row;
      const remainingMs = expiresAtMs - nowMs;
      return {
        lease,
        granted: false,
        holder: row.holder,
        token,
        remainingMs,
        stepDownToken: null,
      };
    }
    // The time, so that a token does not come twice although the table is lost with its process.
    const token = isLive ? row.token : Math.max((row?.token ?? 0) + 1, Math.floor(nowMs));
    this.rows.set(lease, { lease, holder, token, expiresAtMs: nowMs + ttlMs });
    return { lease, granted: true, holder, token, remainingMs: ttlMs, stepDownToken: null };
  }

  /** Whether it was held so. */
  release(fence: Fence, nowMs: number): boolean {
    const row = this.rows.get(fence.lease);
    if (row === undefined || row.holder !== fence.holder || row.token !== fence.token) return false;
    this.rows.set(fence.lease, { ...row, expiresAtMs: nowMs });
    return true;
  }

  /** Whether a write under the fence may be done. */
  holds({ lease, holder, token }: Fence, nowMs: number): boolean {
    const row = this.rows.get(lease);
    if (row === undefined || row.expiresAtMs <= nowMs) return false;
    return row.holder === holder && row.token === token;
  }

  /** In the order of their names, expired ones included. */
  list(nowMs: number): LeaseRow[] {
    return [...this.rows.values()]
      .map(({ lease, holder, token, expiresAtMs }) => {
        return { lease, holder, token, remainingMs: expiresAtMs - nowMs };
      })
      .sort((a, b) => (a.lease < b.lease ? -1 : 1));
  }

  /** A failover that lost the row. */
  forget(lease: string): void {
    this.rows.delete(lease);
  }
}

/** The token in the value of a step-down row; null when there is none. */
export function stepDownToken(value: string | undefined): number | null {
  return value === undefined ? null : Number(value);
}
