/**
 * Evidence in the store: what the seam knows of the chain and of the outbox before it (DESIGN §4,
 * ADR-0009). Texts are opaque here; `src/evidence` makes and checks them. What may be queued and
 * chained is decided by whoever calls; that nothing is lost, doubled or forked is kept here.
 */

/** An encoded event, given out under its ref in the commit of what it is evidence of. */
export interface EvidenceEvent {
  readonly ref: string;
  readonly text: string;
}

/** An event that waits to be chained, as its writer put it there. */
export interface QueuedEvent extends EvidenceEvent {
  /** Of the row; for reports, not for order: ids become visible out of order. */
  readonly id: number;
  /** A random mark of whoever wrote it, which numbers its events without gaps from 1. */
  readonly writer: string;
  readonly count: number;
  /** Names the key of `mac`. */
  readonly keyId: string;
  readonly mac: string;
  /** The last number of this writer that was chained before; 0: none was. */
  readonly chainedCount: number;
}

/** A record in its place. */
export interface ChainedRecord extends EvidenceEvent {
  readonly seq: number;
  readonly prevHash: string;
  readonly hash: string;
}

/** The newest record; `seq` is -1 and `hash` empty before the first. */
export interface StoredHead {
  readonly seq: number;
  readonly hash: string;
}

/** The newest record as whoever makes the next one sees it, under the head's lock. */
export interface ChainTail extends StoredHead {
  /** The text of the newest record; '' before the first. */
  readonly record: string;
  /** The hash of record 0; '' before it. */
  readonly chainId: string;
}

/** What a ref leads to: the record in the chain, or the event that waits for its place. */
export type FoundEvidence =
  | { readonly pending: false; readonly record: ChainedRecord }
  | { readonly pending: true; readonly event: EvidenceEvent };

/**
 * Makes records: given to a backend where it opens, since texts are opaque to it. What it throws
 * undoes everything. On files it must answer at once, within the step that writes.
 */
export interface ChainLinker {
  /**
   * Records for the events, in their order, after the head; before the first of all a genesis.
   * Checks each event's place and authenticity where it was queued.
   */
  link(
    tail: ChainTail,
    events: readonly (EvidenceEvent | QueuedEvent)[],
  ): readonly ChainedRecord[] | Promise<readonly ChainedRecord[]>;
  /** The record of a statement of the chain about itself, after the head. */
  state(
    tail: ChainTail,
    statement: ChainStatement,
  ): readonly ChainedRecord[] | Promise<readonly ChainedRecord[]>;
}

/** Asks for a statement; plain data that crosses threads, understood by the linker alone. */
export interface ChainStatement {
  readonly kind: string;
  readonly [field: string]: unknown;
}

/**
 * `drained`: how many left the outbox, 0 when it is empty. `busy`: another replica is at it; it is
 * asked again each time and never waited for.
 */
export type DrainResult =
  | { readonly kind: 'drained'; readonly events: number; readonly head: StoredHead }
  | { readonly kind: 'busy' };

/** One thread's way to the evidence. Rejects with a `StoreError`, or what the linker throws. */
export interface EvidenceStore {
  /** `direct`: chained in the commit itself, by the one process there is; nothing ever waits. */
  readonly mode: 'direct' | 'deferred';
  /**
   * Takes at most `limit` events off the outbox, in the order of their ids, and appends what the
   * linker makes of them: one transaction, all of it or nothing.
   */
  drain(limit: number): Promise<DrainResult>;
  /** Appends a statement, under the head's lock and past the outbox; waits for the lock. */
  append(statement: ChainStatement): Promise<readonly ChainedRecord[]>;
  /** Looks in chain and outbox at one moment, or an event that is just being chained is missed. */
  find(ref: string): Promise<FoundEvidence | undefined>;
  /** Records with a greater `seq`, in order. */
  page(afterSeq: number, limit: number): Promise<ChainedRecord[]>;
  /** Records with a smaller `seq`, newest first. */
  pageBack(beforeSeq: number, limit: number): Promise<ChainedRecord[]>;
  head(): Promise<StoredHead>;
  /** How many events wait: `chain_lag_records`. */
  pending(): Promise<number>;
}

/** Events chained in one transaction at most (ADR-0009). */
export const DRAIN_BATCH_MAX = 100;

/**
 * Throws a `RangeError` unless the records follow on the head and on each other, and the last of
 * them are those of the events, one for each.
 */
export function checkFollows(
  head: StoredHead,
  records: readonly ChainedRecord[],
  events: readonly EvidenceEvent[],
): void {
  let { seq, hash } = head;
  for (const record of records) {
    const isFirst = seq === -1;
    if (record.seq !== seq + 1 || (!isFirst && record.prevHash !== hash)) {
      throw new RangeError(`Record ${record.seq} does not follow on ${seq}.`);
    }
    ({ seq, hash } = record);
  }
  const own = events.length === 0 ? [] : records.slice(-events.length);
  if (own.length !== events.length || own.some(({ ref }, at) => ref !== events[at]?.ref)) {
    throw new RangeError(`${events.length} events cannot become these ${records.length} records.`);
  }
}
