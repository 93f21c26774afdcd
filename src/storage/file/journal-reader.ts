/**
 * Reads the live records of a journal from a snapshot and the logs after it: for an actor that
 * replays, and for the next snapshot. A record is live unless a later one has its key. Snapshots
 * are in id order and older than the logs, so what comes out is in id order too.
 */
import type { StoredRecord } from '../store.js';
import type { FileSystem } from './file-system.js';
import {
  type CommitLine,
  checkHeader,
  damaged,
  type JournalOperation,
  LINE_PREFIX_BYTES,
  lineJson,
} from './line-format.js';
import { LineScanner, requireIntact, type ScannedLine } from './line-scanner.js';
import type { JournalFiles } from './protocol.js';
import { isJournalLine } from './snapshot-load.js';

export type JournalSource = Pick<JournalFiles, 'snapshot' | 'logs'>;

/** Ids after which records are wanted, by stream. */
export type WantedStreams = ReadonlyMap<string, number>;

/** Id of the last record of each key in the logs, by stream. */
type NewestIds = Map<string, Map<string, number>>;

/**
 * Yields after each step of about a millisecond, so that the caller can do something else. With
 * `wanted` undefined, every record of every stream. Throws `damaged`.
 */
export function* readLiveJournal(
  fileSystem: FileSystem,
  source: JournalSource,
  wanted: WantedStreams | undefined,
  onRecord: (record: StoredRecord) => void,
): Generator<void> {
  const newest: NewestIds = new Map();
  for (const log of source.logs) {
    yield* readLog(fileSystem, log, true, (_batch, [, stream, id, key]) => {
      if (key === null || (wanted !== undefined && !wanted.has(stream))) return;
      const ids = newest.get(stream) ?? new Map<string, number>();
      newest.set(stream, ids.set(key, id));
    });
  }
  const isReplaced = (stream: string, id: number, key: string | null): boolean => {
    const newestId = key === null ? undefined : newest.get(stream)?.get(key);
    return newestId !== undefined && newestId !== id;
  };
  const onOperation = (batch: string, operation: JournalOperation): void => {
    const [, stream, id, key, body] = operation;
    const afterId = wanted === undefined ? 0 : wanted.get(stream);
    if (afterId === undefined || id <= afterId || isReplaced(stream, id, key)) return;
    onRecord({ stream, id, batch, key, body });
  };
  if (source.snapshot !== undefined) {
    yield* readSnapshot(fileSystem, source.snapshot, wanted, onOperation);
  }
  // The bytes were checked in the first pass; they do not change.
  for (const log of source.logs) yield* readLog(fileSystem, log, false, onOperation);
}

function* readSnapshot(
  fileSystem: FileSystem,
  snapshot: { readonly path: string },
  wanted: WantedStreams | undefined,
  onOperation: (batch: string, operation: JournalOperation) => void,
): Generator<void> {
  const { path } = snapshot;
  const beginnings =
    wanted && [...wanted.keys()].map((stream) => Buffer.from(`[["j",${JSON.stringify(stream)},`));
  const isWanted = ({ bytes, start, end }: ScannedLine): boolean =>
    beginnings === undefined ||
    beginnings.some((beginning) => {
      const from = start + LINE_PREFIX_BYTES;
      return beginning.compare(bytes, from, Math.min(from + beginning.length, end)) === 0;
    });
  yield* scan(fileSystem, path, Infinity, (line) => {
    if (!isJournalLine(line) || !isWanted(line)) return;
    requireIntact(line, path);
    const [operation] = lineJson(line.bytes, line.start, line.end) as [JournalOperation];
    onOperation(operation[5] ?? '', operation);
  });
}

function* readLog(
  fileSystem: FileSystem,
  log: JournalSource['logs'][number],
  check: boolean,
  onOperation: (batch: string, operation: JournalOperation) => void,
): Generator<void> {
  const { path, generation, endOffset } = log;
  yield* scan(fileSystem, path, endOffset, (line) => {
    if (check) requireIntact(line, path);
    const value = lineJson(line.bytes, line.start, line.end);
    if (line.number === 1) return checkHeader(value, 'commit-log', generation, path);
    const [, batch, ...operations] = value as CommitLine;
    for (const operation of operations) {
      if (operation[0] === 'j') onOperation(batch, operation);
    }
  });
}

function* scan(
  fileSystem: FileSystem,
  path: string,
  endOffset: number,
  onLine: (line: ScannedLine) => void,
): Generator<void> {
  const descriptor = fileSystem.openToRead(path);
  try {
    const end = Math.min(endOffset, fileSystem.sizeBytes(descriptor));
    const scanner = new LineScanner(fileSystem, descriptor, path, end);
    const next = (line: ScannedLine): boolean => {
      onLine(line);
      return true;
    };
    while (scanner.step(next)) yield;
    const { line, offset } = scanner.rest;
    if (offset < end) throw damaged(path, line, offset, 'the line does not end');
  } finally {
    fileSystem.close(descriptor);
  }
}
