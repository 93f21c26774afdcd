/** Reads a chain from files: one export, or a directory of segments. */
import { isUtf8 } from 'node:buffer';
import { createReadStream } from 'node:fs';
import { readdir, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { RECORD_BYTES_MAX, SEGMENT_NAME_PATTERN } from '../evidence/format.js';
import type { LineChunk } from './verify-lines.js';

/** What a path holds. */
export interface ChainFiles {
  /** In the order of the chain. */
  readonly paths: readonly string[];
  readonly bytes: number;
  /** Segments of a live chain end at its head; an export ends with a checkpoint. */
  readonly endsAtHead: boolean;
}

/** Few reads, little memory: some thousand records at once. */
const READ_BYTES = 1_048_576;
const LINE_END = 0x0a;

/** Finds the files of a chain. Rejects when there are none or when they cannot be read. */
export async function findChainFiles(path: string): Promise<ChainFiles> {
  const found = await stat(path);
  if (!found.isDirectory()) return { paths: [path], bytes: found.size, endsAtHead: false };
  const names = (await readdir(path)).filter((name) => SEGMENT_NAME_PATTERN.test(name)).sort();
  if (names.length === 0) throw new Error('there is no segment of a chain in the directory');
  const paths = names.map((name) => join(path, name));
  const sizes = await Promise.all(paths.map(async (segment) => (await stat(segment)).size));
  return { paths, bytes: sizes.reduce((sum, size) => sum + size, 0), endsAtHead: true };
}

/**
 * The lines of files, one after another. A line that is cut between two files is no text. Where
 * somebody is still writing, a line without its end is one that has just begun: it does not count.
 */
export async function* readLines(
  paths: readonly string[],
  isWritten = false,
): AsyncGenerator<LineChunk> {
  let bytesRead = 0;
  for (const [index, path] of paths.entries()) {
    let rest: Buffer = Buffer.alloc(0);
    for await (const chunk of createReadStream(path, { highWaterMark: READ_BYTES })) {
      const read = chunk as Buffer;
      bytesRead += read.length;
      const split = splitLines(rest.length === 0 ? read : Buffer.concat([rest, read]));
      rest = split.rest;
      // What is too long is not read to its end: it may have none.
      const isTooLong = rest.length > RECORD_BYTES_MAX;
      const lines = isTooLong ? [...split.lines, undefined] : split.lines;
      yield { lines, bytesRead, isTorn: false };
      if (isTooLong) return;
    }
    if (rest.length === 0) continue;
    const isLast = index === paths.length - 1;
    yield { lines: isLast ? [] : [undefined], bytesRead, isTorn: isLast && !isWritten };
  }
}

function splitLines(bytes: Buffer): { lines: Array<string | undefined>; rest: Buffer } {
  const lines: Array<string | undefined> = [];
  let start = 0;
  for (;;) {
    const end = bytes.indexOf(LINE_END, start);
    if (end === -1) return { lines, rest: bytes.subarray(start) };
    lines.push(decodeLine(bytes.subarray(start, end)));
    start = end + 1;
  }
}

function decodeLine(bytes: Buffer): string | undefined {
  return bytes.length <= RECORD_BYTES_MAX && isUtf8(bytes) ? bytes.toString('utf8') : undefined;
}
