/** Opens a data directory: newest snapshot, then the logs after it, each line checked. */
import type { Log } from '../../runtime/log.js';
import type { Random } from '../../runtime/random.js';
import { FORMAT_NEWEST, FORMAT_OLDEST } from '../envelope.js';
import { StoreError } from '../store-error.js';
import { ChainLoad } from './chain-segments.js';
import { CommitLog, readClosedLog } from './commit-log.js';
import type { FileSystem } from './file-system.js';
import type { CommitState } from './group-commit.js';
import { findDataFiles } from './layout.js';
import {
  type CommitLine,
  encodeLine,
  type SnapshotTrailer,
  type TableOperation,
} from './line-format.js';
import { loadSnapshot } from './snapshot-load.js';

/** Which files the loaded state came from, to go on with them. */
export interface LoadedStore {
  /** Generation of the newest snapshot. */
  readonly snapshot: number | undefined;
  /** Its size; 0 when there is none. */
  readonly snapshotBytes: number;
  /** Generations of the logs between it and `log`. */
  readonly closedLogs: number[];
  /** The log to go on with. */
  readonly log: CommitLog;
}

/** What opening a directory needs; `random` makes the epoch of a new store. */
export interface LoadOptions {
  readonly dataDir: string;
  readonly fileSystem: FileSystem;
  readonly random: Random;
  readonly log: Log;
}

const EPOCH_BYTES = 8;

/** The identity of a history: 16 lower-case hex digits. */
export function randomEpoch(random: Random): string {
  return Buffer.from(random.bytes(EPOCH_BYTES)).toString('hex');
}

/** Brings `state` to where the files end. Throws `damaged`, `incompatible`, or a system call's. */
export function loadStore(options: LoadOptions, state: CommitState): LoadedStore {
  const { dataDir, fileSystem, log: events } = options;
  fileSystem.makeDirectory(dataDir);
  const files = findDataFiles(fileSystem, dataDir);
  for (const path of files.leftOver) {
    events.info({ file: path }, 'Removing a file that a crash left over.');
    fileSystem.unlink(path);
  }
  const { snapshot } = files;
  const loaded = snapshot === undefined ? undefined : applySnapshot(options, snapshot, state);
  const chain = new ChainLoad(options, state.chain);
  const closedLogs = files.logs.slice(0, -1);
  const onCommit = (commit: CommitLine): void => applyCommit(state, chain, commit);
  for (const generation of closedLogs) readClosedLog(fileSystem, dataDir, generation, onCommit);
  const newest = files.logs.at(-1);
  const log =
    newest === undefined
      ? createFirstLog(options, state)
      : openNewestLog(options, newest, onCommit);
  chain.finish(loaded?.trailer.chain);
  checkFormat(state.tables.writeFormat);
  state.heads.setEpoch(state.tables.epoch);
  return { snapshot, snapshotBytes: loaded?.bytes ?? 0, closedLogs, log };
}

function applySnapshot(
  options: LoadOptions,
  generation: number,
  state: CommitState,
): { readonly trailer: SnapshotTrailer; readonly bytes: number } {
  const { trailer, bytes } = loadSnapshot(
    options.fileSystem,
    options.dataDir,
    generation,
    (operation) => state.tables.apply(operation),
  );
  for (const [stream, [id, batch]] of Object.entries(trailer.heads)) {
    state.heads.set(stream, { id, batch });
  }
  state.newestId = trailer.newestId;
  state.storeClock.saidBefore(trailer.newestTimeMs);
  return { trailer, bytes };
}

function applyCommit(state: CommitState, chain: ChainLoad, commit: CommitLine): void {
  const [timeMs, batch, ...operations] = commit;
  state.storeClock.saidBefore(timeMs);
  for (const operation of operations) {
    if (operation[0] === 'j') {
      const [, stream, id] = operation;
      state.heads.set(stream, { id, batch });
      state.newestId = id;
    } else if (operation[0] === 'e') {
      chain.accept(operation);
    } else {
      state.tables.apply(operation);
    }
  }
}

function openNewestLog(
  { dataDir, fileSystem, log: events }: LoadOptions,
  generation: number,
  onCommit: (commit: CommitLine) => void,
): CommitLog {
  const { log, torn } = CommitLog.open(fileSystem, dataDir, generation, onCommit);
  if (torn !== undefined) {
    const what = 'Cut off the torn end of the commit log: a write that was never answered.';
    events.warn({ ...torn }, what);
  }
  return log;
}

function createFirstLog(
  { dataDir, fileSystem, random }: LoadOptions,
  state: CommitState,
): CommitLog {
  const store: TableOperation = ['store', randomEpoch(random), FORMAT_NEWEST];
  state.tables.apply(store);
  const lines = encodeLine([state.storeClock.nowMs(), '', store]);
  return CommitLog.create(fileSystem, dataDir, 1, lines);
}

function checkFormat(writeFormat: number): void {
  if (writeFormat >= FORMAT_OLDEST && writeFormat <= FORMAT_NEWEST) return;
  throw new StoreError(
    'incompatible',
    `The store is written in envelope format ${writeFormat}; this binary writes ` +
      `${FORMAT_OLDEST} to ${FORMAT_NEWEST}. Use the binary that wrote it.`,
  );
}
