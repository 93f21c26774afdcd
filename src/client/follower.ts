/**
 * Follows the kill list of a Halos server for a gateway: one WebSocket at a time, resumed where the
 * list is, for ever until `close`.
 *
 * States: connecting → open → waiting → connecting … Whatever goes wrong leads to waiting; nothing
 * but `close` ends it, and the list that was held last stays in force.
 */
import { type RawData, WebSocket } from 'ws';
import type { Clock, Timer } from '../runtime/clock.js';
import type { Random } from '../runtime/random.js';
import { type Frame, type KillEntry, type KillTarget, parseFrame } from './frames.js';
import { KillListCopy } from './kill-list-copy.js';
import { ReconnectPause } from './reconnect-pause.js';

const SUBPROTOCOL = 'halo.kill-list.v1';
const PATH = '/api/v1/kill-list/stream';
/** Three heartbeats: a server that is silent for so long is gone, whatever TCP says. */
export const SILENT_MAX_MS = 15_000;
/** An upgrade that takes longer is a server that does not answer. */
const HANDSHAKE_MAX_MS = 10_000;
/** More than a change of the whole list at its bound, with reasons of full length. */
const FRAME_BYTES_MAX = 32 * 1024 * 1024;
/** What the client itself closes with: it missed something, or does not understand. */
const CLOSE_GAP = 4000;
const SHUT_OUT = 4403;

/** What happens, for logs and for whoever acts on a kill at once. */
export type KillListEvent =
  | { readonly type: 'connected'; readonly url: string }
  /** The whole list, after the first connection or when a change alone would not do. */
  | {
      readonly type: 'list';
      readonly epoch: string;
      readonly version: number;
      readonly entries: readonly KillEntry[];
    }
  | {
      readonly type: 'change';
      readonly from: number;
      readonly version: number;
      readonly set: readonly KillEntry[];
      readonly lift: readonly KillTarget[];
    }
  | { readonly type: 'heartbeat'; readonly version: number; readonly asOf: string }
  /** What arrived does not follow on what is held; the client connects again by itself. */
  | { readonly type: 'gap'; readonly held: number; readonly version: number }
  /** The token is not known (any more); tried again about once a minute. */
  | { readonly type: 'refused'; readonly retryInMs: number }
  | {
      readonly type: 'disconnected';
      /** WebSocket close code; the HTTP status when there was no upgrade, 0 without an answer. */
      readonly code: number;
      readonly reason: string;
      readonly retryInMs: number;
    };

/** What a client is made of. */
export interface FollowerOptions {
  /** Servers' addresses, `http://` or `https://`; tried in turn. */
  readonly urls: readonly string[];
  /** Asked before each connection, so that a rotated token is picked up. */
  readonly token: () => string | Promise<string>;
  readonly onEvent: (event: KillListEvent) => void;
  readonly clock: Clock;
  readonly random: Random;
}

interface Connection {
  readonly socket: WebSocket;
  readonly openedAtMs: number | undefined;
  ackedVersion: number;
  heardAtMs: number;
}

/** Why a connection was not had or is over. */
interface Ending {
  readonly code: number;
  readonly reason: string;
  readonly refused?: boolean;
  readonly serverAskedMs?: number;
}

/** One for each gateway process. `start` once; `close` is idempotent. */
export class Follower {
  readonly copy = new KillListCopy();
  private readonly pause: ReconnectPause;
  private current: Connection | undefined;
  private timer: Timer | undefined;
  private attempts = 0;
  private isClosed = false;

  constructor(private readonly options: FollowerOptions) {
    this.pause = new ReconnectPause(options.random);
  }

  get isConnected(): boolean {
    return this.current?.openedAtMs !== undefined;
  }

  start(): void {
    void this.connect();
  }

  close(): void {
    this.isClosed = true;
    this.timer?.cancel();
    const socket = this.current?.socket;
    this.current = undefined;
    if (socket?.readyState === WebSocket.OPEN) socket.close(1000);
    else socket?.terminate();
  }

  private async connect(): Promise<void> {
    const { urls } = this.options;
    const url = urls[this.attempts % urls.length] ?? '';
    this.attempts += 1;
    let socket: WebSocket;
    try {
      socket = this.open(url, await this.options.token());
    } catch (error) {
      this.again(undefined, { code: 0, reason: messageOf(error) });
      return;
    }
    if (this.isClosed) {
      socket.on('error', () => undefined);
      socket.terminate();
      return;
    }
    this.serve(socket, url);
  }

  private open(url: string, token: string): WebSocket {
    const { since } = this.copy;
    const query = since === undefined ? '' : `?since=${since}`;
    const address = url.replace(/^http/, 'ws').replace(/\/+$/, '') + PATH + query;
    return new WebSocket(address, SUBPROTOCOL, {
      headers: { authorization: `Bearer ${token}` },
      handshakeTimeout: HANDSHAKE_MAX_MS,
      maxPayload: FRAME_BYTES_MAX,
      perMessageDeflate: false,
    });
  }

  private serve(socket: WebSocket, url: string): void {
    const { clock } = this.options;
    let ending: Ending | undefined;
    let connection: Connection = {
      socket,
      openedAtMs: undefined,
      ackedVersion: -1,
      heardAtMs: clock.monotonicMs(),
    };
    this.current = connection;
    socket.on('open', () => {
      const nowMs = clock.monotonicMs();
      connection = { ...connection, openedAtMs: nowMs, heardAtMs: nowMs };
      this.current = connection;
      this.options.onEvent({ type: 'connected', url });
      this.watch(connection);
    });
    socket.on('message', (data, isBinary) => {
      if (this.current?.socket === socket) this.receive(connection, data, isBinary);
    });
    socket.on('unexpected-response', (request, answer) => {
      const { statusCode = 0, headers } = answer;
      ending = endingOf(statusCode, headers['retry-after']);
      request.destroy();
      socket.terminate();
    });
    socket.on('error', (error) => {
      ending ??= { code: 0, reason: messageOf(error) };
    });
    socket.on('close', (code, reason) => {
      if (this.current?.socket !== socket) return;
      const text = reason.toString('utf8');
      this.again(connection, code === 1006 && ending ? ending : closeOf(code, text));
    });
  }

  private receive(connection: Connection, data: RawData, isBinary: boolean): void {
    const { clock, onEvent } = this.options;
    const nowMs = clock.monotonicMs();
    connection.heardAtMs = nowMs;
    const frame = isBinary ? undefined : parseFrame(String(data));
    if (frame === undefined) {
      this.abandon(connection, 'no frame of this protocol');
      return;
    }
    const held = this.copy.version;
    const outcome = this.copy.take(frame, nowMs);
    if (outcome === 'gap') {
      onEvent({ type: 'gap', held, version: frame.version });
      this.abandon(connection, 'what arrived does not follow');
      return;
    }
    if (outcome === 'part') return;
    this.tell(frame, outcome);
    this.acknowledge(connection);
  }

  /** Before the acknowledgement: whoever acts on a kill has done so when it is sent. */
  private tell(frame: Frame, outcome: string): void {
    const { clock, onEvent } = this.options;
    if (frame.type === 'heartbeat') {
      onEvent({ type: 'heartbeat', version: frame.version, asOf: frame.asOf });
    } else if (outcome === 'changed' && frame.type === 'delta') {
      const { from, version, set, lift } = frame;
      onEvent({ type: 'change', from, version, set, lift });
    } else if (frame.type === 'snapshot') {
      const { epoch, version } = this.copy;
      const entries = this.copy.entries(clock.monotonicMs(), clock.wallMs());
      onEvent({ type: 'list', epoch, version, entries });
    }
  }

  private acknowledge(connection: Connection): void {
    const { version } = this.copy;
    const isOurs = this.current === connection;
    if (!isOurs || version < 0 || connection.ackedVersion === version) return;
    connection.ackedVersion = version;
    connection.socket.send(JSON.stringify({ type: 'ack', version }));
  }

  private watch(connection: Connection): void {
    const { clock } = this.options;
    this.timer = clock.schedule(() => {
      if (this.current !== connection) return;
      if (clock.monotonicMs() - connection.heardAtMs > SILENT_MAX_MS) connection.socket.terminate();
      else this.watch(connection);
    }, SILENT_MAX_MS / 3);
  }

  /** Nothing more of this connection is looked at; the library ends it if the server does not. */
  private abandon(connection: Connection, reason: string): void {
    connection.socket.close(CLOSE_GAP, reason);
    this.again(connection, { code: CLOSE_GAP, reason });
  }

  private again(connection: Connection | undefined, ending: Ending): void {
    this.timer?.cancel();
    this.current = undefined;
    this.copy.disconnected();
    if (this.isClosed) return;
    const { clock, onEvent } = this.options;
    const openedAtMs = connection?.openedAtMs;
    this.pause.ended(openedAtMs === undefined ? 0 : clock.monotonicMs() - openedAtMs);
    const retryInMs = Math.round(this.pause.nextMs(ending));
    const { code, reason } = ending;
    if (ending.refused === true) onEvent({ type: 'refused', retryInMs });
    else onEvent({ type: 'disconnected', code, reason, retryInMs });
    if (this.isClosed) return;
    this.timer = clock.schedule(() => void this.connect(), retryInMs);
  }
}

/** The server did not upgrade: a token that is not known, or a reason that passes. */
function endingOf(status: number, retryAfter: string | undefined): Ending {
  const seconds = Number(retryAfter);
  return {
    code: status,
    reason: `the server answered ${status}`,
    refused: status === 401 || status === 403,
    ...(retryAfter !== undefined && seconds >= 0 ? { serverAskedMs: seconds * 1000 } : {}),
  };
}

/** The server closed: 1012 and 1013 may say in their reason when to come back. */
function closeOf(code: number, reason: string): Ending {
  const ending = { code, reason, refused: code === SHUT_OUT };
  try {
    const { retryAfterMs } = JSON.parse(reason) as { retryAfterMs?: unknown };
    return typeof retryAfterMs === 'number' ? { ...ending, serverAskedMs: retryAfterMs } : ending;
  } catch {
    return ending;
  }
}

function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : 'failed';
}
