/** What is counted of one actor; crosses threads as `ActorSnapshot`. */
import { BATCH_BOUNDS, Histogram, type HistogramSnapshot, LATENCY_BOUNDS_MS } from './histogram.js';

/** Only while `running` does an actor take asks; in the other states they are answered at once. */
export type CellState = 'opening' | 'running' | 'restarting' | 'stopped';

/**
 * One actor at one moment. Counters and histograms begin with the thread, not with the last restart
 * of the actor; depths are the asks that wait now.
 */
export interface ActorSnapshot {
  readonly name: string;
  readonly state: CellState;
  /** Why it is not running, as a code; absent while it runs. */
  readonly reason?: string;
  readonly readDepth: number;
  readonly writeDepth: number;
  readonly restarts: number;
  readonly rejected: number;
  readonly expired: number;
  readonly catchUps: number;
  readonly catchUpFailures: number;
  readonly commits: number;
  readonly readBatch: HistogramSnapshot;
  readonly writeBatch: HistogramSnapshot;
  readonly readWaitMs: HistogramSnapshot;
  readonly writeWaitMs: HistogramSnapshot;
  readonly readHandleMs: HistogramSnapshot;
  readonly writeHandleMs: HistogramSnapshot;
  /** What the actor says of itself. */
  readonly facts: Readonly<Record<string, unknown>>;
}

/** Counters of one cell: plain fields, because every request increments some of them. */
export class ActorMetrics {
  restarts = 0;
  rejected = 0;
  expired = 0;
  catchUps = 0;
  catchUpFailures = 0;
  commits = 0;
  readonly readBatch = new Histogram(BATCH_BOUNDS);
  readonly writeBatch = new Histogram(BATCH_BOUNDS);
  readonly readWaitMs = new Histogram(LATENCY_BOUNDS_MS);
  readonly writeWaitMs = new Histogram(LATENCY_BOUNDS_MS);
  readonly readHandleMs = new Histogram(LATENCY_BOUNDS_MS);
  readonly writeHandleMs = new Histogram(LATENCY_BOUNDS_MS);

  snapshot(): Pick<
    ActorSnapshot,
    | 'restarts'
    | 'rejected'
    | 'expired'
    | 'catchUps'
    | 'catchUpFailures'
    | 'commits'
    | 'readBatch'
    | 'writeBatch'
    | 'readWaitMs'
    | 'writeWaitMs'
    | 'readHandleMs'
    | 'writeHandleMs'
  > {
    return {
      restarts: this.restarts,
      rejected: this.rejected,
      expired: this.expired,
      catchUps: this.catchUps,
      catchUpFailures: this.catchUpFailures,
      commits: this.commits,
      readBatch: this.readBatch.snapshot(),
      writeBatch: this.writeBatch.snapshot(),
      readWaitMs: this.readWaitMs.snapshot(),
      writeWaitMs: this.writeWaitMs.snapshot(),
      readHandleMs: this.readHandleMs.snapshot(),
      writeHandleMs: this.writeHandleMs.snapshot(),
    };
  }
}
