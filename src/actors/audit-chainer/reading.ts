/** Reading the chain page by page; filtering by kind looks at a bounded part of it. */
import type { ChainedRecord, EvidenceStore, FoundEvidence } from '../../storage/evidence-store.js';
import type { AuditPage, EvidenceName, ReadAudit, TailAudit } from './messages.js';

/** Records that one call reads at most, for those of a kind that is rare: some 10 MB. */
const SCANNED_MAX = 10_000;
const SCAN_PAGE = 1_000;

type Page = Omit<AuditPage, 'verifiedUpTo'>;

/** By number or ref; null for what is neither chained nor waiting. */
export async function find(
  store: EvidenceStore,
  name: EvidenceName,
): Promise<FoundEvidence | null> {
  if ('ref' in name) return (await store.find(name.ref)) ?? null;
  const [record] = await store.page(name.seq - 1, 1);
  return record?.seq === name.seq ? { pending: false, record } : null;
}

/** The records after a number, in their order. */
export async function readPage(
  store: EvidenceStore,
  { afterSeq, limit, kind }: ReadAudit,
): Promise<Page> {
  const head = await store.head();
  const next = (seq: number, size: number): Promise<ChainedRecord[]> => store.page(seq, size);
  const { records, lastSeq } = await scan(afterSeq, next, { limit, kind });
  return { records, head, ...(lastSeq < head.seq ? { nextAfterSeq: lastSeq } : {}) };
}

/** The newest records, newest first. */
export async function readTail(store: EvidenceStore, { limit, kind }: TailAudit): Promise<Page> {
  const head = await store.head();
  const next = (seq: number, size: number): Promise<ChainedRecord[]> => store.pageBack(seq, size);
  const { records } = await scan(head.seq + 1, next, { limit, kind });
  return { records, head };
}

/** Goes on from a number, either way, until there are enough or too many were looked at. */
async function scan(
  from: number,
  next: (seq: number, size: number) => Promise<ChainedRecord[]>,
  { limit, kind }: { readonly limit: number; readonly kind: string | undefined },
): Promise<{ readonly records: ChainedRecord[]; readonly lastSeq: number }> {
  const records: ChainedRecord[] = [];
  let lastSeq = from;
  const size = kind === undefined ? limit : SCAN_PAGE;
  for (let scanned = 0; scanned < SCANNED_MAX && records.length < limit; ) {
    const page = await next(lastSeq, size);
    scanned += page.length;
    for (const record of page) {
      if (records.length === limit) break;
      lastSeq = record.seq;
      if (kind === undefined || kindOf(record) === kind) records.push(record);
    }
    if (page.length < size) break;
  }
  return { records, lastSeq };
}

function kindOf({ text }: ChainedRecord): string {
  return (JSON.parse(text) as { kind: string }).kind;
}
