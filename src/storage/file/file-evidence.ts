/**
 * Evidence on files, as an actor thread sees it: what is chained it reads from the segments itself;
 * nothing ever waits, since a commit chains what it is evidence of (DESIGN §4, direct mode).
 */
import type { Clock } from '../../runtime/clock.js';
import type {
  ChainedRecord,
  ChainStatement,
  DrainResult,
  EvidenceStore,
  FoundEvidence,
  StoredHead,
} from '../evidence-store.js';
import { listSegments, Segment } from './chain-files.js';
import type { FileSystem } from './file-system.js';
import type { StorageCalls } from './storage-calls.js';

/** What it reads with. */
export interface FileEvidenceOptions {
  readonly calls: StorageCalls;
  readonly fileSystem: FileSystem;
  readonly clock: Clock;
  readonly dataDir: string;
}

/** Segments that are kept in memory, of 16 MiB at most each: the newest, and one that is paged. */
const SEGMENTS_KEPT = 2;
/** How far a record may stand from where its ref's time says, on a clock that was put right. */
const REF_TIME_SLACK_MS = 3_600_000;
/** `ev_`, then 12 hexadecimal digits of a UUID v7's time in two groups. */
const REF_TIME = /^ev_([0-9a-f]{8})-([0-9a-f]{4})/;

/** See `EvidenceStore`. Memory is bounded by the segments that are kept. */
export class FileEvidence implements EvidenceStore {
  readonly mode = 'direct';
  private kept: Segment[] = [];
  /** When the first record of a segment was given its ref, by the segment's first number. */
  private readonly firstTimes = new Map<number, number>();

  constructor(private readonly options: FileEvidenceOptions) {}

  async drain(): Promise<DrainResult> {
    return { kind: 'drained', events: 0, head: await this.head() };
  }

  append(statement: ChainStatement): Promise<readonly ChainedRecord[]> {
    return this.options.calls.call('state', { statement });
  }

  pending(): Promise<number> {
    return Promise.resolve(0);
  }

  head(): Promise<StoredHead> {
    return this.options.calls.call('chainHead', {});
  }

  async page(afterSeq: number, limit: number): Promise<ChainedRecord[]> {
    const head = await this.head();
    const segments = this.segments();
    const oldest = segments[0] ?? 0;
    const from = Math.max(afterSeq + 1, oldest);
    const to = Math.min(head.seq, from + limit - 1);
    return this.range(segments, from, to);
  }

  async pageBack(beforeSeq: number, limit: number): Promise<ChainedRecord[]> {
    const head = await this.head();
    const segments = this.segments();
    const to = Math.min(head.seq, beforeSeq - 1);
    const from = Math.max(segments[0] ?? 0, to - limit + 1);
    return this.range(segments, from, to).reverse();
  }

  /**
   * Looks first where the ref's time says, then everywhere, a segment a turn: a ref that leads
   * nowhere costs a reading of the whole chain.
   */
  async find(ref: string): Promise<FoundEvidence | undefined> {
    const head = await this.head();
    const segments = this.segments();
    const likely = this.around(segments, timeOf(ref));
    for (const firstSeq of [...likely, ...segments.filter((one) => !likely.includes(one))]) {
      const record = this.findIn(firstSeq, ref, head.seq);
      if (record !== undefined) return { pending: false, record };
      await new Promise<void>((resolve) => this.options.clock.afterTurn(resolve));
      this.options.calls.requireOpen();
    }
    return undefined;
  }

  private findIn(firstSeq: number, ref: string, headSeq: number): ChainedRecord | undefined {
    const segment = this.segment(firstSeq, headSeq);
    for (const seq of segment.containing(`"ref":"${ref}"`)) {
      const record = recordOf(segment.line(seq));
      // A caller's data may name the ref of another.
      if (record?.ref === ref && seq <= headSeq) return record;
    }
    return undefined;
  }

  /** Segments whose records may have been given their refs about then, newest first. */
  private around(segments: readonly number[], atMs: number | undefined): number[] {
    const newest = segments.at(-1);
    if (atMs === undefined || newest === undefined) return [];
    const found = segments.filter((firstSeq, index) => {
      const next = segments[index + 1];
      const begins = this.firstTime(firstSeq) - REF_TIME_SLACK_MS;
      const ends = next === undefined ? Infinity : this.firstTime(next) + REF_TIME_SLACK_MS;
      return atMs >= begins && atMs <= ends;
    });
    return found.reverse();
  }

  private firstTime(firstSeq: number): number {
    const known = this.firstTimes.get(firstSeq);
    if (known !== undefined) return known;
    const record = recordOf(this.segment(firstSeq, firstSeq).line(firstSeq));
    const time = (record && timeOf(record.ref)) ?? 0;
    if (record !== undefined) this.firstTimes.set(firstSeq, time);
    return time;
  }

  private range(segments: readonly number[], from: number, to: number): ChainedRecord[] {
    const records: ChainedRecord[] = [];
    for (let seq = from; seq <= to; ) {
      const firstSeq = segments.findLast((first) => first <= seq);
      if (firstSeq === undefined) break;
      const segment = this.segment(firstSeq, to);
      const line = recordOf(segment.line(seq));
      if (line === undefined) break;
      records.push(line);
      seq += 1;
    }
    return records;
  }

  private segments(): number[] {
    return listSegments(this.options.fileSystem, this.options.dataDir);
  }

  /** Read as far as `upToSeq`, or as far as it goes. */
  private segment(firstSeq: number, upToSeq: number): Segment {
    const { fileSystem, dataDir } = this.options;
    const known = this.kept.find((segment) => segment.firstSeq === firstSeq);
    const segment = known ?? Segment.read(fileSystem, dataDir, firstSeq);
    if (known !== undefined && known.nextSeq <= upToSeq) known.extend(fileSystem);
    this.kept = [segment, ...this.kept.filter((one) => one !== segment)].slice(0, SEGMENTS_KEPT);
    return segment;
  }
}

function timeOf(ref: string): number | undefined {
  const [, high, low] = REF_TIME.exec(ref) ?? [];
  return high === undefined || low === undefined ? undefined : Number.parseInt(high + low, 16);
}

function recordOf(text: string | undefined): ChainedRecord | undefined {
  if (text === undefined) return undefined;
  const { seq, ref, prev_hash, hash } = JSON.parse(text) as {
    seq: number;
    ref: string;
    prev_hash: string;
    hash: string;
  };
  return { seq, ref, prevHash: prev_hash, hash, text };
}
