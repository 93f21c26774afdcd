/** Waiting that ends with a term, and leaves neither timers nor listeners behind. */
import type { Clock } from '../../runtime/clock.js';
import { CodedError } from '../../runtime/failure.js';

/** Resolves after that time, or when the signal aborts. */
export function untilAborted(clock: Clock, maxMs: number, signal: AbortSignal): Promise<void> {
  if (signal.aborted) return Promise.resolve();
  return new Promise((resolve) => {
    const end = (): void => {
      timer.cancel();
      signal.removeEventListener('abort', end);
      resolve();
    };
    const timer = clock.schedule(end, maxMs);
    signal.addEventListener('abort', end);
  });
}

/** How long `within` waits, and whom it tells to stop when that is over. */
export interface WaitingBounds {
  readonly clock: Clock;
  readonly maxMs: number;
  /** Of the term. */
  readonly signal: AbortSignal;
  /** Aborted when the waiting ends first. */
  readonly stop: AbortController;
}

/**
 * Settles as `work` does, or rejects with `CodedError` `sink_timeout` after `maxMs`, or with
 * `term_over`, and tells the work to stop. Does not wait until it has.
 */
export function within(
  work: Promise<void>,
  { clock, maxMs, signal, stop }: WaitingBounds,
): Promise<void> {
  return new Promise((resolve, reject) => {
    const settle = (how: () => void): void => {
      timer.cancel();
      signal.removeEventListener('abort', ended);
      how();
    };
    const give = (code: string, message: string): void => {
      settle(() => reject(new CodedError(code, message)));
      stop.abort();
    };
    const ended = (): void => give('term_over', 'the term of the lease ended');
    const timer = clock.schedule(() => {
      give('sink_timeout', `it did not take a batch within ${maxMs / 1_000} s`);
    }, maxMs);
    signal.addEventListener('abort', ended);
    work.then(
      () => settle(resolve),
      (error: unknown) => settle(() => reject(error as Error)),
    );
    if (signal.aborted) ended();
  });
}
