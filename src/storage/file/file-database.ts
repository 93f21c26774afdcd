/**
 * The file backend's one writer, on the storage thread: it owns the directory, the tables, the
 * locks and the log. Clients (actor threads, through `FileSession`) read the journal from the files
 * themselves.
 *
 * Open = newest snapshot + the logs after it. A torn tail of the newest log is cut off and
 * reported; any other damage is refused. The envelope format stays what the store says until
 * `raiseWriteFormat`: the first start of a newer binary must not lock the older one out.
 */
import type { Clock } from '../../runtime/clock.js';
import type { Log } from '../../runtime/log.js';
import type { Random } from '../../runtime/random.js';
import { FORMAT_NEWEST, FORMAT_OLDEST } from '../envelope.js';
import { StoreError } from '../store-error.js';
import type { Position, StoredRecord } from '../store.js';
import { CommitLog, readClosedLog } from './commit-log.js';
import type { FileSystem } from './file-system.js';
import { GroupCommit, type CommitState, type PendingWrite } from './group-commit.js';
import { HeadsWriter, makeSharedHeads } from './heads.js';
import { JournalTail } from './journal-tail.js';
import { findDataFiles, logPath, snapshotPath, type DataFiles } from './layout.js';
import { encodeLine, type CommitLine, type TableOperation } from './line-format.js';
import { LockTable } from './lock-table.js';
import type { Behind, CaughtUp, JournalFiles } from './protocol.js';
import { loadSnapshot } from './snapshot-load.js';
import { StoreClock } from './store-clock.js';
import { Tables } from './tables.js';
import { Units } from './units.js';

export interface FileDatabaseOptions {
  readonly dataDir: string;
  readonly fileSystem: FileSystem;
  readonly clock: Clock;
  readonly random: Random;
  readonly log: Log;
}

const EPOCH_BYTES = 8;

export class FileDatabase {
  readonly sharedHeads: SharedArrayBuffer;
  readonly units: Units;
  readonly tables = new Tables();
  private readonly state: CommitState;
  private readonly heads: HeadsWriter;
  private readonly tail: JournalTail;
  private readonly storeClock: StoreClock;
  private group: GroupCommit;
  /** Generation of the newest snapshot, and of the closed logs after it. */
  private snapshot: number | undefined;
  private closedLogs: number[];
  private historyChanged = false;
  private newestPin = 0;
  private readonly pins = new Set<number>();
  private closed = false;

  private constructor(private readonly options: FileDatabaseOptions) {
    this.sharedHeads = makeSharedHeads();
    this.heads = new HeadsWriter(this.sharedHeads);
    this.tail = new JournalTail((stream) => this.heads.get(stream).id);
    this.storeClock = new StoreClock(options.clock, this.heads);
    const locks = new LockTable();
    const { tables, heads, tail, storeClock } = this;
    this.state = { tables, heads, tail, locks, storeClock, newestId: 0 };
    this.units = new Units(locks, options.clock, () => this.group);
    const files = this.findFiles();
    this.snapshot = files.snapshot;
    this.closedLogs = files.logs.slice(0, -1);
    const log = this.load(files);
    this.group = new GroupCommit(this.state, log, options.clock, options.random, options.log,
      () => undefined);
    this.checkFormat();
    heads.setEpoch(tables.epoch);
  }

  /** Throws `damaged`, `incompatible`, or what a system call threw. */
  static open(options: FileDatabaseOptions): FileDatabase {
    return new FileDatabase(options);
  }

  get nowMs(): number {
    return this.storeClock.nowMs();
  }

  write(write: PendingWrite): void {
    if (this.closed) {
      return write.onFailed(new StoreError('store_unavailable', 'The store is closed.'));
    }
    this.group.add(write);
  }

  /** Commits nothing, to prove that the log can be written: a full disk takes a sync of nothing. */
  probe(onDone: () => void, onFailed: (error: StoreError) => void): void {
    this.writeStoreLine((draft) => ['store', draft.epoch, draft.writeFormat], onDone, onFailed);
  }

  /** What the tail in memory has after the position. Throws `history_changed`. */
  catchUp(position: Position): CaughtUp | Behind {
    this.checkHistory(position);
    const streams = Object.keys(position.cursors);
    const records: StoredRecord[] = [];
    for (const stream of streams) {
      const after = this.tail.after(stream, position.cursors[stream]?.id ?? 0);
      if (after === undefined) return { behind: true };
      records.push(...after);
    }
    return {
      behind: false,
      records,
      position: this.positionOf(streams),
      storeTimeMs: this.nowMs,
      slots: this.slotsOf(streams),
    };
  }

  /** The files of the journal as it is now; they stay until `unpin`. */
  readJournal(streams: readonly string[]): JournalFiles {
    this.newestPin += 1;
    this.pins.add(this.newestPin);
    const { dataDir } = this.options;
    const { log } = this.group;
    const closed = this.closedLogs.map((generation) => {
      const path = logPath(dataDir, generation);
      return { path, generation, endOffset: Infinity };
    });
    const open = { path: log.path, generation: log.generation, endOffset: log.endOffset };
    return {
      pin: this.newestPin,
      snapshot: this.snapshot === undefined
        ? undefined
        : { path: snapshotPath(dataDir, this.snapshot), generation: this.snapshot },
      logs: [...closed, open],
      position: this.positionOf(streams),
      slots: this.slotsOf(streams),
    };
  }

  unpin(pin: number): void {
    this.pins.delete(pin);
  }

  /** Calls `onDone` with the epoch in force afterwards. */
  replaceEpoch(
    seenEpoch: string, onDone: (epoch: string) => void, onFailed: (error: StoreError) => void,
  ): void {
    const fresh = Buffer.from(this.options.random.bytes(EPOCH_BYTES)).toString('hex');
    this.writeStoreLine(
      (draft) => {
        const replace = draft.epoch === seenEpoch && this.historyChanged;
        return ['store', replace ? fresh : draft.epoch, draft.writeFormat];
      },
      () => {
        const { epoch } = this.tables;
        if (epoch === fresh) this.historyChanged = false;
        this.heads.setEpoch(epoch);
        onDone(epoch);
      },
      onFailed);
  }

  /** New records are written in this binary's newest format from here on. */
  raiseWriteFormat(onDone: () => void, onFailed: (error: StoreError) => void): void {
    this.writeStoreLine((draft) => ['store', draft.epoch, FORMAT_NEWEST], onDone, onFailed);
  }

  /** Idempotent. What waits to be written fails with `store_unavailable`. */
  close(): void {
    if (this.closed) return;
    this.closed = true;
    this.group.break(new StoreError('store_unavailable', 'The store is closed.'));
    this.group.log.close();
  }

  private writeStoreLine(
    line: (draft: Tables) => TableOperation, onDone: () => void,
    onFailed: (error: StoreError) => void,
  ): void {
    this.write({
      rows: [],
      lock: undefined,
      evaluate: (draft) => {
        const operation = line(draft);
        draft.apply(operation);
        return { appends: [], operations: [operation], onDurable: onDone };
      },
      onFailed,
    });
  }

  private findFiles(): DataFiles {
    const { fileSystem, dataDir, log } = this.options;
    fileSystem.makeDirectory(dataDir);
    const files = findDataFiles(fileSystem, dataDir);
    for (const path of files.leftOver) {
      log.info({ file: path }, 'Removing a file that a crash left over.');
      fileSystem.unlink(path);
    }
    return files;
  }

  /** Brings the tables and heads to where the files end; returns the log to go on with. */
  private load(files: DataFiles): CommitLog {
    const { fileSystem, dataDir, log: events } = this.options;
    if (files.snapshot !== undefined) this.loadSnapshot(files.snapshot);
    const newest = files.logs.at(-1);
    if (newest === undefined) return this.createFirstLog();
    const onCommit = (commit: CommitLine): void => this.applyLoaded(commit);
    for (const generation of this.closedLogs) {
      readClosedLog(fileSystem, dataDir, generation, onCommit);
    }
    const { log, torn } = CommitLog.open(fileSystem, dataDir, newest, onCommit);
    if (torn !== undefined) {
      events.warn({ ...torn }, 'Cut off the torn end of the commit log: a crash left a write that '
        + 'was never answered.');
    }
    return log;
  }

  private loadSnapshot(generation: number): void {
    const { fileSystem, dataDir } = this.options;
    const trailer = loadSnapshot(fileSystem, dataDir, generation,
      (operation) => this.tables.apply(operation));
    for (const [stream, [id, batch]] of Object.entries(trailer.heads)) {
      this.heads.set(stream, { id, batch });
    }
    this.state.newestId = trailer.newestId;
    this.storeClock.saidBefore(trailer.newestTimeMs);
  }

  private createFirstLog(): CommitLog {
    const { fileSystem, dataDir, random } = this.options;
    const epoch = Buffer.from(random.bytes(EPOCH_BYTES)).toString('hex');
    const store: TableOperation = ['store', epoch, FORMAT_NEWEST];
    this.tables.apply(store);
    return CommitLog.create(fileSystem, dataDir, 1, encodeLine([this.nowMs, '', store]));
  }

  private applyLoaded(commit: CommitLine): void {
    const [timeMs, batch, ...operations] = commit;
    this.storeClock.saidBefore(timeMs);
    for (const operation of operations) {
      if (operation[0] !== 'j') {
        this.tables.apply(operation);
        continue;
      }
      const [, stream, id] = operation;
      this.heads.set(stream, { id, batch });
      this.state.newestId = id;
    }
  }

  private checkFormat(): void {
    const { writeFormat } = this.tables;
    if (writeFormat >= FORMAT_OLDEST && writeFormat <= FORMAT_NEWEST) return;
    throw new StoreError(
      'incompatible',
      `The store is written in envelope format ${writeFormat}; this binary writes `
        + `${FORMAT_OLDEST} to ${FORMAT_NEWEST}. Use the binary that wrote it.`,
    );
  }

  private checkHistory(position: Position): void {
    if (position.epoch !== this.tables.epoch) {
      throw new StoreError('history_changed', 'The position is of another epoch.');
    }
    for (const [stream, cursor] of Object.entries(position.cursors)) {
      const head = this.heads.get(stream);
      if (cursor.id < head.id || (cursor.id === head.id && cursor.batch === head.batch)) continue;
      this.historyChanged = true;
      throw new StoreError('history_changed', `Stream ${stream} has lost records.`);
    }
  }

  private positionOf(streams: readonly string[]): Position {
    const cursors = Object.fromEntries(streams.map((stream) => [stream, this.heads.get(stream)]));
    return { epoch: this.tables.epoch, serverStart: '', cursors };
  }

  private slotsOf(streams: readonly string[]): Record<string, number> {
    const slots: Record<string, number> = {};
    for (const stream of streams) {
      const slot = this.heads.slot(stream);
      if (slot !== undefined) slots[stream] = slot;
    }
    return slots;
  }
}
