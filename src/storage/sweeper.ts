/** Deletes what has expired, in small batches, off the request path. */
import type { Clock, Timer } from '../runtime/clock.js';
import { describe } from '../runtime/failure.js';
import type { Log } from '../runtime/log.js';
import type { Random } from '../runtime/random.js';
import type { Store } from './store.js';

/** Rows of a kind in one batch: a few milliseconds of the store's time. */
const SWEEP_BATCH_MAX = 1_000;
/** The pause between sweeps; expired rows are never seen, they only take space. */
const SWEEP_PERIOD_MS = 30_000;
/** The pause after a full batch: the store's other work goes first. */
const SWEEP_AGAIN_MS = 200;

/**
 * Sweeps until it is stopped. A sweep that fails is logged and tried again a period later: what has
 * expired is never seen, so nobody waits for it. `stop` is idempotent; a sweep that runs then ends
 * by itself.
 */
export function sweepRegularly(
  store: Store,
  environment: { readonly clock: Clock; readonly random: Random; readonly log: Log },
): { stop(): void } {
  const { clock, random, log } = environment;
  let stopped = false;
  let timer: Timer | undefined;
  const next = (pauseMs: number): void => {
    if (!stopped) timer = clock.schedule(() => void sweep(), pauseMs);
  };
  const sweep = async (): Promise<void> => {
    try {
      const deleted = await store.sweep(SWEEP_BATCH_MAX);
      next(deleted >= SWEEP_BATCH_MAX ? SWEEP_AGAIN_MS : SWEEP_PERIOD_MS);
    } catch (error) {
      log.warn({ error: describe(error) }, 'A sweep of expired rows failed; it is tried again.');
      next(SWEEP_PERIOD_MS);
    }
  };
  // Spread over the period, so that replicas that start together do not sweep together.
  next(random.fraction() * SWEEP_PERIOD_MS);
  return {
    stop: () => {
      stopped = true;
      timer?.cancel();
    },
  };
}
