/**
 * One generation's log of commits, open for appending.
 *
 * A group of commits is one write and one fdatasync. When the write fails the log goes back to
 * where it was, and later commits may work again (a disk that was full). When a sync fails nobody
 * knows what is on the disk: the kernel may have dropped the pages and say success the next time.
 * From then on nothing is written by this process.
 */
import { StoreError } from '../store-error.js';
import { type FileSystem, writeAll } from './file-system.js';
import { logPath, unfinished } from './layout.js';
import {
  type CommitLine,
  checkHeader,
  damaged,
  encodeLine,
  type FileHeader,
  isIntact,
  isTorn,
  LAYOUT_VERSION,
  lineJson,
} from './line-format.js';
import { LineScanner, type ScannedLine } from './line-scanner.js';

/** Where the log was cut off, and how much, for the report to the operator. */
export interface TornTail {
  readonly file: string;
  readonly line: number;
  readonly offset: number;
  readonly bytes: number;
}

/** What opening the newest log gives: the log to go on with, and what was repaired. */
export interface OpenedLog {
  readonly log: CommitLog;
  /** What a crash left of a last write that was never answered; it was cut off. */
  readonly torn: TornTail | undefined;
}

/** Open for appending until `close`; one process has at most one at a time. */
export class CommitLog {
  private constructor(
    private readonly fileSystem: FileSystem,
    readonly generation: number,
    readonly path: string,
    private readonly descriptor: number,
    private durableBytes: number,
  ) {}

  /**
   * A new log, durable under its name, whose first commits are `lines`. Throws `SyncFailure`, or
   * what the system call threw.
   */
  static create(
    fileSystem: FileSystem,
    dataDir: string,
    generation: number,
    lines: string,
  ): CommitLog {
    const path = logPath(dataDir, generation);
    const header: FileHeader = { halos: 'commit-log', version: LAYOUT_VERSION, generation };
    const bytes = Buffer.from(encodeLine(header) + lines);
    const descriptor = fileSystem.create(unfinished(path));
    try {
      writeAll(fileSystem, descriptor, bytes, 0);
      syncOr(path, () => fileSystem.sync(descriptor));
      fileSystem.rename(unfinished(path), path);
      syncOr(path, () => fileSystem.syncDirectory(dataDir));
    } catch (error) {
      fileSystem.close(descriptor);
      throw error;
    }
    return new CommitLog(fileSystem, generation, path, descriptor, bytes.length);
  }

  /** Reads the newest log of a directory and cuts off a torn tail. */
  static open(
    fileSystem: FileSystem,
    dataDir: string,
    generation: number,
    onCommit: (commit: CommitLine) => void,
  ): OpenedLog {
    const path = logPath(dataDir, generation);
    const descriptor = fileSystem.openToWrite(path);
    try {
      const fileBytes = fileSystem.sizeBytes(descriptor);
      const end = readCommits(fileSystem, descriptor, generation, path, onCommit, fileBytes);
      let torn: TornTail | undefined;
      if (end.offset < fileBytes) {
        torn = { file: path, ...end, bytes: fileBytes - end.offset };
        requireTorn(fileSystem, descriptor, torn);
        fileSystem.truncate(descriptor, end.offset);
      }
      // What is applied from here on must not be lost again: a line can be whole and unsynced.
      fileSystem.sync(descriptor);
      return { log: new CommitLog(fileSystem, generation, path, descriptor, end.offset), torn };
    } catch (error) {
      fileSystem.close(descriptor);
      throw error;
    }
  }

  /** Bytes that are on the disk. */
  get endOffset(): number {
    return this.durableBytes;
  }

  /**
   * Returns when the lines are on the disk. Throws `SyncFailure` when nobody knows whether they
   * are; any other error means that they are not.
   */
  append(lines: string): void {
    const bytes = Buffer.from(lines);
    this.requireName();
    try {
      writeAll(this.fileSystem, this.descriptor, bytes, this.durableBytes);
    } catch (cause) {
      this.takeBack(cause);
      throw new StoreError('store_unavailable', 'The commit log cannot be written.', { cause });
    }
    syncOr(this.path, () => this.fileSystem.sync(this.descriptor));
    this.durableBytes += bytes.length;
  }

  close(): void {
    this.fileSystem.close(this.descriptor);
  }

  /**
   * The system takes writes to a file that has no name any more, and drops them with the process:
   * whoever was answered would find nothing of it after a restart. Two system calls a group.
   */
  private requireName(): void {
    let isNamed: boolean;
    try {
      isNamed = this.fileSystem.isAt(this.descriptor, this.path);
    } catch (cause) {
      throw new StoreError('store_unavailable', 'The commit log cannot be reached.', { cause });
    }
    if (isNamed) return;
    const message = 'The commit log was removed or moved: its data directory must come back.';
    throw new StoreError('store_unavailable', message);
  }

  /** Removes what a failed write left, so that no part of it is found after a crash. */
  private takeBack(writeFailure: unknown): void {
    try {
      this.fileSystem.truncate(this.descriptor, this.durableBytes);
      this.fileSystem.sync(this.descriptor);
    } catch {
      throw new SyncFailure(this.path, writeFailure);
    }
  }
}

/** The content of the file is unknown from here on; nothing may be written any more. */
export class SyncFailure extends Error {
  constructor(path: string, cause: unknown) {
    super(`${path} could not be synced to the disk; nothing more is written until a restart.`, {
      cause,
    });
    this.name = 'SyncFailure';
  }
}

/** Turns the failure of a sync into a `SyncFailure`, which ends all writing. */
export function syncOr(path: string, sync: () => void): void {
  try {
    sync();
  } catch (cause) {
    throw new SyncFailure(path, cause);
  }
}

/** Reads a closed log, which is whole to its last byte. */
export function readClosedLog(
  fileSystem: FileSystem,
  dataDir: string,
  generation: number,
  onCommit: (commit: CommitLine) => void,
): void {
  const path = logPath(dataDir, generation);
  const descriptor = fileSystem.openToRead(path);
  try {
    const fileBytes = fileSystem.sizeBytes(descriptor);
    const end = readCommits(fileSystem, descriptor, generation, path, onCommit, fileBytes);
    if (end.offset < fileBytes) throw brokenLine(path, end);
  } finally {
    fileSystem.close(descriptor);
  }
}

/** Hands over the commits up to the first line that is broken, or the end; says which. */
function readCommits(
  fileSystem: FileSystem,
  descriptor: number,
  generation: number,
  path: string,
  onCommit: (commit: CommitLine) => void,
  fileBytes: number,
): { line: number; offset: number } {
  const scanner = new LineScanner(fileSystem, descriptor, path, fileBytes);
  const onLine = ({ bytes, start, end, number }: ScannedLine): boolean => {
    if (!isIntact(bytes, start, end)) return false;
    const value = lineJson(bytes, start, end);
    if (number === 1) checkHeader(value, 'commit-log', generation, path);
    else onCommit(value as CommitLine);
    return true;
  };
  while (scanner.step(onLine));
  const end = scanner.rest;
  // A log gets its name after its header is on the disk.
  if (end.line === 1) throw brokenLine(path, end);
  return end;
}

function requireTorn(fileSystem: FileSystem, descriptor: number, torn: TornTail): void {
  const bytes = Buffer.alloc(torn.bytes);
  for (let filled = 0; filled < bytes.length; ) {
    const read = fileSystem.read(descriptor, bytes, filled, torn.offset + filled);
    if (read === 0) break;
    filled += read;
  }
  const lineFeed = bytes.indexOf(0x0a);
  const isLastLine = lineFeed < 0 || lineFeed === bytes.length - 1;
  if (!isLastLine || !isTorn(bytes, torn.offset)) throw brokenLine(torn.file, torn);
}

function brokenLine(path: string, at: { line: number; offset: number }): StoreError {
  return damaged(path, at.line, at.offset, 'the checksum does not fit');
}
