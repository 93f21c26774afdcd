/** The leases of a server: its elector, and what threads, metrics and status are told of it. */
import type { Clock } from '../runtime/clock.js';
import { Elector, type LeaseView } from '../runtime/elector.js';
import { type Fence, type LeaseStore, leaseTiming } from '../runtime/lease.js';
import type { Log } from '../runtime/log.js';
import type { Random } from '../runtime/random.js';
import { TermBoard, type TermBoardData, termBoardData } from '../runtime/term-board.js';

/** What leadership needs of its server. */
export interface LeadershipOptions {
  readonly leases: readonly string[];
  readonly replica: string;
  readonly ttlMs: number;
  readonly store: LeaseStore;
  readonly clock: Clock;
  readonly random: Random;
  readonly log: Log;
}

/** What is told of terms; the supervisor. */
export interface TermThreads {
  beginTerm(fence: Fence): void;
  endTerm(fence: Fence): Promise<void>;
}

/** Runs on the main thread, where no traffic is. `stop` is safe before `start`, and idempotent. */
export class Leadership {
  /** For every thread of actors. */
  readonly terms: TermBoardData;
  private readonly elector: Elector;
  private threads: TermThreads | undefined;

  constructor(options: LeadershipOptions) {
    const { leases, ttlMs, clock } = options;
    this.terms = termBoardData(leases);
    this.elector = new Elector({
      ...options,
      timing: leaseTiming(ttlMs),
      board: new TermBoard(this.terms, clock),
      onBegin: (fence) => this.threads?.beginTerm(fence),
      onEnd: async (fence) => this.threads?.endTerm(fence),
    });
  }

  /** Campaigns from now on: whoever leads must be able to do the work. */
  start(threads: TermThreads): void {
    this.threads = threads;
    this.elector.start();
  }

  stop(): Promise<void> {
    return this.elector.stop();
  }

  /** The terms that hold now. */
  held(): readonly Fence[] {
    return this.elector.terms();
  }

  fenced(fence: Fence): void {
    this.elector.fenced(fence);
  }

  inspect(): readonly LeaseView[] {
    return this.elector.inspect();
  }
}
