/**
 * A one-shot command drains its own work: without it, a deployment that only runs commands would
 * have a chain that never advances (ADR-0009).
 */
import { type Clock, delay } from '../../runtime/clock.js';
import { DRAIN_BATCH_MAX, type EvidenceStore } from '../../storage/evidence-store.js';

/** How long it is waited for a server that is at the outbox; its tick is shorter. */
const SETTLE_MAX_MS = 10_000;
const AGAIN_MS = 50;

/**
 * Drains until each of the refs is chained: true; false when that takes longer than
 * `SETTLE_MAX_MS`, which is no loss: what waits is durable. Rejects as a drain does.
 */
export async function settle(
  store: EvidenceStore,
  refs: readonly string[],
  clock: Clock,
): Promise<boolean> {
  const untilMs = clock.monotonicMs() + SETTLE_MAX_MS;
  let waiting = refs;
  for (;;) {
    // A busy lock is a server's or another command's: what is waiting here may be chained by it.
    const result = await store.drain(DRAIN_BATCH_MAX);
    waiting = await stillWaiting(store, waiting);
    if (waiting.length === 0) return true;
    if (clock.monotonicMs() > untilMs) return false;
    if (result.kind === 'busy' || result.events === 0) await delay(clock, AGAIN_MS);
  }
}

async function stillWaiting(store: EvidenceStore, refs: readonly string[]): Promise<string[]> {
  const waiting: string[] = [];
  for (const ref of refs) {
    const found = await store.find(ref);
    if (found?.pending !== false) waiting.push(ref);
  }
  return waiting;
}
