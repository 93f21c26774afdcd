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
  const records: ChainedRecord[] = [];
  let after = afterSeq;
  const size = kind === undefined ? limit : SCAN_PAGE;
  for (let scanned = 0; scanned < SCANNED_MAX && records.length < limit; ) {
    const page = await store.page(after, size);
    scanned += page.length;
    for (const record of page) {
      if (records.length === limit) break;
      after = record.seq;
      if (kind === undefined || kindOf(record) === kind) records.push(record);
    }
    if (page.length < size) break;
  }
  return { records, head, ...(after < head.seq ? { nextAfterSeq: after } : {}) };
}

/** The newest records, newest first. */
export async function readTail(store: EvidenceStore, { limit, kind }: TailAudit): Promise<Page> {
  const head = await store.head();
  const records: ChainedRecord[] = [];
  let before = head.seq + 1;
  const size = kind === undefined ? limit : SCAN_PAGE;
  for (let scanned = 0; scanned < SCANNED_MAX && records.length < limit; ) {
    const page = await store.pageBack(before, size);
    scanned += page.length;
    for (const record of page) {
      if (records.length === limit) break;
      before = record.seq;
      if (kind === undefined || kindOf(record) === kind) records.push(record);
    }
    if (page.length < size) break;
  }
  return { records, head };
}

function kindOf({ text }: ChainedRecord): string {
  return (JSON.parse(text) as { kind: string }).kind;
}
