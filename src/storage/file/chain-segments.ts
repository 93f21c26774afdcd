/**
 * The chain's end on the storage thread. The commit log says what is chained: a record stands in
 * the line of its own commit, and one sync answers both. The segments are a projection of that,
 * written behind it without a sync of their own; they are synced before a log that they repeat is
 * removed, and repaired from the logs that are there when the store opens.
 */
import type { Log } from '../../runtime/log.js';
import type { ChainedRecord, ChainTail, StoredHead } from '../evidence-store.js';
import { StoreError } from '../store-error.js';
import {
  chainDirectory,
  listSegments,
  SEGMENT_BYTES_MAX,
  SEGMENT_RECORDS_MAX,
  Segment,
  segmentPath,
} from './chain-files.js';
import { SyncFailure, syncOr } from './commit-log.js';
import { type FileSystem, writeAll } from './file-system.js';
import { damaged, type EvidenceOperation, isTorn, type SnapshotTrailer } from './line-format.js';

/** Before record 0. */
const EMPTY: ChainTail = { seq: -1, hash: '', record: '', chainId: '' };
/** Records in the log that no segment could take: beyond, nothing more is chained. */
const BEHIND_MAX = 10_000;

interface OpenSegment {
  readonly firstSeq: number;
  readonly descriptor: number;
  bytes: number;
  records: number;
}

/** What the segments are kept with. */
export interface ChainSegmentsOptions {
  readonly fileSystem: FileSystem;
  readonly dataDir: string;
  readonly log: Log;
}

/** Owns the newest segment; used by the storage thread alone. */
export class ChainSegments {
  tail: ChainTail = EMPTY;
  private open: OpenSegment | undefined;
  /** Durable in the log, and in no segment yet. */
  private behind: ChainedRecord[] = [];
  private isUnsynced = false;
  private syncFailure: SyncFailure | undefined;

  constructor(private readonly options: ChainSegmentsOptions) {}

  /**
   * Set for good when a segment could not be synced: another sync may say yes to bytes that the
   * kernel has dropped, and the log that still has them would be removed.
   */
  get failure(): SyncFailure | undefined {
    return this.syncFailure;
  }

  /** Throws `store_unavailable` while the segments cannot take what is chained. */
  requireRoom(): void {
    if (this.behind.length < BEHIND_MAX) return;
    const message = 'The segments of the evidence chain cannot be written.';
    throw new StoreError('store_unavailable', message);
  }

  /** Of records that are on the disk with their commits. Never throws. */
  append(records: readonly ChainedRecord[]): void {
    if (records.length === 0) return;
    this.tail = tailAfter(this.tail, records);
    this.behind.push(...records);
    try {
      this.writeBehind();
    } catch (error) {
      if (error instanceof SyncFailure) this.syncFailure = error;
      const message = 'A segment of the evidence chain cannot be written; the log has the record.';
      this.options.log.error({ error: String(error), waiting: this.behind.length }, message);
    }
  }

  /** Resolves when the segments hold, on the disk, all that was chained before the call. */
  async sync(): Promise<void> {
    this.writeBehind();
    const { open } = this;
    if (open === undefined || !this.isUnsynced) return;
    this.isUnsynced = false;
    const path = segmentPath(this.options.dataDir, open.firstSeq);
    try {
      await this.options.fileSystem.syncLater(open.descriptor);
    } catch (cause) {
      throw new SyncFailure(path, cause);
    }
  }

  close(): void {
    if (this.open !== undefined) this.options.fileSystem.close(this.open.descriptor);
    this.open = undefined;
  }

  /** Goes on with a segment that is there, cut off behind its first `records` lines. */
  goOnWith(segment: Segment, records: number): void {
    const { fileSystem } = this.options;
    const descriptor = fileSystem.openToWrite(segment.path);
    const { offset } = segment.from(segment.firstSeq + records);
    if (fileSystem.sizeBytes(descriptor) > offset) fileSystem.truncate(descriptor, offset);
    this.open = { firstSeq: segment.firstSeq, descriptor, bytes: offset, records };
    this.isUnsynced = true;
  }

  private writeBehind(): void {
    if (this.syncFailure !== undefined) throw this.syncFailure;
    while (this.behind.length > 0) {
      const open = this.segmentWithRoom(this.behind[0]?.seq ?? 0);
      let lines = '';
      let count = 0;
      for (const { text } of this.behind) {
        const isFull =
          open.records + count >= SEGMENT_RECORDS_MAX ||
          (open.records + count > 0 && open.bytes + lines.length >= SEGMENT_BYTES_MAX);
        if (isFull) break;
        lines += `${text}\n`;
        count += 1;
      }
      const bytes = Buffer.from(lines);
      writeAll(this.options.fileSystem, open.descriptor, bytes, open.bytes);
      open.bytes += bytes.length;
      open.records += count;
      this.isUnsynced = true;
      this.behind.splice(0, count);
    }
  }

  private segmentWithRoom(nextSeq: number): OpenSegment {
    const { open } = this;
    if (open !== undefined) {
      const hasRoom = open.records < SEGMENT_RECORDS_MAX && open.bytes < SEGMENT_BYTES_MAX;
      if (hasRoom || open.records === 0) return open;
      this.seal(open);
    }
    const { fileSystem, dataDir } = this.options;
    const path = segmentPath(dataDir, nextSeq);
    const descriptor = fileSystem.create(path);
    syncOr(path, () => fileSystem.syncDirectory(chainDirectory(dataDir)));
    this.open = { firstSeq: nextSeq, descriptor, bytes: 0, records: 0 };
    return this.open;
  }

  /** So that only the newest segment can lack anything after a crash. */
  private seal({ descriptor, firstSeq }: OpenSegment): void {
    const { fileSystem, dataDir } = this.options;
    syncOr(segmentPath(dataDir, firstSeq), () => fileSystem.sync(descriptor));
    fileSystem.close(descriptor);
    this.open = undefined;
  }
}

/** Brings segments and logs together while the store opens. Throws `damaged` where they differ. */
export class ChainLoad {
  private readonly segments: number[];
  private segment: Segment | undefined;
  private nextSeq: number | undefined;
  private lastHash = '';
  private chainId = '';
  private tail: ChainTail = EMPTY;
  private isAppending = false;

  constructor(
    private readonly options: ChainSegmentsOptions,
    private readonly chain: ChainSegments,
  ) {
    const { fileSystem, dataDir } = options;
    fileSystem.makeDirectory(chainDirectory(dataDir));
    this.segments = listSegments(fileSystem, dataDir);
  }

  /** A record of a log, in the order of the logs. */
  accept([, seq, ref, hash, text]: EvidenceOperation): void {
    const { prev_hash: prevHash } = JSON.parse(text) as { prev_hash: string };
    if (this.nextSeq === undefined) this.begin(seq, prevHash);
    else if (seq !== this.nextSeq || prevHash !== this.lastHash) {
      throw this.differs(seq, 'the logs do not go on with it');
    }
    this.nextSeq = seq + 1;
    this.lastHash = hash;
    if (seq === 0) this.chainId = hash;
    this.tail = { seq, hash, record: text, chainId: this.chainId };
    if (!this.isAppending && !this.isInSegments(seq, text)) {
      this.chain.tail = { ...this.tail, seq: seq - 1 };
      this.isAppending = true;
    }
    if (this.isAppending) this.chain.append([{ seq, ref, prevHash, hash, text }]);
  }

  /** After the last log; `expected` is what the snapshot says of the chain. */
  finish(expected: SnapshotTrailer['chain']): void {
    if (this.nextSeq === undefined) this.tail = this.tailOfSegments();
    if (expected !== undefined && this.tail.seq < expected.seq) {
      throw this.differs(this.tail.seq + 1, `the chain reached ${expected.seq} before`);
    }
    const isHead = expected !== undefined && this.tail.seq === expected.seq;
    if (isHead && this.tail.hash !== expected.hash) {
      throw this.differs(this.tail.seq, 'it is not the record that was there before');
    }
    this.chainId = this.chainId || this.firstHash() || expected?.id || '';
    if (this.tail.seq >= 0 && this.chainId === '') {
      throw this.differs(0, 'neither a segment nor a snapshot says how the chain began');
    }
    if (this.chain.failure !== undefined) throw this.chain.failure;
    this.chain.tail = { ...this.tail, chainId: this.chainId };
    if (!this.isAppending && this.tail.seq >= 0) this.goOn(this.tail.seq + 1);
  }

  private begin(seq: number, prevHash: string): void {
    const oldest = this.segments[0];
    if (seq === 0 || (oldest !== undefined && seq <= oldest)) return;
    const before = this.line(seq - 1);
    const found = before === undefined ? undefined : (JSON.parse(before) as { hash: string }).hash;
    if (found !== prevHash)
      throw this.differs(seq - 1, 'it is not the one that the logs go on from');
    this.chainId = this.firstHash();
  }

  /** False when the segments end before it, or are cut there as a crash cuts them. */
  private isInSegments(seq: number, text: string): boolean {
    const oldest = this.segments[0];
    // Moved away by the operator.
    if (oldest !== undefined && seq < oldest) return true;
    if (this.line(seq) === text) return true;
    this.goOn(seq);
    return false;
  }

  /** The next record to be written is `seq`: nothing but what a crash left may stand there. */
  private goOn(seq: number): void {
    const segment = this.segmentOf(seq) ?? this.segmentOf(seq - 1);
    if (segment === undefined) return;
    if (segment.firstSeq !== this.segments.at(-1)) {
      throw this.differs(seq, 'a later segment is there, and this record is another or missing');
    }
    const { bytes, offset } = segment.from(seq);
    if (bytes.length > 0) {
      if (segment.nextSeq > seq && !isTorn(bytes, offset)) {
        throw this.differs(seq, 'it is not what the logs say');
      }
      const { log } = this.options;
      log.warn({ file: segment.path, offset, bytes: bytes.length }, 'Cut off a torn segment.');
    }
    this.chain.goOnWith(segment, seq - segment.firstSeq);
  }

  private tailOfSegments(): ChainTail {
    const newest = this.segments.at(-1);
    if (newest === undefined) return EMPTY;
    const segment = this.segmentOf(newest);
    const seq = (segment?.nextSeq ?? newest) - 1;
    const record = this.line(seq);
    if (record === undefined) return EMPTY;
    try {
      const { hash, seq: found } = JSON.parse(record) as { hash: string; seq: number };
      if (found === seq) return { seq, hash, record, chainId: '' };
    } catch {
      // Told below.
    }
    throw this.differs(seq, 'it is no record of that number');
  }

  private firstHash(): string {
    if (this.segments[0] !== 0) return '';
    const first = this.line(0);
    return first === undefined ? '' : (JSON.parse(first) as { hash: string }).hash;
  }

  private line(seq: number): string | undefined {
    return this.segmentOf(seq)?.line(seq);
  }

  private segmentOf(seq: number): Segment | undefined {
    const firstSeq = this.segments.findLast((first) => first <= seq);
    if (firstSeq === undefined) return undefined;
    if (this.segment?.firstSeq !== firstSeq) {
      const { fileSystem, dataDir } = this.options;
      this.segment = Segment.read(fileSystem, dataDir, firstSeq);
    }
    return this.segment;
  }

  private differs(seq: number, what: string): StoreError {
    const firstSeq = this.segments.findLast((first) => first <= seq) ?? seq;
    const { dataDir } = this.options;
    const isThere = this.segment?.firstSeq === firstSeq && seq >= firstSeq;
    const offset = isThere ? (this.segment?.from(seq).offset ?? 0) : 0;
    return damaged(segmentPath(dataDir, firstSeq), seq - firstSeq + 1, offset, what);
  }
}

/** The tail once these records follow on it. */
export function tailAfter(tail: ChainTail, chained: readonly ChainedRecord[]): ChainTail {
  const last = chained.at(-1);
  if (last === undefined) return tail;
  const chainId = tail.chainId === '' ? (chained[0]?.hash ?? '') : tail.chainId;
  return { seq: last.seq, hash: last.hash, record: last.text, chainId };
}

/** What a snapshot's trailer keeps of the chain. */
export function chainOf({ seq, hash, chainId }: ChainTail): SnapshotTrailer['chain'] {
  return seq < 0 ? undefined : { seq, hash, id: chainId };
}

/** The head, as it leaves the storage thread. */
export function headOf({ seq, hash }: ChainTail): StoredHead {
  return { seq, hash };
}
