/** Reads a file line by line in bounded steps, and checks each line. */
import type { FileSystem } from './file-system.js';
import { damaged, isIntact } from './line-format.js';

/** One step: less than a millisecond of parsing, so that commits between steps hardly wait. */
const STEP_BYTES = 64 * 1024;
const LINE_FEED = 0x0a;

/** One line inside the scanner's buffer, valid only during the callback. */
export interface ScannedLine {
  readonly bytes: Buffer;
  /** Of the first byte in `bytes`. */
  start: number;
  /** Of the line feed in `bytes`. */
  end: number;
  /** From 1. */
  number: number;
  /** Of the first byte in the file. */
  offset: number;
}

/** Holds one buffer, as large as the longest line; the caller closes the descriptor. */
export class LineScanner {
  private buffer = Buffer.allocUnsafe(STEP_BYTES);
  /** Bytes in the buffer that are not a whole line yet. */
  private held = 0;
  /** Where the next read begins. */
  private position: number;
  private number = 0;

  /** Scans from the beginning up to `endOffset`. `file` names it in errors. */
  constructor(
    private readonly fileSystem: FileSystem,
    private readonly descriptor: number,
    private readonly file: string,
    private readonly endOffset: number,
  ) {
    this.position = 0;
  }

  /**
   * Reads on and hands over the whole lines; false when the end was reached. `onLine` returning
   * false ends the scan there, as if the line were not there.
   */
  step(onLine: (line: ScannedLine) => boolean): boolean {
    if (this.held === this.buffer.length) this.grow();
    const want = Math.min(this.buffer.length - this.held, this.endOffset - this.position);
    if (want <= 0) return false;
    const into = this.buffer.subarray(0, this.held + want);
    const read = this.fileSystem.read(this.descriptor, into, this.held, this.position);
    if (read === 0) {
      throw damaged(this.file, this.number + 1, this.position, 'the end of the file is missing');
    }
    this.position += read;
    return this.lines(this.held + read, onLine);
  }

  /** What is left after the last whole line, or after the line that ended the scan. */
  get rest(): { readonly line: number; readonly offset: number } {
    return { line: this.number + 1, offset: this.position - this.held };
  }

  private lines(filled: number, onLine: (line: ScannedLine) => boolean): boolean {
    const base = this.position - filled;
    const line: ScannedLine = { bytes: this.buffer, start: 0, end: 0, number: 0, offset: 0 };
    let start = 0;
    let goOn = true;
    while (goOn) {
      const end = this.buffer.indexOf(LINE_FEED, start);
      if (end < 0 || end >= filled) break;
      line.start = start;
      line.end = end;
      line.number = this.number + 1;
      line.offset = base + start;
      goOn = onLine(line);
      if (!goOn) break;
      this.number += 1;
      start = end + 1;
    }
    this.buffer.copy(this.buffer, 0, start, filled);
    this.held = filled - start;
    return goOn;
  }

  private grow(): void {
    const larger = Buffer.allocUnsafe(this.buffer.length * 2);
    this.buffer.copy(larger, 0, 0, this.held);
    this.buffer = larger;
  }
}

/** Throws `damaged` unless the line is as it was written. */
export function requireIntact(line: ScannedLine, file: string): void {
  if (!isIntact(line.bytes, line.start, line.end)) {
    throw damaged(file, line.number, line.offset, 'the checksum does not fit');
  }
}
