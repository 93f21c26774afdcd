/** Reading the chain after a cursor, and finding out that it is not the chain of that cursor. */
import { CodedError } from '../../runtime/failure.js';
import type { ChainedRecord, EvidenceStore } from '../../storage/evidence-store.js';
import { type ChainMark, following, type SinkCursor } from './state.js';

/** `restored`: the chain lacks the cursor's record, and goes on from this one of its marks. */
export type NextRecords =
  | { readonly kind: 'records'; readonly records: readonly ChainedRecord[] }
  | { readonly kind: 'restored'; readonly mark: ChainMark };

/** Before record 0. */
const BEGINNING: ChainMark = { seq: -1, hash: '' };

/**
 * The records that follow on the cursor without a gap, at most `limit`. Each reading begins with
 * the cursor's own record, so that no other history is taken for its continuation. Rejects with a
 * `StoreError`, or a `CodedError`: `records_archived` or `damaged`.
 */
export async function nextRecords(
  chain: EvidenceStore,
  cursor: SinkCursor,
  limit: number,
): Promise<NextRecords> {
  if (cursor.seq < 0) return first(chain, limit);
  const page = await chain.page(cursor.seq - 1, limit + 1);
  const [own] = page;
  if (own?.seq === cursor.seq) {
    if (own.hash !== cursor.hash) {
      return { kind: 'restored', mark: await newestMark(chain, cursor) };
    }
    if (page.length === 1) await requireEnd(chain, cursor.seq);
    return sound(cursor, page.slice(1));
  }
  if (own === undefined) {
    const head = await chain.head();
    if (head.seq >= cursor.seq) throw damaged(cursor.seq);
    return { kind: 'restored', mark: await newestMark(chain, cursor) };
  }
  if (own.seq > cursor.seq + 1) throw archived(cursor.seq + 1, own.seq - 1);
  return sound(cursor, page.slice(0, limit));
}

/** Nothing more to read is either the end of the chain, or a segment that was moved away. */
async function requireEnd(chain: EvidenceStore, seq: number): Promise<void> {
  const head = await chain.head();
  if (head.seq <= seq) return;
  // It may have been chained since the page was read.
  const [next] = await chain.page(seq, 1);
  if (next === undefined) throw archived(seq + 1, head.seq);
}

/** A new sink begins with the oldest record that is there, as every other reading does. */
async function first(chain: EvidenceStore, limit: number): Promise<NextRecords> {
  const page = await chain.page(-1, limit);
  const [oldest] = page;
  if (oldest === undefined) return { kind: 'records', records: [] };
  const before = { seq: oldest.seq - 1, hash: oldest.prevHash };
  return sound(chain.mode === 'direct' ? before : BEGINNING, page);
}

function sound(before: ChainMark, page: readonly ChainedRecord[]): NextRecords {
  const count = following(before, page);
  if (count === 0 && page.length > 0) throw damaged(before.seq + 1);
  return { kind: 'records', records: page.slice(0, count) };
}

async function newestMark(chain: EvidenceStore, cursor: SinkCursor): Promise<ChainMark> {
  for (const mark of cursor.marks) {
    const [record] = await chain.page(mark.seq - 1, 1);
    if (record?.seq === mark.seq && record.hash === mark.hash) return mark;
  }
  return BEGINNING;
}

function archived(fromSeq: number, toSeq: number): CodedError {
  const message =
    `the sink lacks the records ${fromSeq} to ${toSeq}, of which the first is in no segment: ` +
    'put back what was moved away until the sink has it';
  return new CodedError('records_archived', message);
}

function damaged(seq: number): CodedError {
  const message = `record ${seq} is missing or does not follow on the one before: verify the chain`;
  return new CodedError('damaged', message);
}
