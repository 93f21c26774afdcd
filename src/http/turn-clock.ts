/** The monotonic clock, read at most once per turn of the event loop: for the hot path only. */
import type { Clock } from '../runtime/clock.js';

/** For durations and freshness where one reading for each answer would cost too much. */
export class TurnClock {
  private readMs = 0;
  private fresh = false;
  private readonly forget: () => void;

  constructor(private readonly clock: Clock) {
    this.forget = () => {
      this.fresh = false;
    };
  }

  /** Milliseconds on the monotonic clock, as they were when this turn first asked. */
  nowMs(): number {
    if (!this.fresh) {
      this.fresh = true;
      this.readMs = this.clock.monotonicMs();
      this.clock.afterTurn(this.forget);
    }
    return this.readMs;
  }
}
