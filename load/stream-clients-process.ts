/**
 * A process of gateways for load runs: holds many streams of the kill list on plain sockets, as
 * lean as can be, and says when frames arrived. Asked over IPC, one command at a time.
 */
import { randomBytes } from 'node:crypto';
import { connect, type Socket } from 'node:net';

/** What the parent asks. */
export type StreamCommand =
  /** Opens so many streams, with the tokens in turn; `since` when they come back. */
  | {
      readonly type: 'open';
      readonly url: string;
      readonly path: string;
      readonly tokens: readonly string[];
      readonly count: number;
      readonly since?: string;
    }
  /** Waits until every stream has had a frame with this version. */
  | { readonly type: 'version'; readonly version: number }
  /** Says how many are open. */
  | { readonly type: 'count' }
  /** Cuts all of them. */
  | { readonly type: 'cut' };

/** What it answers: monotonic times, which all processes of a machine share. */
export interface StreamAnswer {
  readonly lastMs: number;
  readonly streams: number;
  /** CPU time that this process has used so far: what the clients themselves take of the time. */
  readonly cpuMs: number;
}

/** Handshakes under way at once: more only wait in the server's backlog. */
const OPENING_MAX = 200;

const sockets = new Set<Socket>();
const arrived = new Map<number, { count: number; lastMs: number }>();
let waiting: { version: number; done: (answer: StreamAnswer) => void } | undefined;

function nowMs(): number {
  const [seconds, nanoseconds] = process.hrtime();
  return seconds * 1000 + nanoseconds / 1e6;
}

/** An empty ping, and the masked pong that says that somebody is there. */
const PING = '\x89\x00';
const PONG = Buffer.from([0x8a, 0x80, 0, 0, 0, 0]);
/** What brings a stream to a version: a delta, or a snapshot of a list that fits on one page. */
const VERSION = /"type":"(?:delta"(?:,"from":\d+)?|snapshot","epoch":"[0-9a-f]+"),"version":(\d+)/g;
const HEARTBEAT = '"type":"heartbeat"';
/** A heartbeat alone, perhaps with a ping. */
const HEARTBEAT_BYTES_MAX = 90;
/** What was read is copied out of it before anything else is: one is enough for all. */
const READ_BUFFER = Buffer.alloc(64 * 1024);

/** Small frames only: a version is found in the text, without parsing it. */
function received(socket: Socket, text: string): void {
  if (text.includes(PING)) socket.write(PONG);
  if (text.length < HEARTBEAT_BYTES_MAX && text.includes(HEARTBEAT)) return;
  for (const [, digits] of text.matchAll(VERSION)) {
    const version = Number(digits);
    const known = arrived.get(version) ?? { count: 0, lastMs: 0 };
    known.count += 1;
    known.lastMs = nowMs();
    arrived.set(version, known);
  }
  settle();
}

function answerAt(lastMs: number): StreamAnswer {
  const { user, system } = process.cpuUsage();
  return { lastMs, streams: sockets.size, cpuMs: (user + system) / 1000 };
}

function settle(): void {
  if (waiting === undefined) return;
  const known = arrived.get(waiting.version);
  if (known === undefined || known.count < sockets.size) return;
  const { done } = waiting;
  waiting = undefined;
  done(answerAt(known.lastMs));
}

function openOne(url: URL, path: string, token: string): Promise<void> {
  let head = '';
  let opened: () => void = () => undefined;
  let failed: () => void = () => undefined;
  let isOpen = false;
  /** The answer to the handshake, and whatever came right behind it. */
  const began = (text: string): void => {
    head += text;
    const end = head.indexOf('\r\n\r\n');
    if (end < 0) return;
    if (!head.startsWith('HTTP/1.1 101')) {
      failed();
      return;
    }
    isOpen = true;
    sockets.add(socket);
    received(socket, head.slice(end + 4));
    opened();
  };
  const socket = connect({
    port: Number(url.port),
    host: url.hostname,
    noDelay: true,
    onread: {
      buffer: READ_BUFFER,
      callback: (bytes) => {
        const text = READ_BUFFER.toString('latin1', 0, bytes);
        if (isOpen) received(socket, text);
        else began(text);
        return true;
      },
    },
  });
  socket.write(
    `GET ${path} HTTP/1.1\r\nhost: load\r\nconnection: upgrade\r\nupgrade: websocket\r\n` +
      `sec-websocket-version: 13\r\nsec-websocket-key: ${randomBytes(16).toString('base64')}\r\n` +
      `sec-websocket-protocol: halo.kill-list.v1\r\nauthorization: Bearer ${token}\r\n\r\n`,
  );
  socket.on('error', () => undefined);
  socket.on('close', () => {
    sockets.delete(socket);
    failed();
    settle();
  });
  return new Promise((resolve, reject) => {
    opened = resolve;
    failed = () => reject(new Error(`a stream was refused or cut: ${head.slice(0, 200)}`));
  });
}

async function run(command: StreamCommand): Promise<StreamAnswer> {
  switch (command.type) {
    case 'open': {
      const { tokens, count, since } = command;
      const url = new URL(command.url);
      const path = since === undefined ? command.path : `${command.path}?since=${since}`;
      let next = 0;
      const worker = async (): Promise<void> => {
        for (let index = next++; index < count; index = next++) {
          await openOne(url, path, tokens[index % tokens.length] ?? '');
        }
      };
      await Promise.all(Array.from({ length: OPENING_MAX }, worker));
      return answerAt(nowMs());
    }
    case 'version':
      return new Promise((done) => {
        waiting = { version: command.version, done };
        settle();
      });
    case 'count':
      return answerAt(nowMs());
    case 'cut':
      for (const socket of sockets) socket.destroy();
      sockets.clear();
      arrived.clear();
      return answerAt(nowMs());
  }
}

process.on('message', (command: StreamCommand) => {
  void run(command).then(
    (answer) => process.send?.(answer),
    (error: unknown) => process.send?.({ error: String(error) }),
  );
});
