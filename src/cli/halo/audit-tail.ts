/** `halo audit tail`: the newest records, and what is chained from then on. */
import { type Clock, delay } from '../../runtime/clock.js';
import { keepProcessAlive } from '../../runtime/keep-alive.js';
import { printable } from '../console.js';
import { type Api, ApiError, isRecord, textOf, unexpected } from './api.js';
import type { Output } from './command.js';

/** What to show. */
export interface TailRequest {
  readonly lines: number;
  readonly kind?: string;
  /** Go on for so long; absent: not at all. */
  readonly followMs?: number;
}

/** People read along; a record is chained within two seconds at the latest. */
const FOLLOW_PERIOD_MS = 1_000;
/** As many as the server gives at once. */
const PAGE_LIMIT = 500;

type Fields = Readonly<Record<string, unknown>>;

interface Page {
  readonly items: readonly Fields[];
  readonly next?: number;
  readonly headSeq: number;
}

/** Rejects with `ApiError`; while it follows, only with one that no waiting can mend. */
export async function tailAudit(
  api: Api,
  { lines, kind, followMs }: TailRequest,
  output: Output,
  clock: Clock,
): Promise<undefined> {
  const ofKind = kind === undefined ? '' : `&kind=${encodeURIComponent(kind)}`;
  const newest = await readPage(api, `tail=${lines}${ofKind}`);
  await showAll([...newest.items].reverse(), output);
  if (followMs === undefined) return undefined;
  const endMs = clock.monotonicMs() + followMs;
  const letGo = keepProcessAlive();
  try {
    for (let after = placeAfter(newest, -1); clock.monotonicMs() < endMs; ) {
      await delay(clock, Math.min(FOLLOW_PERIOD_MS, Math.max(0, endMs - clock.monotonicMs())));
      after = await showNew(api, after, ofKind, output);
    }
  } finally {
    letGo();
  }
  return undefined;
}

/** Where to go on: a server that is away for a moment changes nothing about that. */
async function showNew(api: Api, from: number, ofKind: string, output: Output): Promise<number> {
  let after = from;
  try {
    for (;;) {
      const from = after < 0 ? '' : `&after=${after}`;
      const page = await readPage(api, `limit=${PAGE_LIMIT}${from}${ofKind}`);
      await showAll(page.items, output);
      after = page.next ?? placeAfter(page, after);
      if (page.next === undefined) return after;
    }
  } catch (error) {
    const isPassing =
      error instanceof ApiError &&
      (error.problem.retryable === true || error.problem.status === undefined);
    if (!isPassing) throw error;
    output.err(`halo: ${printable(error.message)}; trying again\n`);
    return after;
  }
}

/** A record that was chained since the head was read may be among the items already. */
function placeAfter({ items, headSeq }: Page, before: number): number {
  const seqs = items.map(({ seq }) => (typeof seq === 'number' ? seq : -1));
  return Math.max(before, headSeq, ...seqs);
}

async function readPage(api: Api, query: string): Promise<Page> {
  const value = await api.get(`/api/v1/audit?${query}`);
  const { items, next, head } = isRecord(value) ? value : {};
  const headSeq = isRecord(head) ? head['seq'] : undefined;
  if (!Array.isArray(items) || typeof headSeq !== 'number') throw unexpected();
  const records = items.filter(isRecord);
  return { items: records, headSeq, ...(typeof next === 'number' ? { next } : {}) };
}

async function showAll(records: readonly Fields[], output: Output): Promise<void> {
  for (const record of records) {
    await output.write(output.isJson ? `${JSON.stringify(record)}\n` : lineOf(record));
  }
}

function lineOf({ seq, at, kind, by, data }: Fields): string {
  const who = isRecord(by) ? `${String(by['type'])} ${String(by['id'])}` : '';
  const words = [
    String(seq).padStart(8),
    textOf(at) ?? '',
    textOf(kind) ?? 'damaged',
    who,
    JSON.stringify(data ?? null),
  ];
  return `${printable(words.join('  '))}\n`;
}
