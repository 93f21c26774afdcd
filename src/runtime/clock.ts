/**
 * Time, as everything in the product sees it: the one module that touches the real clocks and
 * timers. A simulation passes another `Clock`. Durations are on the monotonic clock; what the
 * store judges (leases, expiries) is on the store's clock and never read here.
 */

/** A callback that waits to be called. */
export interface Timer {
  /** Idempotent; after it returns the callback never runs. */
  cancel(): void;
}

/** Where time comes from and how one waits for it. Everything is in milliseconds. */
export interface Clock {
  /** Milliseconds since the Unix epoch, UTC. */
  wallMs(): number;
  /** Milliseconds on a clock that never goes back, the same for all threads of the machine. */
  monotonicMs(): number;
  /** Calls `callback` once after `delayMs`. A pending timer does not keep the process alive. */
  schedule(callback: () => void, delayMs: number): Timer;
  /** Calls `callback` after everything that has already arrived in this turn of the event loop. */
  afterTurn(callback: () => void): void;
}

/**
 * How far this process's wall clock is set off, in ms, for every thread of it: what a machine with
 * a wrong clock would have. Only `halo chaos` sets it. NaN where it is no whole number, or where
 * `HALO_TEST_CLOCK=true` does not say that this is a test: one variable sets no server wrong.
 */
export const clockOffsetMs = offsetOf(process.env['HALO_CLOCK_OFFSET_MS']);

function offsetOf(text: string | undefined): number {
  if (text === undefined || text === '') return 0;
  const isTest = process.env['HALO_TEST_CLOCK'] === 'true';
  return isTest && /^-?\d{1,12}$/.test(text) ? Number(text) : Number.NaN;
}

/** The clocks of the machine, for everything but simulations. */
export const systemClock: Clock = {
  wallMs: () => Date.now() + clockOffsetMs,
  monotonicMs: () => {
    const [seconds, nanoseconds] = process.hrtime();
    return seconds * 1000 + nanoseconds / 1e6;
  },
  schedule: (callback, delayMs) => {
    const timer = setTimeout(callback, delayMs);
    timer.unref();
    return { cancel: () => clearTimeout(timer) };
  },
  afterTurn: (callback) => {
    setImmediate(callback);
  },
};

/** Resolves after `delayMs` on that clock. */
export function delay(clock: Clock, delayMs: number): Promise<void> {
  return new Promise((resolve) => clock.schedule(resolve, delayMs));
}

/**
 * Calls `work` again and again, each time so long after the last call ended, until it is cancelled.
 * `work` says itself what goes wrong: it must neither throw nor reject.
 */
export function repeat(clock: Clock, pauseMs: number, work: () => void | Promise<void>): Timer {
  let cancelled = false;
  let timer: Timer;
  const again = (): void => {
    if (!cancelled) timer = clock.schedule(run, pauseMs);
  };
  const run = (): void => {
    const working = work();
    if (working === undefined) again();
    else void working.then(again);
  };
  again();
  return {
    cancel: () => {
      cancelled = true;
      timer.cancel();
    },
  };
}
