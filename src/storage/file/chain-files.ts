/**
 * The segments of the evidence chain: `chain/<number of the first record>.jsonl`, the records as
 * they are, a line each, without a checksum of their own: each carries its hash and a signature.
 */
import { join } from 'node:path';
import { SEGMENT_NAME_PATTERN } from '../../evidence/format.js';
import type { FileSystem } from './file-system.js';
import { damaged } from './line-format.js';

/** A segment is read whole: small enough for that, large enough that there are few. */
export const SEGMENT_RECORDS_MAX = 10_000;
export const SEGMENT_BYTES_MAX = 16 * 1024 * 1024;
const SEQ_DIGITS = 16;
const LINE_FEED = 0x0a;

/** Where the segments are. */
export function chainDirectory(dataDir: string): string {
  return join(dataDir, 'chain');
}

/** The segment whose first record has that number. */
export function segmentPath(dataDir: string, firstSeq: number): string {
  return join(chainDirectory(dataDir), `${String(firstSeq).padStart(SEQ_DIGITS, '0')}.jsonl`);
}

/** First numbers of the segments that are there, ascending; older ones may have been archived. */
export function listSegments(fileSystem: FileSystem, dataDir: string): number[] {
  return fileSystem
    .list(chainDirectory(dataDir))
    .filter((name) => SEGMENT_NAME_PATTERN.test(name))
    .map((name) => Number.parseInt(name, 10))
    .sort((one, other) => one - other);
}

/** One segment in memory, as far as it was read; `extend` reads what was added since. */
export class Segment {
  private bytes = Buffer.alloc(0);
  /** Of the line feed of each record. */
  private readonly ends: number[] = [];

  private constructor(
    readonly path: string,
    readonly firstSeq: number,
  ) {}

  static read(fileSystem: FileSystem, dataDir: string, firstSeq: number): Segment {
    const segment = new Segment(segmentPath(dataDir, firstSeq), firstSeq);
    segment.extend(fileSystem);
    return segment;
  }

  /** Whole lines. */
  get count(): number {
    return this.ends.length;
  }

  /** Bytes behind the last whole line: a line that is being written, or was cut. */
  get rest(): Buffer {
    return this.bytes.subarray(this.offset(this.count));
  }

  get nextSeq(): number {
    return this.firstSeq + this.count;
  }

  /** Undefined for a number that is not in it. */
  line(seq: number): string | undefined {
    const at = seq - this.firstSeq;
    if (at < 0 || at >= this.count) return undefined;
    return this.bytes.toString('utf8', this.offset(at), this.ends[at]);
  }

  /** From the beginning of that record to the end of the file. */
  from(seq: number): { readonly bytes: Buffer; readonly offset: number } {
    const offset = this.offset(seq - this.firstSeq);
    return { bytes: this.bytes.subarray(offset), offset };
  }

  /** The numbers of the lines that contain the text. */
  *containing(text: string): Generator<number> {
    const wanted = Buffer.from(text);
    for (let at = this.bytes.indexOf(wanted); at >= 0; ) {
      const line = this.lineOf(at);
      if (line >= this.count) return;
      yield this.firstSeq + line;
      at = this.bytes.indexOf(wanted, this.offset(line + 1));
    }
  }

  extend(fileSystem: FileSystem): void {
    const descriptor = fileSystem.openToRead(this.path);
    try {
      const size = fileSystem.sizeBytes(descriptor);
      if (size < this.bytes.length) {
        throw damaged(this.path, this.count + 1, size, 'the file has become shorter');
      }
      const bytes = Buffer.alloc(size);
      this.bytes.copy(bytes);
      for (let filled = this.bytes.length; filled < size; ) {
        const read = fileSystem.read(descriptor, bytes, filled, filled);
        if (read === 0) throw damaged(this.path, this.count + 1, filled, 'its end is missing');
        filled += read;
      }
      this.bytes = bytes;
    } finally {
      fileSystem.close(descriptor);
    }
    for (let from = this.offset(this.count); ; ) {
      const end = this.bytes.indexOf(LINE_FEED, from);
      if (end < 0) return;
      this.ends.push(end);
      from = end + 1;
    }
  }

  private offset(line: number): number {
    return line === 0 ? 0 : (this.ends[line - 1] ?? this.bytes.length - 1) + 1;
  }

  /** Which line a byte is in. */
  private lineOf(offset: number): number {
    let low = 0;
    let high = this.ends.length;
    while (low < high) {
      const middle = (low + high) >>> 1;
      if ((this.ends[middle] ?? 0) < offset) low = middle + 1;
      else high = middle;
    }
    return low;
  }
}
