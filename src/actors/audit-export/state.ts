/** How far a sink has got: a document that only the term of its lease may write. Pure. */
import type { ChainedRecord } from '../../storage/evidence-store.js';
import type { DocumentKey, StoredDocument } from '../../storage/store.js';
import type { SinkFailure, SinkRestored } from './messages.js';

/** The kind of the documents; their ids are the names of the sinks. */
export const AUDIT_SINK_KIND = 'audit-sink';

/** A record by its number and its hash: the same number with another hash is another history. */
export interface ChainMark {
  /** -1: before the first record. */
  readonly seq: number;
  /** '' before the first record. */
  readonly hash: string;
}

/** What is known of a sink. */
export interface SinkCursor extends ChainMark {
  /** Of the store when this was written; '' before the first time. */
  readonly epoch: string;
  /** Older cursors, newest first: where to go on in a chain that has lost the newest. */
  readonly marks: readonly ChainMark[];
  /** ms since the Unix epoch on the store's clock; null: nothing was delivered yet. */
  readonly deliveredAtMs: number | null;
  /** null: the last attempt succeeded, or there was none. */
  readonly failure: SinkFailure | null;
  readonly restored: SinkRestored | null;
}

/** Of a sink that got nothing yet. */
export const CURSOR_AT_BEGINNING: SinkCursor = {
  seq: -1,
  hash: '',
  epoch: '',
  marks: [],
  deliveredAtMs: null,
  failure: null,
  restored: null,
};

/** Where a sink's cursor is kept. */
export function cursorKey(sink: string): DocumentKey {
  return { kind: AUDIT_SINK_KIND, id: sink };
}

/** Absent: a sink that got nothing yet. */
export function cursorOf(document: StoredDocument | undefined): SinkCursor {
  if (document === undefined) return CURSOR_AT_BEGINNING;
  return { ...CURSOR_AT_BEGINNING, ...(JSON.parse(document.body) as Partial<SinkCursor>) };
}

/** After the delivery of records up to `last`. */
export function advanced(
  cursor: SinkCursor,
  last: ChainMark,
  { epoch, atMs }: { readonly epoch: string; readonly atMs: number },
): SinkCursor {
  const { seq, hash } = cursor;
  const known = seq < 0 ? cursor.marks : [{ seq, hash }, ...cursor.marks];
  return {
    ...cursor,
    seq: last.seq,
    hash: last.hash,
    epoch,
    marks: thinned(last.seq, known),
    deliveredAtMs: atMs,
    failure: null,
  };
}

/** In a chain that goes on from `mark`: whatever came after it is delivered anew. */
export function fallenBack(
  cursor: SinkCursor,
  mark: ChainMark,
  { epoch, atMs }: { readonly epoch: string; readonly atMs: number },
): SinkCursor {
  return {
    ...cursor,
    seq: mark.seq,
    hash: mark.hash,
    epoch,
    marks: cursor.marks.filter(({ seq }) => seq < mark.seq),
    restored: { atMs, resumedAfterSeq: mark.seq },
  };
}

/**
 * Of the marks in each octave of distance the oldest: each grows into the next octave in its turn,
 * so that a few dozen reach from the last batch to the beginning of the longest chain.
 */
function thinned(seq: number, marks: readonly ChainMark[]): ChainMark[] {
  const octaveOf = (mark: ChainMark): number => Math.floor(Math.log2(seq - mark.seq));
  return marks.filter((mark, index) => {
    const older = marks[index + 1];
    return older === undefined || octaveOf(older) !== octaveOf(mark);
  });
}

/**
 * How many of the records follow on the cursor and on each other: all of them, unless one is
 * missing or was changed.
 */
export function following(cursor: ChainMark, records: readonly ChainedRecord[]): number {
  let { seq, hash } = cursor;
  for (const [index, record] of records.entries()) {
    const isFirst = seq === -1;
    if (record.seq !== seq + 1 || (!isFirst && record.prevHash !== hash)) return index;
    ({ seq, hash } = record);
  }
  return records.length;
}
