/**
 * Keep-alive HTTP/1.1 connections to one server, as lean as can be: each has one request out at
 * most, since the server takes no pipelining. What finds none idle waits in line.
 */
import { connect, type Socket } from 'node:net';

/** An answer as it came; `status` 0 when the connection broke first. */
export interface HttpAnswer {
  readonly status: number;
  readonly body: string;
}

/** One request: its text is made when a connection is free, and that is when it is sent. */
export interface HttpExchange {
  /** The whole request, with an empty line, and its body. */
  text(): string;
  answered(answer: HttpAnswer): void;
}

const BROKEN: HttpAnswer = { status: 0, body: '' };
const HEAD_END = '\r\n\r\n';
const LENGTH = /\r\ncontent-length: (\d+)/i;

/** At most so many connections; those that are closed while idle are opened again when needed. */
export class HttpConnections {
  private readonly idle: Connection[] = [];
  private readonly waiting: HttpExchange[] = [];
  private next = 0;
  private open = 0;
  private stopped = false;

  constructor(
    private readonly url: URL,
    private readonly connectionsMax: number,
  ) {}

  /** Requests that wait for a connection. */
  get inLine(): number {
    return this.waiting.length - this.next;
  }

  /** Opens all connections, some at a time, so that no later request pays for that. */
  async fill(): Promise<void> {
    const worker = async (): Promise<void> => {
      while (this.open < this.connectionsMax) {
        const connection = this.connect();
        await connection.connected;
        this.idle.push(connection);
      }
    };
    await Promise.all(Array.from({ length: OPENING_MAX }, worker));
  }

  send(exchange: HttpExchange): void {
    let connection = this.idle.pop();
    // Those below it have been idle for longer still.
    for (; connection?.isOld; connection = this.idle.pop()) connection.destroy();
    if (connection !== undefined) connection.send(exchange);
    else if (this.open < this.connectionsMax) this.connect().send(exchange);
    else this.waiting.push(exchange);
  }

  /** Closes every connection; what is out is answered as broken. */
  stop(): void {
    this.stopped = true;
    for (const connection of this.idle) connection.destroy();
  }

  private connect(): Connection {
    this.open += 1;
    return new Connection(this.url, {
      freed: (connection) => this.freed(connection),
      ended: (connection) => this.ended(connection),
    });
  }

  private freed(connection: Connection): void {
    const exchange = this.waiting[this.next];
    if (this.stopped) connection.destroy();
    else if (exchange === undefined) this.idle.push(connection);
    else {
      this.next += 1;
      if (this.next >= COMPACT_AT) {
        this.waiting.splice(0, this.next);
        this.next = 0;
      }
      connection.send(exchange);
    }
  }

  private ended(connection: Connection): void {
    this.open -= 1;
    const at = this.idle.indexOf(connection);
    if (at >= 0) this.idle.splice(at, 1);
    const exchange = this.waiting[this.next];
    if (exchange === undefined || this.stopped) return;
    this.next += 1;
    this.connect().send(exchange);
  }
}

/** What was read is copied out of it before anything else is: one is enough for all. */
const READ_BUFFER = Buffer.alloc(64 * 1024);
/** Handshakes under way at once: more only wait in the server's backlog. */
const OPENING_MAX = 64;
/**
 * An older one is not used again: the server closes what is idle for 10 s, and a request that meets
 * that is lost. `docs/operations.md` asks the same of proxies.
 */
const IDLE_MAX_MS = 5_000;
/** The line is moved up when so many of it have been served: seldom, and never much at once. */
const COMPACT_AT = 4_096;

interface ConnectionOwner {
  freed(connection: Connection): void;
  ended(connection: Connection): void;
}

class Connection {
  readonly connected: Promise<void>;
  private readonly socket: Socket;
  private exchange: HttpExchange | undefined;
  private unread = '';
  private idleSinceMs = performance.now();

  constructor(
    url: URL,
    private readonly owner: ConnectionOwner,
  ) {
    this.socket = connect({
      port: Number(url.port),
      host: url.hostname,
      noDelay: true,
      onread: {
        buffer: READ_BUFFER,
        callback: (bytes) => {
          this.received(READ_BUFFER.toString('latin1', 0, bytes));
          return true;
        },
      },
    });
    this.socket.on('error', () => undefined);
    this.socket.on('close', () => this.closed());
    this.connected = new Promise((resolve, reject) => {
      this.socket.once('connect', resolve);
      this.socket.once('close', () => reject(new Error('A connection was refused.')));
    });
    this.connected.catch(() => undefined);
  }

  /** Whether the server may be about to close it. */
  get isOld(): boolean {
    return performance.now() - this.idleSinceMs > IDLE_MAX_MS;
  }

  send(exchange: HttpExchange): void {
    this.exchange = exchange;
    this.socket.write(exchange.text(), 'latin1');
  }

  destroy(): void {
    this.socket.destroy();
  }

  private received(chunk: string): void {
    const text = this.unread === '' ? chunk : this.unread + chunk;
    const end = text.indexOf(HEAD_END);
    const head = end < 0 ? '' : text.slice(0, end);
    const length = Number(LENGTH.exec(head)?.[1] ?? 0);
    const bodyAt = end + HEAD_END.length;
    if (end < 0 || text.length < bodyAt + length) {
      this.unread = text;
      return;
    }
    this.unread = '';
    const { exchange } = this;
    this.exchange = undefined;
    this.idleSinceMs = performance.now();
    const body = text.slice(bodyAt, bodyAt + length);
    exchange?.answered({ status: Number(head.slice(9, 12)), body });
    this.owner.freed(this);
  }

  private closed(): void {
    const { exchange } = this;
    this.exchange = undefined;
    this.owner.ended(this);
    exchange?.answered(BROKEN);
  }
}
