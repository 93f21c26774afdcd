/**
 * Where the lines of a log go: a descriptor that whoever reads it may stop reading. A write never
 * waits. What cannot be written waits in memory, within a bound; beyond it lines are dropped and
 * counted, since a server that stands still for its log serves nobody.
 *
 * The descriptor must be non-blocking (`openLog` sees to it): then a full pipe refuses the write.
 * An asynchronous write would not do: on a blocking pipe it holds a thread of the pool that all
 * threads of the process share, and four of those are all there are for fsync, too.
 */
import { writeSync } from 'node:fs';
import type { Clock, Timer } from './clock.js';

/** Writes what it can of the bytes now and returns how many; throws `EAGAIN` without any room. */
export type WriteNow = (bytes: Uint8Array) => number;

/** Told how many lines were dropped since it was told last, once there is room again. */
export type OnDropped = (lines: number) => void;

/** What waits for one thread's reader at most: seconds of an access log, little beside a heap. */
const WAITING_BYTES_MAX = 1_048_576;
/** How often a reader that stopped is looked after. */
const RETRY_MS = 20;
/** What a process that ends waits for its reader to take the last lines. */
const FLUSH_WITHIN_MS = 500;
const FLUSH_PAUSE_MS = 5;

/** The lines of one thread, in order and each whole. */
export class LogLines {
  private waiting: Uint8Array[] = [];
  private waitingBytes = 0;
  /** Lines not yet told of. */
  private dropped = 0;
  private timer: Timer | undefined;

  constructor(
    private readonly clock: Clock,
    /** Counted for each line that is dropped: for all threads together. */
    private readonly countDropped: () => void,
    private readonly onRoom: OnDropped = () => undefined,
    private readonly writeNow: WriteNow = (bytes) => writeSync(1, bytes),
  ) {}

  /** Takes a line with its end. Never waits and never throws. */
  write(line: string): void {
    const bytes = Buffer.from(line);
    if (this.waitingBytes + bytes.length > WAITING_BYTES_MAX) {
      this.dropped += 1;
      this.countDropped();
      return;
    }
    this.waiting.push(bytes);
    this.waitingBytes += bytes.length;
    if (this.timer === undefined) this.pump();
  }

  /** Gives a reader that still reads a moment to take what waits; for the end of the process. */
  flush(): void {
    const endMs = this.clock.monotonicMs() + FLUSH_WITHIN_MS;
    const sleeping = new Int32Array(new SharedArrayBuffer(Int32Array.BYTES_PER_ELEMENT));
    this.pump();
    while (this.waiting.length > 0 && this.clock.monotonicMs() < endMs) {
      Atomics.wait(sleeping, 0, 0, FLUSH_PAUSE_MS);
      this.pump();
    }
  }

  private pump(): void {
    this.timer?.cancel();
    this.timer = undefined;
    while (this.waiting.length > 0) {
      if (!this.writeFirst()) {
        this.retryLater();
        return;
      }
    }
    if (this.dropped === 0) return;
    const lines = this.dropped;
    this.dropped = 0;
    this.onRoom(lines);
  }

  /** Whether there may be room for more. */
  private writeFirst(): boolean {
    const first = this.waiting[0] ?? new Uint8Array();
    let written: number;
    try {
      written = this.writeNow(first);
    } catch (error) {
      if (isFull(error)) return false;
      // The reader is gone, or its disk is full. To say so would only be the next line lost.
      this.countDropped();
      written = first.length;
    }
    this.waitingBytes -= written;
    if (written === first.length) this.waiting.shift();
    else this.waiting[0] = first.subarray(written);
    return true;
  }

  private retryLater(): void {
    this.timer = this.clock.schedule(() => this.pump(), RETRY_MS);
  }
}

function isFull(error: unknown): boolean {
  const code = error instanceof Error && 'code' in error ? error.code : undefined;
  return code === 'EAGAIN' || code === 'EINTR';
}
