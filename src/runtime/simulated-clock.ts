/**
 * A clock for simulations: time moves only from event to event, so that a seed replays a run. All
 * of the code under simulation runs in one thread, between two events.
 */
import { type Clock, systemClock, type Timer } from './clock.js';

interface Event {
  readonly atMs: number;
  readonly order: number;
  readonly callback: () => void;
  cancelled: boolean;
}

/**
 * Turns that the real loop is asked for at once. Promise callbacks run between any two of them, and
 * nothing simulated uses that loop; a way around the whole loop for each would cost more than most
 * events do.
 */
const TURNS_AT_ONCE = 64;

/** Where simulated wall clocks start: some day in 2026; durations start at 1 s. */
const WALL_START_MS = 1_790_000_000_000;

/**
 * Stands still but for `runUntil` and `advance`, whatever real time passes. Events run in the order
 * of their times, those of the same time in the order they were scheduled.
 */
export class SimulatedClock implements Clock {
  private elapsedMs = 1_000;
  private order = 0;
  private events: Event[] = [];

  wallMs(): number {
    return Math.floor(WALL_START_MS + this.elapsedMs);
  }

  monotonicMs(): number {
    return this.elapsedMs;
  }

  schedule(callback: () => void, delayMs: number): Timer {
    const atMs = this.elapsedMs + Math.max(0, delayMs);
    const event: Event = { atMs, order: this.order, callback, cancelled: false };
    this.order += 1;
    let at = this.events.length;
    while (at > 0 && (this.events[at - 1] as Event).atMs > atMs) at -= 1;
    this.events.splice(at, 0, event);
    return {
      cancel: () => {
        event.cancelled = true;
      },
    };
  }

  afterTurn(callback: () => void): void {
    this.schedule(callback, 0);
  }

  /**
   * Runs events until `done` says so or `withinMs` of simulated time have passed; resolves with
   * whether it was done, rejects with what an event throws. Every promise that an event settles is
   * followed up before the next event.
   */
  runUntil(done: () => boolean, withinMs: number): Promise<boolean> {
    const endMs = this.elapsedMs + withinMs;
    return new Promise((resolve, reject) => {
      let ended = false;
      const end = (finish: () => void): void => {
        ended = true;
        finish();
      };
      const turn = (): void => {
        if (ended) return;
        try {
          if (done()) end(() => resolve(true));
          else if (!this.runNext(endMs)) end(() => resolve(false));
        } catch (error) {
          end(() => reject(error));
        }
      };
      const turns = (): void => {
        if (ended) return;
        for (let index = 0; index < TURNS_AT_ONCE; index += 1) systemClock.afterTurn(turn);
        systemClock.afterTurn(turns);
      };
      turns();
    });
  }

  /** Runs the next event that is due by then; false, and time has moved there, if there is none. */
  private runNext(endMs: number): boolean {
    for (;;) {
      const next = this.events[0];
      if (!next || next.atMs > endMs) {
        this.elapsedMs = endMs;
        return false;
      }
      this.events.shift();
      if (next.cancelled) continue;
      this.elapsedMs = next.atMs;
      next.callback();
      return true;
    }
  }

  /** Lets that much simulated time pass. */
  async advance(byMs: number): Promise<void> {
    await this.runUntil(() => false, byMs);
  }
}
