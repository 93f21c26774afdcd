/**
 * The terms of this process as one thread has them: whoever does a leader's work follows a lease
 * here and is called for each term. The supervisor tells when one begins and ends; the board says
 * at each moment whether it still holds.
 */
import { type Clock, delay } from './clock.js';
import { CodedError, describe } from './failure.js';
import { type Fence, isSameTerm } from './lease.js';
import type { Log } from './log.js';
import type { TermBoard } from './term-board.js';

/** What a write under a fence fails with when the term is not the lease's any more. */
export const FENCED = 'fenced';

/** A term while it is acted under. */
export interface ActiveTerm {
  /** For every write: `UnitOfWork.fence`. */
  readonly fence: Fence;
  /** Aborts when the term ends; a little later than `isTrusted` may know it. */
  readonly signal: AbortSignal;
  /** To be asked immediately before each effect. */
  isTrusted(): boolean;
}

/**
 * Does a leader's work until the signal aborts. One that rejects with `fenced` ends the term; any
 * other failure is logged and the work begun again.
 */
export type TermWork = (term: ActiveTerm) => Promise<void>;

interface RunningTerm {
  readonly fence: Fence;
  readonly abort: AbortController;
  readonly working: Set<Promise<void>>;
}

/** What the terms of a thread need of it. */
export interface ThreadTermsEnvironment {
  readonly board: TermBoard;
  readonly clock: Clock;
  readonly log: Log;
  /** A write was refused under that fence: the elector should know that the term is over. */
  readonly onFenced: (fence: Fence) => void;
}

/** Work that failed of something else than its fence is begun again after this. */
const WORK_AGAIN_MS = 1_000;

/** One for each thread of actors. */
export class ThreadTerms {
  private readonly running = new Map<string, RunningTerm>();
  private readonly followers = new Map<string, Set<TermWork>>();

  constructor(private readonly environment: ThreadTermsEnvironment) {}

  /**
   * Calls `work` for each term of the lease from now on, the present one included. The function
   * that is returned ends that, and resolves when no work is left.
   */
  follow(lease: string, work: TermWork): () => Promise<void> {
    const own = new AbortController();
    const pending = new Set<Promise<void>>();
    const stoppable: TermWork = (term) => {
      const signal = AbortSignal.any([term.signal, own.signal]);
      const isTrusted = (): boolean => !own.signal.aborted && term.isTrusted();
      const working = work({ fence: term.fence, signal, isTrusted });
      pending.add(working);
      return working.finally(() => pending.delete(working));
    };
    const works = this.followers.get(lease) ?? new Set();
    this.followers.set(lease, works.add(stoppable));
    const current = this.running.get(lease);
    if (current !== undefined) this.start(current, stoppable);
    return async () => {
      works.delete(stoppable);
      own.abort();
      await Promise.allSettled(pending);
    };
  }

  /** The term of that lease that this process has, as far as the thread has been told. */
  current(lease: string): Fence | undefined {
    return this.running.get(lease)?.fence;
  }

  /** Told by the supervisor; the same term twice is told once. An earlier one ends first. */
  begin(fence: Fence): void {
    const earlier = this.running.get(fence.lease);
    if (earlier !== undefined) {
      if (isSameTerm(earlier.fence, fence)) return;
      earlier.abort.abort();
    }
    const running = { fence, abort: new AbortController(), working: new Set<Promise<void>>() };
    this.running.set(fence.lease, running);
    for (const work of this.followers.get(fence.lease) ?? []) this.start(running, work);
  }

  /** Resolves when everything that was done under that term has stopped. */
  async end(fence: Fence): Promise<void> {
    const running = this.running.get(fence.lease);
    if (running === undefined || !isSameTerm(running.fence, fence)) return;
    this.running.delete(fence.lease);
    running.abort.abort();
    await Promise.all(running.working);
  }

  private start(running: RunningTerm, work: TermWork): void {
    const working = this.work(running, work).finally(() => running.working.delete(working));
    running.working.add(working);
  }

  private async work({ fence, abort }: RunningTerm, work: TermWork): Promise<void> {
    const { board, clock, log, onFenced } = this.environment;
    const { signal } = abort;
    const isTrusted = (): boolean => !signal.aborted && board.isTrusted(fence);
    const followed = this.followers.get(fence.lease);
    while (!signal.aborted && followed?.has(work)) {
      try {
        await work({ fence, signal, isTrusted });
        return;
      } catch (error) {
        if (error instanceof CodedError && error.code === FENCED) {
          abort.abort();
          onFenced(fence);
          return;
        }
        if (signal.aborted) return;
        log.error({ lease: fence.lease, error: describe(error) }, 'A leader’s work failed.');
        await delay(clock, WORK_AGAIN_MS);
      }
    }
  }
}
