/**
 * Writes a snapshot: everything that the logs before a generation say, in one file, so that an open
 * or a replay need not read them.
 *
 * It is built beside the commits, in steps of about a millisecond. Values, documents, counters and
 * sightings are taken from memory; the journal, which is not in memory, is merged from the previous
 * snapshot and the closed logs. What is taken from memory may be newer than the generation: the
 * logs from there on are applied over it, and say what is rather than what to add.
 *
 * A crash at any moment leaves the previous snapshot and all logs: the file gets its name when it
 * is on the disk, and only then are older files removed.
 */
import type { Clock } from '../../runtime/clock.js';
import type { ChainTail } from '../evidence-store.js';
import { StoreError } from '../store-error.js';
import { chainOf } from './chain-segments.js';
import { SyncFailure, syncOr } from './commit-log.js';
import { type FileSystem, writeAll } from './file-system.js';
import type { HeadsWriter } from './heads.js';
import { type JournalSource, readLiveJournal } from './journal-reader.js';
import { snapshotPath, unfinished } from './layout.js';
import {
  encodeLine,
  type FileHeader,
  LAYOUT_VERSION,
  type SnapshotTrailer,
  type TableOperation,
} from './line-format.js';
import type { Tables } from './tables.js';

/** What a snapshot is made of, and where it goes. */
export interface SnapshotTask {
  readonly dataDir: string;
  readonly fileSystem: FileSystem;
  readonly clock: Clock;
  readonly generation: number;
  readonly source: JournalSource;
  readonly tables: Tables;
  readonly heads: HeadsWriter;
  readonly chain: () => ChainTail;
  readonly newestId: () => number;
  readonly nowMs: () => number;
  /** True when the store was closed meanwhile: the snapshot is given up. */
  readonly isCancelled: () => boolean;
}

/** Rows of the tables on one line, and in one step. */
const ROWS_PER_LINE = 200;
/** What is synced on the way, so that the last sync has little to do and holds up no commit. */
const SYNC_EVERY_BYTES = 8 * 1024 * 1024;

/**
 * Resolves with the size in bytes once the snapshot is on the disk under its name. Rejects with
 * `SyncFailure`, with what a system call threw, or with `damaged`; the unfinished file is removed.
 */
export async function writeSnapshot(task: SnapshotTask): Promise<number> {
  const path = snapshotPath(task.dataDir, task.generation);
  const file = new SnapshotFile(task, unfinished(path));
  try {
    const header: FileHeader = {
      halos: 'snapshot',
      version: LAYOUT_VERSION,
      generation: task.generation,
    };
    file.add(header);
    await writeTables(task, file);
    for (const _ of readLiveJournal(task.fileSystem, task.source, undefined, (record) => {
      const { stream, id, batch, key, body } = record;
      file.add([['j', stream, id, key, body, batch]]);
    })) {
      await file.step();
    }
    file.add(trailerOf(task));
    return await file.finish(path);
  } catch (error) {
    file.abandon();
    throw error;
  }
}

async function writeTables(task: SnapshotTask, file: SnapshotFile): Promise<void> {
  let rows: TableOperation[] = [];
  for (const operation of task.tables.operations(task.nowMs())) {
    rows.push(operation);
    if (rows.length < ROWS_PER_LINE) continue;
    file.add(rows);
    rows = [];
    await file.step();
  }
  if (rows.length > 0) file.add(rows);
}

function trailerOf(task: SnapshotTask): SnapshotTrailer {
  const heads = [...task.heads.all()].map(
    ([stream, { id, batch }]) => [stream, [id, batch] as const] as const,
  );
  const chain = chainOf(task.chain());
  return {
    end: true,
    newestId: task.newestId(),
    newestTimeMs: task.nowMs(),
    heads: Object.fromEntries(heads),
    ...(chain === undefined ? {} : { chain }),
  };
}

class SnapshotFile {
  private readonly descriptor: number;
  private lines = '';
  private writtenBytes = 0;
  private syncedBytes = 0;
  private closed = false;

  constructor(
    private readonly task: SnapshotTask,
    private readonly path: string,
  ) {
    this.descriptor = task.fileSystem.create(path);
  }

  add(value: unknown): void {
    this.lines += encodeLine(value);
  }

  /** Writes what was added, and lets commits go first. */
  async step(): Promise<void> {
    this.write();
    if (this.writtenBytes - this.syncedBytes >= SYNC_EVERY_BYTES) await this.sync();
    await new Promise<void>((resolve) => this.task.clock.afterTurn(resolve));
    this.checkCancelled();
  }

  async finish(path: string): Promise<number> {
    const { fileSystem, dataDir } = this.task;
    this.write();
    await this.sync();
    this.checkCancelled();
    this.close();
    fileSystem.rename(this.path, path);
    syncOr(path, () => fileSystem.syncDirectory(dataDir));
    return this.writtenBytes;
  }

  abandon(): void {
    this.close();
    try {
      this.task.fileSystem.unlink(this.path);
    } catch {
      // It may have its name already, or the disk is gone; the next open removes what is left.
    }
  }

  private write(): void {
    const bytes = Buffer.from(this.lines);
    this.lines = '';
    writeAll(this.task.fileSystem, this.descriptor, bytes, this.writtenBytes);
    this.writtenBytes += bytes.length;
  }

  private async sync(): Promise<void> {
    const upTo = this.writtenBytes;
    try {
      await this.task.fileSystem.syncLater(this.descriptor);
    } catch (cause) {
      throw new SyncFailure(this.path, cause);
    }
    this.syncedBytes = upTo;
  }

  private checkCancelled(): void {
    if (this.task.isCancelled()) throw new StoreError('store_unavailable', 'The store is closed.');
  }

  private close(): void {
    if (this.closed) return;
    this.closed = true;
    this.task.fileSystem.close(this.descriptor);
  }
}
