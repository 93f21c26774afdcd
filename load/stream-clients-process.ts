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
  /** Cuts all of them. */
  | { readonly type: 'cut' };

/** What it answers: monotonic times, which all processes of a machine share. */
export interface StreamAnswer {
  readonly lastMs: number;
  readonly streams: number;
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
const DELTA = /"type":"delta"(?:,"from":\d+)?,"version":(\d+)/g;

/** Small frames only: a version is found in the text, without parsing it. */
function received(socket: Socket, text: string): void {
  if (text.includes(PING)) socket.write(PONG);
  for (const [, digits] of text.matchAll(DELTA)) {
    const version = Number(digits);
    const known = arrived.get(version) ?? { count: 0, lastMs: 0 };
    known.count += 1;
    known.lastMs = nowMs();
    arrived.set(version, known);
  }
  settle();
}

function settle(): void {
  if (waiting === undefined) return;
  const known = arrived.get(waiting.version);
  if (known === undefined || known.count < sockets.size) return;
  const { done } = waiting;
  waiting = undefined;
  done({ lastMs: known.lastMs, streams: sockets.size });
}

function openOne(url: URL, path: string, token: string): Promise<void> {
  const socket = connect(Number(url.port), url.hostname);
  socket.setNoDelay(true);
  socket.write(
    `GET ${path} HTTP/1.1\r\nhost: load\r\nconnection: upgrade\r\nupgrade: websocket\r\n` +
      `sec-websocket-version: 13\r\nsec-websocket-key: ${randomBytes(16).toString('base64')}\r\n` +
      `sec-websocket-protocol: halo.kill-list.v1\r\nauthorization: Bearer ${token}\r\n\r\n`,
  );
  return new Promise((resolve, reject) => {
    const failed = (): void => reject(new Error('a stream was refused or cut'));
    socket.once('error', failed);
    socket.once('close', failed);
    let head = '';
    const first = (chunk: Buffer): void => {
      head += chunk.toString('latin1');
      const end = head.indexOf('\r\n\r\n');
      if (end < 0) return;
      if (!head.startsWith('HTTP/1.1 101')) {
        failed();
        return;
      }
      socket.off('data', first);
      socket.off('close', failed);
      sockets.add(socket);
      socket.on('close', () => sockets.delete(socket));
      socket.on('data', (later) => received(socket, later.toString('latin1')));
      received(socket, head.slice(end + 4));
      resolve();
    };
    socket.on('data', first);
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
      return { lastMs: nowMs(), streams: sockets.size };
    }
    case 'version':
      return new Promise((done) => {
        waiting = { version: command.version, done };
        settle();
      });
    case 'cut':
      for (const socket of sockets) socket.destroy();
      sockets.clear();
      arrived.clear();
      return { lastMs: nowMs(), streams: 0 };
  }
}

process.on('message', (command: StreamCommand) => {
  void run(command).then(
    (answer) => process.send?.(answer),
    (error: unknown) => process.send?.({ error: String(error) }),
  );
});
