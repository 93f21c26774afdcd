/**
 * Upgrades responses that were waited for, all of a turn together, without a cork of their own.
 *
 * The library wants an upgrade corked, and says so on stderr for each that is not. But this build's
 * cork, once its handler has upgraded the socket, goes on with it as with an HTTP response unless
 * the upgrade moved it to another address; what it then takes for "close after the answer" is
 * whatever the WebSocket keeps in that place: under load one stream in ten was closed at once.
 * Within any callback of the library its check is satisfied, so the upgrades run in one that
 * concerns another socket: what it calls when a stream subscribes. Where none is open, the first
 * one is upgraded without help, costs the line on stderr, and helps those that came with it.
 */
import type { HttpResponse, us_socket_context_t, WebSocket } from 'uWebSockets.js';
import { SUBPROTOCOL } from './frames.js';
import type { StreamSocketData } from './kill-stream.js';

/** What the library needs of the request, copied while it could be read. */
export interface Handshake {
  readonly key: string;
  readonly extensions: string;
  readonly context: us_socket_context_t;
}

/** Nothing is ever published to it. */
const TOPIC = 'upgrade';

/** One for each front server. */
export class UpgradeBatch {
  private waiting: (() => void)[] = [];
  /** How many of them came with each token, by its digest. */
  private readonly byCredential = new Map<string, number>();

  /** `helper` is any stream that is open; undefined when none is. */
  constructor(private readonly helper: () => WebSocket<StreamSocketData> | undefined) {}

  /** Responses that are to be upgraded in this turn: streams already, as far as limits go. */
  get size(): number {
    return this.waiting.length;
  }

  /** Those of them that came with this token. */
  sizeOf(credential: string): number {
    return this.byCredential.get(credential) ?? 0;
  }

  /**
   * Upgrades the response before any other callback of the library, or of a port, can run. Then
   * `open` is called. Nothing may be written to the response any more.
   */
  add(res: HttpResponse, { key, extensions, context }: Handshake, data: StreamSocketData): void {
    if (this.waiting.length === 0) queueMicrotask(() => this.flush());
    const { credential } = data.stream;
    this.byCredential.set(credential, this.sizeOf(credential) + 1);
    this.waiting.push(() => {
      res.upgrade<StreamSocketData>(data, key, SUBPROTOCOL, extensions, context);
    });
  }

  /** The library's `subscription` handler, which it calls within `subscribe`. */
  subscribed(): void {
    const upgrades = this.waiting;
    this.waiting = [];
    this.byCredential.clear();
    for (const upgrade of upgrades) upgrade();
  }

  private flush(): void {
    if (this.helper() === undefined) this.waiting.shift()?.();
    const helper = this.helper();
    helper?.subscribe(TOPIC);
    helper?.unsubscribe(TOPIC);
    // Those that nobody helped, since the first one was closed at once.
    this.subscribed();
  }
}
