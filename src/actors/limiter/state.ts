/** What one replica has seen of failures itself: pure, bounded, on the monotonic clock. */

/** Failures that an address has in a window, on all replicas together (ADR-0021). */
export const FAILURE_BURST = 10;
/** The window that failures are counted in; it begins with the first of them. */
export const FAILURE_WINDOW_MS = 60_000;
/** How long an address is refused once its failures are used up. Not less than the window. */
export const BLOCK_MS = 60_000;
/**
 * Keys that are remembered at once, each some 150 bytes: ten times the 10,000 addresses of a large
 * attack, and 15 MB at the most.
 */
export const TRACKED_MAX = 100_000;

interface Window {
  failures: number;
  readonly endsAtMs: number;
}

/**
 * The budget that one replica grants by itself. Windows and blocks all last equally long, so each
 * map is in the order in which its entries end, and what has ended is found at its beginning.
 */
export class LocalBudget {
  private readonly windows = new Map<string, Window>();
  /** By key, when the block ends. */
  private readonly blocks = new Map<string, number>();
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
    const endsAtMs = this.blocks.get(key);
    return endsAtMs === undefined ? 0 : Math.max(0, endsAtMs - nowMs);
  }

  /** Counts a failure of a key that is not blocked; the last of the burst blocks it. */
  fail(key: string, nowMs: number): void {
    this.forgetEnded(nowMs);
    const window = this.windows.get(key);
    const failures = (window?.failures ?? 0) + 1;
    if (failures >= FAILURE_BURST) this.block(key, nowMs);
    else if (window !== undefined) window.failures = failures;
    else {
      this.makeRoom();
      this.windows.set(key, { failures, endsAtMs: nowMs + FAILURE_WINDOW_MS });
    }
  }

  /** Blocks the key from now on; a block that it has is not made longer. */
  block(key: string, nowMs: number): void {
    this.forgetEnded(nowMs);
    if (this.blocks.has(key)) return;
    this.windows.delete(key);
    this.makeRoom();
    this.blocks.set(key, nowMs + BLOCK_MS);
  }

  /** Drops windows and blocks that are over. Costs nothing while there are none. */
  forgetEnded(nowMs: number): void {
    for (const [key, { endsAtMs }] of this.windows) {
      if (endsAtMs > nowMs) break;
      this.windows.delete(key);
    }
    for (const [key, endsAtMs] of this.blocks) {
      if (endsAtMs > nowMs) break;
      this.blocks.delete(key);
    }
  }

  /** The oldest that is not blocked goes first: whoever guesses most is forgotten last. */
  private makeRoom(): void {
    if (this.tracked < this.trackedMax) return;
    const oldest = this.windows.size > 0 ? this.windows : this.blocks;
    for (const key of oldest.keys()) {
      oldest.delete(key);
      this.evicted += 1;
      break;
    }
  }
}
