/** What one replica has seen of failures itself: pure, bounded, on the monotonic clock. */
import { type Aging, AgingMap } from './aging-map.js';

/** Failures that an address has in a window, on all replicas together (ADR-0021). */
export const FAILURE_BURST = 10;
/** The window that failures are counted in; it begins with the first of them. */
export const FAILURE_WINDOW_MS = 60_000;
/** How long an address is refused once its failures are used up. Not less than the window. */
export const BLOCK_MS = 60_000;
/**
 * Keys that are remembered at once: ten times the 10,000 addresses of a large attack, and some
 * 30 MB at the most.
 */
export const TRACKED_MAX = 100_000;

interface Window extends Aging {
  failures: number;
}

/** The budget that one replica grants by itself. */
export class LocalBudget {
  private readonly windows = new AgingMap<Window>();
  private readonly blocks = new AgingMap<Aging>();
  /** Keys forgotten before their time because there were too many. */
  evicted = 0;

  constructor(private readonly trackedMax = TRACKED_MAX) {}

  get blocked(): number {
    return this.blocks.size;
  }

  get tracked(): number {
    return this.windows.size + this.blocks.size;
  }

  /** How long the key is still blocked; 0 when it is not. */
  blockedForMs(key: string, nowMs: number): number {
    return Math.max(0, (this.blocks.get(key)?.endsAtMs ?? nowMs) - nowMs);
  }

  /** Counts a failure of a key that is not blocked; the last of the burst blocks it. */
  fail(key: string, nowMs: number): void {
    this.forgetEnded(nowMs);
    const window = this.windows.get(key);
    const failures = (window?.failures ?? 0) + 1;
    if (failures >= FAILURE_BURST) {
      this.block(key, nowMs);
    } else if (window !== undefined) {
      window.failures = failures;
    } else {
      this.makeRoom();
      this.windows.add({ key, failures, endsAtMs: nowMs + FAILURE_WINDOW_MS });
    }
  }

  /** Blocks the key from now on; a block that it has is not made longer. */
  block(key: string, nowMs: number): void {
    this.forgetEnded(nowMs);
    if (this.blocks.get(key) !== undefined) return;
    this.windows.remove(key);
    this.makeRoom();
    this.blocks.add({ key, endsAtMs: nowMs + BLOCK_MS });
  }

  /** Drops windows and blocks that are over. */
  forgetEnded(nowMs: number): void {
    this.windows.removeEnded(nowMs);
    this.blocks.removeEnded(nowMs);
  }

  /** The oldest that is not blocked goes first: whoever guesses most is forgotten last. */
  private makeRoom(): void {
    if (this.tracked < this.trackedMax) return;
    if (this.windows.removeOldest() || this.blocks.removeOldest()) this.evicted += 1;
  }
}
