/**
 * The storage seam on files, as an actor thread sees it: it talks to the storage thread over one
 * port, reads the journal's files itself, and knows from shared memory when there is nothing new.
 */
import type { Clock } from '../../runtime/clock.js';
import type { LeaseRow } from '../../runtime/lease.js';
import type { EvidenceStore } from '../evidence-store.js';
import {
  CATCH_UP_PAGE_MAX,
  type CatchUp,
  type Changes,
  COMMIT_ATTEMPTS_MAX,
  type Committed,
  type Count,
  type Counted,
  type DocumentKey,
  documentName,
  type GatewayAck,
  type GatewayAckRow,
  type KeyValue,
  type Locked,
  type Position,
  type Store,
  type StoredDocument,
  type StoredRecord,
  type UnitOfWork,
} from '../store.js';
import { StoreError } from '../store-error.js';
import { FileEvidence } from './file-evidence.js';
import { type FileSystem, systemFileSystem } from './file-system.js';
import { HeadsReader } from './heads.js';
import { readLiveJournal } from './journal-reader.js';
import { type FileStoreConnection, type GrantedUnit, moved, writeBody } from './protocol.js';
import { StorageCalls } from './storage-calls.js';
import { storeTime } from './store-clock.js';

/** Records that a replay hands over at a time: some ten milliseconds of applying them. */
const REPLAY_PAGE_RECORDS = 10_000;
/** Records of one pass over the files that wait for later pages of a catch-up: some 50 MB. */
const BACKLOG_RECORDS_MAX = 100_000;
/** How often a unit catches up from the files before it gives up to lock ahead of the tail. */
const BEHIND_ATTEMPTS_MAX = 8;

const NOTHING: readonly StoredRecord[] = [];

/** What was read from the files for a view that is far behind, and not handed over yet. */
interface Backlog {
  readonly from: Position;
  readonly records: readonly StoredRecord[];
  /** Where the view is after the records. */
  readonly to: Position;
  readonly more: boolean;
}

/** One for each actor thread. Its errors are those of `Store`, and `damaged` from a replay. */
export class FileStore implements Store {
  readonly backend = 'file';
  readonly kv: KeyValue;
  readonly evidence: EvidenceStore;
  private readonly calls: StorageCalls;
  private readonly heads: HeadsReader;
  private backlog: Backlog | undefined;

  constructor(
    connection: FileStoreConnection,
    private readonly clock: Clock,
    private readonly fileSystem: FileSystem = systemFileSystem,
  ) {
    const { port, dataDir } = connection;
    this.calls = new StorageCalls(port, clock);
    this.heads = new HeadsReader(connection.heads);
    this.kv = keyValue(this.calls);
    this.evidence = new FileEvidence({ calls: this.calls, fileSystem, clock, dataDir });
  }

  async replay(
    streams: readonly string[],
    onRecords: (records: readonly StoredRecord[]) => void,
  ): Promise<Position> {
    const wanted = new Map(streams.map((stream) => [stream, 0]));
    let page: StoredRecord[] = [];
    const position = await this.readJournal(
      wanted,
      (record) => void page.push(record),
      () => {
        if (page.length >= REPLAY_PAGE_RECORDS) {
          onRecords(page);
          page = [];
        }
        return true;
      },
    );
    if (page.length > 0) onRecords(page);
    return position;
  }

  catchUp(position: Position): CatchUp | Promise<CatchUp> {
    this.calls.requireOpen();
    if (!this.isCurrent(position)) return this.ask(position);
    const storeTimeMs = storeTime(this.heads.clockMs(), this.clock.wallMs());
    return { position, records: NOTHING, storeTimeMs, more: false };
  }

  async commit(unit: UnitOfWork, decide: (locked: Locked) => Changes): Promise<Committed> {
    for (let attempt = 1; attempt <= COMMIT_ATTEMPTS_MAX; attempt += 1) {
      const { granted, records } = await this.lock(unit);
      const { position, storeTimeMs, writeFormat } = granted;
      const kv = new Map(granted.kv);
      const documents = new Map(granted.documents.map((found) => [documentName(found), found]));
      const changes = this.decide(unit, granted, () =>
        decide({ records, position, kv, documents, storeTimeMs, writeFormat }),
      );
      if (changes === undefined) return { records: [], position, storeTimeMs };
      const committed = await this.write(granted, changes);
      if (committed !== undefined) return committed;
    }
    throw new StoreError('write_refused', 'A key to be added stays taken.');
  }

  documents(keys: readonly DocumentKey[]): Promise<StoredDocument[]> {
    return this.calls.call('documents', { keys });
  }

  listDocuments(kind: string, afterId: string, limit: number): Promise<StoredDocument[]> {
    return this.calls.call('listDocuments', { kind, afterId, limit });
  }

  counters(keys: readonly string[]): Promise<Map<string, number>> {
    return this.calls.call('counters', { keys });
  }

  async count(counts: readonly Count[]): Promise<Map<string, Counted>> {
    return counts.length === 0 ? new Map() : this.calls.call('count', { counts });
  }

  async recordSightings(seenAtMs: ReadonlyMap<string, number>): Promise<void> {
    if (seenAtMs.size > 0) await this.calls.call('see', { seenAtMs: [...seenAtMs] });
  }

  sightings(ids: readonly string[]): Promise<Map<string, number>> {
    return this.calls.call('sightings', { ids });
  }

  async recordGatewayAcks(
    replicaStart: string,
    acks: readonly GatewayAck[],
    ttlMs: number,
  ): Promise<void> {
    await this.calls.call('recordAcks', { replicaStart, acks, ttlMs });
  }

  gatewayAcks(): Promise<GatewayAckRow[]> {
    return this.calls.call('gatewayAcks', {});
  }

  leases(): Promise<LeaseRow[]> {
    return this.calls.call('leases', {});
  }

  sweep(limit: number): Promise<number> {
    return this.calls.call('sweep', { limit });
  }

  replaceEpoch(seenEpoch: string): Promise<string> {
    return this.calls.call('replaceEpoch', { seenEpoch });
  }

  /** `dbErrors`: calls that failed; `dbPendingCalls`: those that wait for the storage thread. */
  facts(): Readonly<Record<string, number>> {
    return { dbErrors: this.calls.failed, dbPendingCalls: this.calls.waiting };
  }

  close(): Promise<void> {
    return this.calls.close();
  }

  private isCurrent(position: Position): boolean {
    if (position.epoch !== this.heads.epoch()) return false;
    const { cursors } = position;
    for (const stream in cursors) {
      const cursor = cursors[stream];
      if (cursor !== undefined && !this.heads.isAt(stream, cursor)) return false;
    }
    return true;
  }

  private async ask(position: Position): Promise<CatchUp> {
    const caughtUp = await this.calls.call('catchUp', { position });
    if (caughtUp.behind) return this.readBehind(position);
    this.heads.learn(caughtUp.slots);
    const { records, storeTimeMs } = caughtUp;
    return { position: caughtUp.position, records, storeTimeMs, more: false };
  }

  /** A page for a view whose position is older than what the storage thread has in memory. */
  private async readBehind(position: Position): Promise<CatchUp> {
    let backlog = this.backlog;
    if (backlog === undefined || !isSamePosition(backlog.from, position)) {
      backlog = await this.readBacklog(position);
    }
    const records = backlog.records.slice(0, CATCH_UP_PAGE_MAX);
    const rest = backlog.records.slice(CATCH_UP_PAGE_MAX);
    const isLast = rest.length === 0;
    const reached = isLast ? backlog.to : moved(position, records);
    this.backlog = isLast ? undefined : { ...backlog, from: reached, records: rest };
    const storeTimeMs = storeTime(this.heads.clockMs(), this.clock.wallMs());
    return { position: reached, records, storeTimeMs, more: !isLast || backlog.more };
  }

  private async readBacklog(from: Position): Promise<Backlog> {
    const wanted = new Map(Object.entries(from.cursors).map(([stream, { id }]) => [stream, id]));
    const records: StoredRecord[] = [];
    let more = false;
    const end = await this.readJournal(
      wanted,
      (record) => void records.push(record),
      () => {
        more = records.length >= BACKLOG_RECORDS_MAX;
        return !more;
      },
    );
    if (end.epoch !== from.epoch) {
      throw new StoreError('history_changed', 'The position is of another epoch.');
    }
    return { from, records, to: more ? moved(from, records) : end, more };
  }

  /** Returns the position at the end of the files. `onStep` returning false stops before. */
  private async readJournal(
    wanted: ReadonlyMap<string, number>,
    onRecord: (record: StoredRecord) => void,
    onStep: () => boolean,
  ): Promise<Position> {
    const files = await this.calls.call('readJournal', { streams: [...wanted.keys()] });
    this.heads.learn(files.slots);
    try {
      for (const _ of readLiveJournal(this.fileSystem, files, wanted, onRecord)) {
        if (!onStep()) break;
        await new Promise<void>((resolve) => this.clock.afterTurn(resolve));
        this.calls.requireOpen();
      }
    } finally {
      this.calls.send({ type: 'unpin', pin: files.pin });
    }
    return files.position;
  }

  /** The locks of the unit, with every record after its position, however far behind it is. */
  private async lock(
    unit: UnitOfWork,
  ): Promise<{ granted: GrantedUnit; records: readonly StoredRecord[] }> {
    const { streams, kv = [], documents = [], fence } = unit;
    const fenced = fence === undefined ? {} : { fence };
    const foreign: StoredRecord[] = [];
    let { position } = unit;
    for (let attempt = 1; attempt <= BEHIND_ATTEMPTS_MAX; attempt += 1) {
      const granted = await this.calls.call('lock', {
        streams,
        position,
        kv,
        documents,
        ...fenced,
      });
      if (!granted.behind) {
        this.heads.learn(granted.slots);
        return { granted, records: [...foreign, ...granted.records] };
      }
      for (let more = true; more; ) {
        const page = await this.ask(position);
        foreign.push(...page.records);
        ({ position, more } = page);
      }
    }
    throw new StoreError('store_unavailable', 'Others write faster than this thread catches up.');
  }

  /** What is to be written; undefined when nothing is. The locks are free if it throws or is. */
  private decide(
    unit: UnitOfWork,
    granted: GrantedUnit,
    decide: () => Changes,
  ): Changes | undefined {
    let changes: Changes | undefined;
    try {
      const decided = decide();
      for (const { stream } of decided.appends ?? []) {
        if (!unit.streams.includes(stream)) throw new RangeError(`Stream ${stream} is not locked.`);
      }
      const { appends, kv, documents, counters, evidence } = decided;
      const lists = [appends, kv, documents, counters, evidence];
      if (lists.some((list) => list !== undefined && list.length > 0)) changes = decided;
      return changes;
    } finally {
      if (changes === undefined) this.calls.send({ type: 'abort', unit: granted.unit });
    }
  }

  /** Undefined when the unit has to start over. */
  private async write(granted: GrantedUnit, changes: Changes): Promise<Committed | undefined> {
    const body = writeBody(granted.unit, changes);
    const written = await this.calls.call('write', body);
    if (written.restart) return undefined;
    const { firstId, batch, storeTimeMs } = written;
    const records = body.appends.map((append, i) => ({ ...append, id: firstId + i, batch }));
    return { records, position: moved(granted.position, records), storeTimeMs };
  }
}

function isSamePosition(one: Position, other: Position): boolean {
  const streams = Object.keys(one.cursors);
  return (
    one.epoch === other.epoch &&
    streams.length === Object.keys(other.cursors).length &&
    streams.every((stream) => one.cursors[stream]?.id === other.cursors[stream]?.id)
  );
}

function keyValue(calls: StorageCalls): KeyValue {
  return {
    get: async (keys) => calls.call('values', { keys }),
    put: async (key, value, ttlMs) => {
      await calls.call('keyValue', { statement: { op: 'put', key, value, ttlMs } });
    },
    add: async (key, value, ttlMs) =>
      true === (await calls.call('keyValue', { statement: { op: 'add', key, value, ttlMs } })),
    take: async (key) => {
      const taken = await calls.call('keyValue', { statement: { op: 'take', key } });
      return taken === undefined ? undefined : String(taken);
    },
    delete: async (key) => {
      await calls.call('keyValue', { statement: { op: 'delete', key } });
    },
    tryLock: async (key, owner, ttlMs) =>
      true === (await calls.call('keyValue', { statement: { op: 'tryLock', key, owner, ttlMs } })),
    unlock: async (key, owner) =>
      true === (await calls.call('keyValue', { statement: { op: 'unlock', key, owner } })),
    raise: async (key, to, ttlMs) =>
      Number(await calls.call('keyValue', { statement: { op: 'raise', key, to, ttlMs } })),
  };
}
