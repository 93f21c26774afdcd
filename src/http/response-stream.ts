/**
 * An answer whose length nobody knows before its end: pieces in chunked encoding (RFC 9112 §7.1),
 * as fast as the client takes them. It ends with its last chunk, or is cut, which the client sees.
 */
import type { HttpResponse } from 'uWebSockets.js';
import type { Clock } from '../runtime/clock.js';

/**
 * Twice the library's cork buffer. What fits into that buffer is said to be taken, whoever takes
 * it; of a larger piece it is told whether the kernel took all, and only the rest of it is kept.
 */
const PIECE_BYTES = 32 * 1024;
/** How often a client that takes nothing is looked at: whether to go on waiting. */
const LOOK_MS = 250;
/**
 * A client that takes nothing for so long keeps a place from one that would. Before the library
 * loses patience, which it does after some twelve seconds without a word about it.
 */
const STALL_MAX_MS = 10_000;

/** One answer; whoever made it has written the head. */
export class ResponseStream {
  private gone = false;
  private wake: (() => void) | undefined;
  /** Less than a piece. */
  private rest: Buffer = Buffer.alloc(0);

  constructor(
    private readonly res: HttpResponse,
    private readonly clock: Clock,
    private readonly isDraining: () => boolean,
  ) {
    res.onWritable(() => {
      this.wake?.();
      return true;
    });
  }

  /** The client went away: nothing may be written any more. */
  abort(): void {
    this.gone = true;
    this.wake?.();
  }

  /** False when there is no use in more: the client is gone or stalls, or the server ends. */
  async write(added: Buffer): Promise<boolean> {
    const bytes = this.rest.length === 0 ? added : Buffer.concat([this.rest, added]);
    let at = 0;
    for (; at + PIECE_BYTES <= bytes.length; at += PIECE_BYTES) {
      if (this.isOver()) return false;
      const piece = bytes.subarray(at, at + PIECE_BYTES);
      let isTaken = false;
      this.res.cork(() => {
        isTaken = this.res.write(piece);
      });
      if (!isTaken && !(await this.isWritable())) return false;
    }
    this.rest = bytes.subarray(at);
    return !this.isOver();
  }

  end(): void {
    if (this.gone) return;
    this.gone = true;
    this.res.cork(() => {
      if (this.rest.length > 0) this.res.write(this.rest);
      this.res.end();
    });
  }

  /** Without the last chunk: nobody takes what there is for the whole. */
  cut(): void {
    if (this.gone) return;
    this.gone = true;
    this.res.close();
  }

  private isOver(): boolean {
    return this.gone || this.isDraining();
  }

  private async isWritable(): Promise<boolean> {
    const endMs = this.clock.monotonicMs() + STALL_MAX_MS;
    for (;;) {
      const isWoken = await this.nextLook();
      if (this.isOver()) return false;
      if (isWoken) return true;
      if (this.clock.monotonicMs() >= endMs) return false;
    }
  }

  /** True when the library says that there is room. */
  private async nextLook(): Promise<boolean> {
    const isWoken = await new Promise<boolean>((resolve) => {
      const timer = this.clock.schedule(() => resolve(false), LOOK_MS);
      this.wake = () => {
        timer.cancel();
        resolve(true);
      };
    });
    this.wake = undefined;
    return isWoken;
  }
}
