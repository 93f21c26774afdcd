/**
 * The store's own clock: it is stepped, as when an administrator or a time server sets a clock, and
 * remembers what it showed, so that the reference can judge expiries as the store did.
 */
import type { Clock, Timer } from '../../src/runtime/clock.js';

/** What the store's clock showed during one call, in ms since the Unix epoch. */
export interface Moment {
  readonly lowMs: number;
  readonly highMs: number;
  /** The most that it showed at any time up to the end of the call. */
  readonly highestMs: number;
}

interface Stretch {
  readonly fromMs: number;
  readonly offsetMs: number;
}

export class StoreTime implements Clock {
  private readonly originMs: number;
  private readonly stretches: Stretch[] = [{ fromMs: 0, offsetMs: 0 }];

  constructor(private readonly base: Clock) {
    this.originMs = base.wallMs() - base.monotonicMs();
  }

  wallMs(): number {
    return this.base.wallMs() + this.stretches.at(-1)!.offsetMs;
  }

  monotonicMs(): number {
    return this.base.monotonicMs();
  }

  schedule(callback: () => void, delayMs: number): Timer {
    return this.base.schedule(callback, delayMs);
  }

  afterTurn(callback: () => void): void {
    this.base.afterTurn(callback);
  }

  /** Forwards or, with a negative number, backwards. */
  step(byMs: number): void {
    const offsetMs = this.stretches.at(-1)!.offsetMs + byMs;
    this.stretches.push({ fromMs: this.base.monotonicMs(), offsetMs });
  }

  /** Both ends are monotonic times; an end that is not reached yet counts as now. */
  during(beganMs: number, endedMs: number): Moment {
    const endMs = Math.min(endedMs, this.base.monotonicMs());
    let lowMs = Number.POSITIVE_INFINITY;
    let highMs = 0;
    let highestMs = 0;
    this.stretches.forEach(({ fromMs, offsetMs }, index) => {
      if (fromMs > endMs) return;
      const untilMs = Math.min(endMs, this.stretches[index + 1]?.fromMs ?? endMs);
      const lastMs = Math.floor(this.originMs + untilMs) + offsetMs;
      highestMs = Math.max(highestMs, lastMs);
      if (untilMs < beganMs) return;
      highMs = Math.max(highMs, lastMs);
      const firstMs = Math.max(fromMs, beganMs);
      lowMs = Math.min(lowMs, Math.floor(this.originMs + firstMs) + offsetMs);
    });
    return { lowMs, highMs, highestMs };
  }
}
