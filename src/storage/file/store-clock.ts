/**
 * The store's clock: the machine's, but not going back when that is set a little back, over
 * restarts either, since what has expired must not come to life again.
 */
import type { Clock } from '../../runtime/clock.js';
import type { HeadsWriter } from './heads.js';

/**
 * By how much the machine's clock may go back without the store's following it: more than what time
 * synchronisation steps, less than what a clock that was plain wrong is put right by. Standing
 * still for years would be worse than going back.
 */
const STEP_BACK_MAX_MS = 10 * 60_000;

/** The store's time, given the newest that it has said and what the machine says. */
export function storeTime(newestMs: number, wallMs: number): number {
  return wallMs < newestMs && newestMs - wallMs <= STEP_BACK_MAX_MS ? newestMs : wallMs;
}

/** The storage thread's side; actor threads read the newest time from shared memory. */
export class StoreClock {
  private newestMs = 0;

  constructor(
    private readonly clock: Clock,
    private readonly heads: HeadsWriter,
  ) {}

  /** ms since the Unix epoch, UTC. */
  nowMs(): number {
    this.set(storeTime(this.newestMs, this.clock.wallMs()));
    return this.newestMs;
  }

  /** A time that the store said before this process. */
  saidBefore(timeMs: number): void {
    this.set(timeMs);
  }

  private set(timeMs: number): void {
    if (timeMs === this.newestMs) return;
    this.newestMs = timeMs;
    this.heads.setClock(timeMs);
  }
}
