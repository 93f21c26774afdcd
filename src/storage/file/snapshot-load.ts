/** Reads what the storage thread needs of a snapshot, and checks every byte of it. */
import type { FileSystem } from './file-system.js';
import { snapshotPath } from './layout.js';
import {
  checkHeader,
  damaged,
  LINE_PREFIX_BYTES,
  lineJson,
  type SnapshotLine,
  type SnapshotTrailer,
  type TableOperation,
} from './line-format.js';
import { LineScanner, requireIntact, type ScannedLine } from './line-scanner.js';

const OPEN_BRACE = 0x7b;
/** How every line of the journal begins; those are for the actors that replay them. */
const JOURNAL_LINE = Buffer.from('[["j",');

/** Hands over the tables; throws `damaged` unless the snapshot is whole. */
export function loadSnapshot(
  fileSystem: FileSystem,
  dataDir: string,
  generation: number,
  onOperation: (operation: TableOperation) => void,
): { readonly trailer: SnapshotTrailer; readonly bytes: number } {
  const path = snapshotPath(dataDir, generation);
  const descriptor = fileSystem.openToRead(path);
  try {
    const fileBytes = fileSystem.sizeBytes(descriptor);
    const scanner = new LineScanner(fileSystem, descriptor, path, fileBytes);
    let trailer: SnapshotTrailer | undefined;
    const onLine = (line: ScannedLine): boolean => {
      requireIntact(line, path);
      const { bytes, start, end, number } = line;
      if (trailer !== undefined) {
        throw damaged(path, number, line.offset, 'a line follows the trailer');
      }
      if (isJournalLine(line)) return true;
      const value = lineJson(bytes, start, end);
      if (number === 1) checkHeader(value, 'snapshot', generation, path);
      else if (isTrailerLine(line)) trailer = value as SnapshotTrailer;
      else for (const operation of value as SnapshotLine) onOperation(operation as TableOperation);
      return true;
    };
    while (scanner.step(onLine));
    const { line, offset } = scanner.rest;
    if (trailer === undefined || offset < fileBytes) {
      throw damaged(path, line, offset, 'the end of the snapshot is missing');
    }
    return { trailer, bytes: fileBytes };
  } finally {
    fileSystem.close(descriptor);
  }
}

/** True of a line that holds a record; such a line holds nothing else. */
export function isJournalLine({ bytes, start, end }: ScannedLine): boolean {
  const from = start + LINE_PREFIX_BYTES;
  const to = Math.min(from + JOURNAL_LINE.length, end);
  return JOURNAL_LINE.compare(bytes, from, to) === 0;
}

/** True of the header too, which is the first line. */
export function isTrailerLine({ bytes, start }: ScannedLine): boolean {
  return bytes[start + LINE_PREFIX_BYTES] === OPEN_BRACE;
}
