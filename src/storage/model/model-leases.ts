/** The leases of a `ModelDatabase`, for one simulated process's elector. */
import type { ClaimedLease, Fence, LeaseClaim, LeaseStore } from '../../runtime/lease.js';
import { STEP_DOWN_PREFIX, stepDownToken } from '../lease-table.js';
import type { ModelDatabase } from './model-database.js';
import type { ModelHooks } from './model-store.js';

/** Hooks as a `ModelStore` has them: what delays, refuses or loses a claim. */
export class ModelLeases implements LeaseStore {
  readonly isHinted = false;

  constructor(
    private readonly database: ModelDatabase,
    private readonly hooks: ModelHooks = {},
  ) {}

  async claim(claims: readonly LeaseClaim[], ttlMs: number): Promise<ClaimedLease[]> {
    await this.hooks.before?.('leases');
    const nowMs = this.database.nowMs();
    const answers = claims.map((claim) => ({
      ...this.database.leases.claim(claim, ttlMs, nowMs),
      stepDownToken: stepDownToken(
        this.database.tables.value(STEP_DOWN_PREFIX + claim.lease, nowMs)?.value,
      ),
    }));
    await this.hooks.after?.('leases');
    return answers;
  }

  async release(fences: readonly Fence[]): Promise<void> {
    await this.hooks.before?.('leases');
    for (const fence of fences) this.database.leases.release(fence, this.database.nowMs());
    await this.hooks.after?.('leases');
  }

  onHint(): void {
    // Nobody tells: a simulated candidate asks, which is the slower of the two ways.
  }

  async close(): Promise<void> {
    // The database stays, for the others.
  }
}
