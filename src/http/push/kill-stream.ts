/** One open stream of the kill list: what its client was told, and what it said. */
import type { WebSocket } from 'uWebSockets.js';
import type { Snapshot } from './frames.js';

/**
 * Frames that a client may send ahead of ours: each frame of ours earns it one more, so that
 * whoever acknowledges everything is never refused, and nobody keeps a thread busy by talking.
 */
const FRAMES_AHEAD_MAX = 64;
/** What can be earned: an outage of acknowledgements is made up for in one go. */
const FRAMES_EARNED_MAX = 1_024;

/** A client that looks for life pings every few seconds; each ping is answered with a write. */
const PINGS_PER_SECOND = 2;
const PINGS_AT_ONCE_MAX = 64;

/**
 * What the library keeps with a socket. It copies the properties of this object and drops its
 * class, so the stream is one property of it.
 */
export interface StreamSocketData {
  readonly stream: KillStream;
}

/** Made before the upgrade; `socket` is there from `open` to `close`. */
export class KillStream {
  socket: WebSocket<StreamSocketData> | undefined;
  /** The version that everything sent so far amounts to; -1 before the first snapshot's end. */
  version = -1;
  /** The newest version that the client says it holds. */
  acknowledged = 0;
  /** The pages that are still to be sent, and where they begin. */
  snapshot: (Snapshot & { next: number }) | undefined;
  /** A heartbeat is owed even if nothing changed: to a client that was up to date when it came. */
  greet = false;
  /** Which heartbeats it shares. */
  slot = 0;
  /** Monotonic time at which the client last sent anything, a pong included. */
  heardAtMs = 0;
  /** Monotonic time at which it last took a page of its snapshot. */
  progressAtMs = 0;
  private allowance = FRAMES_AHEAD_MAX;
  private pings = PINGS_AT_ONCE_MAX;
  private pingedAtMs = 0;

  constructor(
    readonly gateway: string,
    /** Digest of the token that it was opened with. */
    readonly credential: string,
    /** What the client held when it came; undefined: nothing. */
    readonly since: { readonly epoch: string; readonly version: number } | undefined,
  ) {}

  /** A frame was sent to it. */
  earn(): void {
    if (this.allowance < FRAMES_EARNED_MAX) this.allowance += 1;
  }

  /** A frame came from it; false when it is one too many. */
  spend(): boolean {
    this.allowance -= 1;
    return this.allowance >= 0;
  }

  /** A ping came from it; false when it is one too many. */
  spendPing(nowMs: number): boolean {
    const earned = ((nowMs - this.pingedAtMs) / 1_000) * PINGS_PER_SECOND;
    this.pings = Math.min(PINGS_AT_ONCE_MAX, this.pings + earned) - 1;
    this.pingedAtMs = nowMs;
    return this.pings >= 0;
  }
}
