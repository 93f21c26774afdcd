/**
 * All open streams of one front thread, and what they are sent.
 *
 * A stream that is behind the mirror is due. Each turn of the event loop serves a bounded number of
 * frames and leaves the rest to the next one, so that neither a kill for thousands of streams nor a
 * long snapshot holds up what else the thread does. Whoever is served later gets the changes of
 * that moment in one frame: nobody sees a version twice, or out of order.
 */
import type { WebSocket } from 'uWebSockets.js';
import type { Clock } from '../../runtime/clock.js';
import type { Random } from '../../runtime/random.js';
import {
  acknowledgedVersion,
  CLOSE,
  type CloseCode,
  deltaFrame,
  heartbeatFrame,
  retryReason,
  type Snapshot,
  snapshotOf,
} from './frames.js';
import { GatewayIndex } from './gateway-index.js';
import type { KillListMirror } from './kill-list-mirror.js';
import type { KillStream, StreamSocketData } from './kill-stream.js';
import type { PushMetrics } from './push-metrics.js';

/** Every stream gets a heartbeat this often (API.md). */
export const HEARTBEAT_PERIOD_MS = 5_000;
/** A fiftieth of a heartbeat's period apart, so that they do not all fall into one turn. */
const HEARTBEAT_SLOTS = 50;
/** How often it is looked which slots are due. */
export const TICK_MS = HEARTBEAT_PERIOD_MS / HEARTBEAT_SLOTS;
/** Frames of one turn: about four milliseconds of sending. */
const TURN_FRAMES_MAX = 512;
/** Pages of one stream in one turn: the others come in between. */
const TURN_PAGES_MAX = 8;
/** What may wait in a stream's buffer before more pages of a snapshot are put into it. */
const PAGE_BUFFER_BYTES_MAX = 64 * 1024;
/**
 * What may wait in a stream's buffer before its client counts as slow. A client that reads at all
 * has megabytes in the kernel before a byte waits here.
 */
export const BUFFER_BYTES_MAX = 1024 * 1024;
/** A client that takes no page of its snapshot for so long does not read. */
const SNAPSHOT_STALL_MAX_MS = 15_000;
/** A client is asked for a sign of life with every third heartbeat … */
const PING_HEARTBEATS = 3;
/** … and is dead when it missed two of them. */
export const PEER_SILENT_MAX_MS = 40_000;
/**
 * Clients that lost their stream come back spread over this time: a handshake costs about a tenth
 * of a millisecond, so ten thousand of them take half a thread for two seconds.
 */
export const RECONNECT_SPREAD_MS = 2_000;

/** One for each front thread. */
export class KillStreams {
  readonly gateways = new GatewayIndex();
  private readonly all = new Set<KillStream>();
  private readonly slots = Array.from({ length: HEARTBEAT_SLOTS }, () => new Set<KillStream>());
  private readonly due = new Set<KillStream>();
  private readonly deltas = new Map<number, Buffer>();
  private cachedSnapshot: Snapshot | undefined;
  private pumping = false;
  private opened = 0;
  private nextSlot = 0;
  private rounds = 0;

  constructor(
    private readonly mirror: KillListMirror,
    private readonly clock: Clock,
    private readonly random: Random,
    private readonly metrics: PushMetrics,
  ) {}

  get size(): number {
    return this.all.size;
  }

  /** The socket of any stream. */
  anySocket(): WebSocket<StreamSocketData> | undefined {
    const [stream] = this.all;
    return stream?.socket;
  }

  /** The socket is there: says where the stream begins, and lets it be served. */
  open(socket: WebSocket<StreamSocketData>): void {
    const { stream } = socket.getUserData();
    stream.socket = socket;
    stream.heardAtMs = this.clock.monotonicMs();
    stream.progressAtMs = stream.heardAtMs;
    stream.slot = this.opened % HEARTBEAT_SLOTS;
    this.opened += 1;
    this.all.add(stream);
    this.slots[stream.slot]?.add(stream);
    this.gateways.add(stream);
    this.metrics.opened(stream.since !== undefined);
    this.begin(stream);
  }

  /** The library says that the socket is gone; nothing may be sent any more. */
  closed(stream: KillStream): void {
    stream.socket = undefined;
    stream.snapshot = undefined;
    this.all.delete(stream);
    this.due.delete(stream);
    this.slots[stream.slot]?.delete(stream);
    this.gateways.remove(stream);
  }

  /** A frame of the client: an acknowledgement, or the end of the stream. */
  received(stream: KillStream, frame: ArrayBuffer, isBinary: boolean): void {
    stream.heardAtMs = this.clock.monotonicMs();
    this.metrics.received += 1;
    if (!stream.spend()) {
      this.end(stream, CLOSE.protocol, 'too many frames');
      return;
    }
    const version = acknowledgedVersion(frame, isBinary);
    if (version === undefined) this.end(stream, CLOSE.protocol, 'not an ack');
    else if (version > stream.version) this.end(stream, CLOSE.protocol, 'ack of the future');
    else if (version > stream.acknowledged) stream.acknowledged = version;
  }

  /** The library answers each ping, so that a flood of them keeps its thread busy. */
  pinged(stream: KillStream): void {
    const nowMs = this.clock.monotonicMs();
    stream.heardAtMs = nowMs;
    if (!stream.spendPing(nowMs)) this.end(stream, CLOSE.protocol, 'too many pings');
  }

  /** The buffer of a socket has room again. */
  drained(stream: KillStream): void {
    if (stream.snapshot === undefined) return;
    stream.progressAtMs = this.clock.monotonicMs();
    this.due.add(stream);
    this.pump();
  }

  /** The mirror is at a newer version. */
  changed(): void {
    this.deltas.clear();
    this.cachedSnapshot = undefined;
    for (const stream of this.all) this.due.add(stream);
    this.pump();
  }

  /** Heartbeats for the streams whose turn it is; to be called every `TICK_MS`. */
  beat(): void {
    const slot = this.slots[this.nextSlot];
    this.nextSlot = (this.nextSlot + 1) % HEARTBEAT_SLOTS;
    if (this.nextSlot === 0) this.rounds += 1;
    if (slot === undefined || slot.size === 0 || this.mirror.position === undefined) return;
    const nowMs = this.clock.monotonicMs();
    const frame = heartbeatFrame(this.mirror.version, this.mirror.asOfMs);
    const pinging = this.rounds % PING_HEARTBEATS === 0;
    for (const stream of [...slot]) {
      if (nowMs - stream.heardAtMs > PEER_SILENT_MAX_MS) this.drop(stream);
      else if (stream.snapshot !== undefined) {
        this.watchProgress(stream, nowMs);
        if (pinging) stream.socket?.ping();
      } else if (this.serveChanges(stream)) this.heartbeat(stream, frame, pinging);
    }
  }

  /** In one write with the ping, if there is one: writes are what a heartbeat costs. */
  private heartbeat(stream: KillStream, frame: Buffer, pinging: boolean): void {
    if (!pinging) this.send(stream, frame);
    else {
      stream.socket?.cork(() => {
        if (this.send(stream, frame)) stream.socket?.ping();
      });
    }
  }

  /** This process stood still for so long: its clients could not be heard meanwhile. */
  stoodStill(forMs: number): void {
    for (const stream of this.all) {
      stream.heardAtMs += forMs;
      stream.progressAtMs += forMs;
    }
  }

  /** Ends the streams that were opened with these tokens. */
  endCredentials(credentials: readonly string[]): void {
    for (const credential of credentials) {
      for (const stream of [...this.gateways.withCredential(credential)]) {
        this.end(stream, CLOSE.shutOut, 'the token does not work any more');
      }
    }
  }

  /** Ends the streams that were opened with any other token than these. */
  endOthers(credentials: readonly string[]): void {
    const live = new Set(credentials);
    this.endCredentials(this.gateways.credentials().filter((known) => !live.has(known)));
  }

  /** Ends all streams, a bounded number in each turn; resolves when all are ended. */
  async endAll(code: CloseCode): Promise<void> {
    const streams = [...this.all];
    for (let at = 0; at < streams.length; at += TURN_FRAMES_MAX) {
      for (const stream of streams.slice(at, at + TURN_FRAMES_MAX)) {
        this.end(stream, code, retryReason(this.random.fraction() * RECONNECT_SPREAD_MS));
      }
      await new Promise<void>((resolve) => this.clock.afterTurn(resolve));
    }
  }

  private begin(stream: KillStream): void {
    const { position } = this.mirror;
    const { since } = stream;
    if (position === undefined) {
      this.end(stream, CLOSE.tryLater, retryReason(RECONNECT_SPREAD_MS));
    } else if (since?.epoch !== position.epoch) {
      this.beginSnapshot(stream);
    } else if (since.version > position.version) {
      this.end(stream, CLOSE.tryLater, retryReason(RECONNECT_SPREAD_MS));
    } else if (since.version === position.version || this.delta(since.version) !== undefined) {
      stream.version = since.version;
      // Whoever comes back with a version says that it holds it.
      stream.acknowledged = since.version;
      stream.greet = since.version === position.version;
    } else {
      this.beginSnapshot(stream);
    }
    if (stream.socket === undefined) return;
    this.due.add(stream);
    this.pump();
  }

  private beginSnapshot(stream: KillStream): void {
    const { position } = this.mirror;
    if (position === undefined) return;
    this.cachedSnapshot ??= snapshotOf(position, this.mirror.list());
    stream.snapshot = { ...this.cachedSnapshot, next: 0 };
  }

  private pump(): void {
    if (this.pumping) return;
    this.pumping = true;
    this.clock.afterTurn(() => {
      this.pumping = false;
      let frames = 0;
      for (const stream of this.due) {
        this.due.delete(stream);
        frames += this.serve(stream);
        if (frames >= TURN_FRAMES_MAX) break;
      }
      if (this.due.size > 0) this.pump();
    });
  }

  /** Sends what is due, as far as it may in one turn; returns the number of frames. */
  private serve(stream: KillStream): number {
    const pages = this.servePages(stream);
    if (stream.snapshot !== undefined || !this.serveChanges(stream)) return pages + 1;
    if (stream.greet) {
      stream.greet = false;
      this.send(stream, heartbeatFrame(this.mirror.version, this.mirror.asOfMs));
    }
    return pages + 1;
  }

  private servePages(stream: KillStream): number {
    const { snapshot, socket } = stream;
    if (snapshot === undefined || socket === undefined) return 0;
    let sent = 0;
    for (; snapshot.next < snapshot.pages.length; snapshot.next += 1) {
      if (socket.getBufferedAmount() > PAGE_BUFFER_BYTES_MAX) return sent;
      if (sent === TURN_PAGES_MAX) {
        this.due.add(stream);
        return sent;
      }
      this.send(stream, snapshot.pages[snapshot.next] as Buffer);
      sent += 1;
    }
    stream.progressAtMs = this.clock.monotonicMs();
    stream.version = snapshot.version;
    stream.snapshot = undefined;
    return sent;
  }

  /** Brings the stream to the mirror's version; false when it is over. */
  private serveChanges(stream: KillStream): boolean {
    if (stream.socket === undefined) return false;
    if (stream.version === this.mirror.version) return true;
    const frame = this.delta(stream.version);
    if (frame === undefined) {
      // Further behind than the changes that are kept: it begins again with a snapshot.
      this.end(stream, CLOSE.restart, retryReason(this.random.fraction() * RECONNECT_SPREAD_MS));
      return false;
    }
    if (!this.send(stream, frame)) return false;
    stream.version = this.mirror.version;
    return true;
  }

  /** Made once for all streams that are at the same version. */
  private delta(since: number): Buffer | undefined {
    const cached = this.deltas.get(since);
    if (cached !== undefined) return cached;
    const delta = this.mirror.deltaFrom(since);
    if (delta === undefined) return undefined;
    const frame = deltaFrame(delta);
    this.deltas.set(since, frame);
    return frame;
  }

  /** False when the stream is over: it was, or its buffer is past its bound. */
  private send(stream: KillStream, frame: Buffer): boolean {
    const { socket } = stream;
    if (socket === undefined) return false;
    if (socket.getBufferedAmount() > BUFFER_BYTES_MAX || socket.send(frame) === 2) {
      this.end(stream, CLOSE.slow, 'too slow');
      return false;
    }
    stream.earn();
    this.metrics.sent(frame.byteLength);
    return true;
  }

  private watchProgress(stream: KillStream, nowMs: number): void {
    if (nowMs - stream.progressAtMs > SNAPSHOT_STALL_MAX_MS) {
      this.end(stream, CLOSE.slow, 'too slow');
    }
  }

  /** Nobody is there any more, so there is nobody to say goodbye to. */
  private drop(stream: KillStream): void {
    this.metrics.closed('silent');
    stream.socket?.close();
  }

  private end(stream: KillStream, code: CloseCode, reason: string): void {
    const { socket } = stream;
    if (socket === undefined) return;
    this.metrics.closed(String(code));
    // The library calls `close` before this returns.
    socket.end(code, reason);
  }
}
