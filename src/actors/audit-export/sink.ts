/** What a sink is to whoever forwards to it. */
import type { ChainedRecord } from '../../storage/evidence-store.js';
import type { SinkType } from './messages.js';

/** Records in their order, without a gap. Their `seq` is what a receiver tells repeats by. */
export interface SinkBatch {
  readonly records: readonly ChainedRecord[];
  /** Of the store: where it changes, the same `seq` may come with another record. */
  readonly epoch: string;
}

/** A place that takes records. */
export interface Sink {
  readonly name: string;
  readonly type: SinkType;
  /** The most records of one batch, at least 1. */
  readonly batchMax: number;
  /**
   * Resolves when the receiver has all of them for good; a batch may be delivered again. Rejects
   * with a `CodedError` that says what helps. Stops, as far as it can, when the signal aborts.
   */
  deliver(batch: SinkBatch, signal: AbortSignal): Promise<void>;
  /**
   * At the end of each term, since another process may write to the same place until the next one.
   * Idempotent; a later delivery opens it again.
   */
  close(): Promise<void>;
}
