/**
 * Ends a process whose main thread cannot end it any more. The main thread's loop may be held by
 * anything, so that no timer of its own bounds a shutdown: a thread that only waits does.
 */
import { Worker } from 'node:worker_threads';
import { type Clock, repeat } from './clock.js';

/** What the two threads share: one cell each. */
export const BEATS_CELL = 0;
/** 0 until `endWithin` was called, then the milliseconds that are left from that moment. */
export const ARMED_CELL = 1;
const CELLS = 2;

/** How the main thread shows that it lives, and when it is taken for dead. */
export interface WatchdogBounds {
  /** How often the main thread beats, and the watchdog looks. */
  readonly beatPeriodMs: number;
  /** Looks in a row without a beat. Looks, not time: a process that is stopped does not look. */
  readonly missedBeatsMax: number;
}

/** Thirty seconds: longer than any machine is too busy for one turn of an idle loop. */
const WATCHDOG_BOUNDS: WatchdogBounds = { beatPeriodMs: 1_000, missedBeatsMax: 30 };

/** What the watchdog's thread is given. */
export interface WatchdogData extends WatchdogBounds {
  readonly cells: SharedArrayBuffer;
  readonly logLevel: string;
}

/** Runs a loop of a few lines. */
const HEAP_MAX_MIB = 16;

/** Started by the main thread before everything else. It ends with the process. */
export class Watchdog {
  private readonly cells = new Int32Array(
    new SharedArrayBuffer(CELLS * Int32Array.BYTES_PER_ELEMENT),
  );

  constructor(clock: Clock, logLevel: string, bounds: WatchdogBounds = WATCHDOG_BOUNDS) {
    const data: WatchdogData = {
      cells: this.cells.buffer as SharedArrayBuffer,
      logLevel,
      ...bounds,
    };
    const worker = new Worker(new URL('./watchdog-thread.js', import.meta.url), {
      workerData: data,
      name: 'watchdog',
      resourceLimits: { maxOldGenerationSizeMb: HEAP_MAX_MIB },
    });
    worker.unref();
    repeat(clock, bounds.beatPeriodMs, () => {
      Atomics.add(this.cells, BEATS_CELL, 1);
    });
  }

  /** From now on the process is killed if it is there after `withinMs`. The first call counts. */
  endWithin(withinMs: number): void {
    const leftMs = Math.max(1, Math.ceil(withinMs));
    const before = Atomics.compareExchange(this.cells, ARMED_CELL, 0, leftMs);
    if (before === 0) Atomics.notify(this.cells, ARMED_CELL);
  }
}
