/**
 * The storage seam as a model: the data of one store in memory, deterministic, with every
 * operation one indivisible step. It is what the other backends are compared with, and what the
 * simulation runs on; `ModelStore` is a replica's or a thread's handle on it.
 */
import type { Clock } from '../../runtime/clock.js';
import type { Random } from '../../runtime/random.js';
import { AckTable } from '../ack-table.js';
import { FORMAT_NEWEST, type Format } from '../envelope.js';
import { LeaseTable } from '../lease-table.js';
import {
  type Append,
  CATCH_UP_PAGE_MAX,
  type CatchUp,
  type Changes,
  COMMIT_ATTEMPTS_MAX,
  type Committed,
  type Cursor,
  documentName,
  type KvEntry,
  type Locked,
  type Position,
  type StoredDocument,
  type StoredRecord,
  type UnitOfWork,
} from '../store.js';
import { StoreError } from '../store-error.js';
import { ModelEvidence } from './model-evidence.js';
import { ModelTables } from './model-tables.js';

interface Stream {
  /** Live records in id order. */
  readonly records: StoredRecord[];
  /** The batch of every id that this history ever had, replaced records included. */
  readonly marks: Map<number, string>;
}

/** What `remember` returns: the data as it was, for `restore`. */
export interface ModelBackup {
  readonly epoch: string;
  readonly writeFormat: Format;
  readonly newestId: number;
  readonly streams: ReadonlyMap<string, Stream>;
  readonly tables: ModelTables;
  readonly evidence: ModelEvidence;
}

/** One store's data; deterministic on an injected clock and seeded randomness. */
export class ModelDatabase {
  /** The envelope format that records must be written in; a test of an upgrade sets it. */
  writeFormat: Format = FORMAT_NEWEST;
  tables = new ModelTables();
  evidence = new ModelEvidence();
  readonly acks = new AckTable();
  readonly leases = new LeaseTable();
  private epoch: string;
  private serverStart = 1;
  private historyChanged = false;
  private newestId = 0;
  private streams = new Map<string, Stream>();

  constructor(
    private readonly clock: Clock,
    private readonly random: Random,
  ) {
    this.epoch = this.mark();
  }

  nowMs(): number {
    return this.clock.wallMs();
  }

  /** The server restarts: nothing is lost, but it says that it started later. */
  restart(): void {
    this.serverStart += 1;
  }

  remember(): ModelBackup {
    const { epoch, writeFormat, newestId } = this;
    return {
      epoch,
      writeFormat,
      newestId,
      streams: copyOf(this.streams),
      tables: this.tables.copy(),
      evidence: this.evidence.copy(),
    };
  }

  /** The data goes back to what it was, as a restored backup does: ids may be given out again. */
  restore(backup: ModelBackup): void {
    this.epoch = backup.epoch;
    this.writeFormat = backup.writeFormat;
    this.newestId = backup.newestId;
    this.streams = copyOf(backup.streams);
    this.tables = backup.tables.copy();
    this.evidence = backup.evidence.copy();
    this.restart();
  }

  replay(
    streams: readonly string[],
    onRecords: (records: readonly StoredRecord[]) => void,
  ): Position {
    const cursors = Object.fromEntries(streams.map((stream) => [stream, { id: 0, batch: '' }]));
    let position: Position = { epoch: this.epoch, serverStart: this.startText(), cursors };
    for (let more = true; more; ) {
      const page = this.catchUp(position);
      if (page.records.length > 0) onRecords(page.records);
      ({ position, more } = page);
    }
    return position;
  }

  catchUp(position: Position, limit = CATCH_UP_PAGE_MAX): CatchUp {
    this.checkHistory(position);
    const records: StoredRecord[] = [];
    const cursors: Record<string, Cursor> = {};
    let more = false;
    for (const [stream, cursor] of Object.entries(position.cursors)) {
      const after = (this.streams.get(stream)?.records ?? []).filter(({ id }) => id > cursor.id);
      const page = after.slice(0, limit - records.length);
      const last = page.at(-1);
      more ||= page.length < after.length;
      cursors[stream] = last === undefined ? cursor : { id: last.id, batch: last.batch };
      records.push(...page);
    }
    const reached = { epoch: this.epoch, serverStart: this.startText(), cursors };
    return { position: reached, records, storeTimeMs: this.nowMs(), more };
  }

  commit(unit: UnitOfWork, decide: (locked: Locked) => Changes): Committed {
    for (let attempt = 1; attempt <= COMMIT_ATTEMPTS_MAX; attempt += 1) {
      const locked = this.lock(unit);
      this.requireTerm(unit);
      const changes = decide(locked);
      for (const { stream } of changes.appends ?? []) {
        if (!unit.streams.includes(stream)) throw new RangeError(`Stream ${stream} is not locked.`);
      }
      const committed = this.write(locked.position, changes);
      if (committed !== undefined) return committed;
    }
    throw new StoreError('write_refused', 'A key to be added stays taken.');
  }

  replaceEpoch(seenEpoch: string): string {
    if (this.epoch === seenEpoch && this.historyChanged) {
      this.epoch = this.mark();
      this.historyChanged = false;
    }
    return this.epoch;
  }

  private requireTerm({ fence }: UnitOfWork): void {
    if (fence === undefined || this.leases.holds(fence, this.nowMs())) return;
    throw new StoreError('fenced', `The term of ${fence.lease} is over.`);
  }

  private lock(unit: UnitOfWork): Locked {
    const { records, position, storeTimeMs } = this.catchUp(unit.position, Infinity);
    const kv = new Map<string, KvEntry>();
    for (const key of unit.kv ?? []) {
      const entry = this.tables.value(key, storeTimeMs);
      if (entry !== undefined) kv.set(key, entry);
    }
    const documents = new Map<string, StoredDocument>();
    for (const key of unit.documents ?? []) {
      const document = this.tables.document(key, storeTimeMs);
      if (document !== undefined) documents.set(documentName(key), document);
    }
    return { records, position, kv, documents, storeTimeMs, writeFormat: this.writeFormat };
  }

  /** All of the changes, or nothing and undefined when an `add` met a live row. */
  private write(before: Position, changes: Changes): Committed | undefined {
    const nowMs = this.nowMs();
    const draft = this.tables.copy();
    for (const change of changes.kv ?? []) {
      if (!draft.changeValue(change, nowMs)) return undefined;
    }
    for (const change of changes.documents ?? []) draft.changeDocument(change, nowMs);
    for (const change of changes.counters ?? []) draft.count(change, nowMs);
    this.tables = draft;
    this.evidence.enqueue(changes.evidence ?? []);
    const records = this.append(changes.appends ?? []);
    const cursors: Record<string, Cursor> = { ...before.cursors };
    for (const { stream, id, batch } of records) cursors[stream] = { id, batch };
    return { records, position: { ...before, cursors }, storeTimeMs: nowMs };
  }

  private append(appends: readonly Append[]): StoredRecord[] {
    const batch = this.mark();
    const written: StoredRecord[] = [];
    for (const { stream: name, key, body } of appends) {
      this.newestId += 1;
      const record = { stream: name, id: this.newestId, batch, key, body };
      const stream = this.streams.get(name) ?? { records: [], marks: new Map<number, string>() };
      this.streams.set(name, stream);
      stream.marks.set(record.id, batch);
      for (const list of [stream.records, written]) {
        const replaced =
          key === null ? -1 : list.findIndex((old) => old.stream === name && old.key === key);
        if (replaced >= 0) list.splice(replaced, 1);
        list.push(record);
      }
    }
    return written;
  }

  /** Throws `history_changed` unless every record at a cursor was of this very history. */
  private checkHistory(position: Position): void {
    if (position.epoch !== this.epoch) {
      throw new StoreError('history_changed', 'The position is of another epoch.');
    }
    for (const [stream, { id, batch }] of Object.entries(position.cursors)) {
      if (id === 0 || this.streams.get(stream)?.marks.get(id) === batch) continue;
      this.historyChanged = true;
      throw new StoreError('history_changed', `Stream ${stream} has lost records.`);
    }
  }

  private startText(): string {
    return String(this.serverStart);
  }

  private mark(): string {
    return Buffer.from(this.random.bytes(8)).toString('hex');
  }
}

function copyOf(streams: ReadonlyMap<string, Stream>): Map<string, Stream> {
  return new Map(
    [...streams].map(([name, stream]) => [
      name,
      { records: [...stream.records], marks: new Map(stream.marks) },
    ]),
  );
}
