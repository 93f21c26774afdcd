/**
 * What lies in a data directory:
 *
 * - `log-<generation>.jsonl`: the commits of one generation, a line each. The highest is written.
 * - `snapshot-<generation>.jsonl`: everything of all logs before that generation. The state is the
 *   newest snapshot and the logs from its generation on; what is older is left over and removed.
 * - `*.tmp`: a log or a snapshot that is not finished; removed on open.
 * - `lock-<n>.sock`: who uses the directory (`directory-lock.ts`).
 *
 * - `chain/<seq>.jsonl`: segments of the evidence chain (`chain-files.ts`); a log is removed only
 *   when they hold, on the disk, what it says of the chain.
 *
 * Other files are not ours and stay as they are.
 */
import { join } from 'node:path';
import type { FileSystem } from './file-system.js';
import { damaged } from './line-format.js';

/** Zero-padded so that a listing sorts; more generations than fit in ten digits never happen. */
const GENERATION_DIGITS = 10;
const LOG_NAME = /^log-(\d{10})\.jsonl$/;
const SNAPSHOT_NAME = /^snapshot-(\d{10})\.jsonl$/;
const UNFINISHED_NAME = /^(log|snapshot)-\d{10}\.jsonl\.tmp$/;

/** What was found in a directory, sorted into what counts and what does not. */
export interface DataFiles {
  /** Generation of the newest snapshot; undefined when there is none. */
  readonly snapshot: number | undefined;
  /** Generations of the logs that follow it, ascending without a gap. Empty: a new store. */
  readonly logs: readonly number[];
  /** Paths of what is no longer, or not yet, part of the store. */
  readonly leftOver: readonly string[];
}

/** Where the commits of a generation are. */
export function logPath(dataDir: string, generation: number): string {
  return join(dataDir, `log-${String(generation).padStart(GENERATION_DIGITS, '0')}.jsonl`);
}

/** Where everything before a generation is. */
export function snapshotPath(dataDir: string, generation: number): string {
  return join(dataDir, `snapshot-${String(generation).padStart(GENERATION_DIGITS, '0')}.jsonl`);
}

/** Under which name a file is written until it is on the disk. */
export function unfinished(path: string): string {
  return `${path}.tmp`;
}

/** Throws `damaged` when a log that the state needs is missing. */
export function findDataFiles(fileSystem: FileSystem, dataDir: string): DataFiles {
  const names = fileSystem.list(dataDir);
  const generations = (pattern: RegExp): number[] =>
    names
      .map((name) => pattern.exec(name)?.[1])
      .filter((digits) => digits !== undefined)
      .map(Number)
      .sort((one, other) => one - other);
  const snapshots = generations(SNAPSHOT_NAME);
  const snapshot = snapshots.at(-1);
  const allLogs = generations(LOG_NAME);
  const logs = allLogs.filter((generation) => generation >= (snapshot ?? 0));
  checkNoGap(dataDir, snapshot, logs);
  const leftOver = [
    ...names.filter((name) => UNFINISHED_NAME.test(name)).map((name) => join(dataDir, name)),
    ...allLogs.filter((log) => !logs.includes(log)).map((log) => logPath(dataDir, log)),
    ...snapshots.filter((old) => old !== snapshot).map((old) => snapshotPath(dataDir, old)),
  ];
  return { snapshot, logs, leftOver };
}

function checkNoGap(dataDir: string, snapshot: number | undefined, logs: readonly number[]): void {
  const first = snapshot ?? 1;
  const expected = logs.map((_, i) => first + i);
  const missing =
    snapshot !== undefined && logs.length === 0
      ? first
      : expected.find((generation, i) => logs[i] !== generation);
  if (missing !== undefined) throw damaged(logPath(dataDir, missing), 1, 0, 'the file is missing');
}
