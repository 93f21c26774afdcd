/** Clients that take for ever: they are closed in time, and nobody waits for them. */
import { connect, type Socket } from 'node:net';
import t, { type Test } from 'tap';
import { call } from './fixtures/http-client.js';
import {
  ADMIN_TOKEN,
  CREDENTIAL,
  EPOCH,
  type Front,
  startFront,
  until,
} from './fixtures/http-front.js';

t.setTimeout(60_000);

/** Documented as about 12 s (docs/operations.md); the library looks every four. */
const CLOSED_WITHIN_MS = 20_000;
/** What others wait at most meanwhile, on a busy machine. */
const SERVED_WITHIN_MS = 1_000;
const CLIENTS_OF_EACH = 20;
/** More than the kernel takes for a client that does not read. */
const LIST_ENTRIES = 50_000;

/** A connection, and whether the server has closed it. */
class SlowClient {
  isClosed = false;
  text = '';
  readonly socket: Socket;
  private timer: NodeJS.Timeout | undefined;

  constructor(
    front: Front,
    readonly what: string,
  ) {
    this.socket = connect(front.port, '127.0.0.1');
    this.socket.on('error', () => undefined);
    this.socket.on('close', () => {
      this.isClosed = true;
      clearInterval(this.timer);
    });
    this.socket.on('data', (chunk) => {
      this.text += chunk.toString('latin1');
    });
  }

  /** Sends a beginning at once and one byte of the rest each second. */
  drip(beginning: string, rest: string): this {
    this.socket.write(beginning);
    let at = 0;
    this.timer = setInterval(() => {
      this.socket.write(rest[at % rest.length] ?? '');
      at += 1;
    }, 1_000);
    return this;
  }

  /** Asks and reads nothing of the answer. */
  deaf(request: string): this {
    this.socket.pause();
    this.socket.write(request);
    return this;
  }

  end(): void {
    clearInterval(this.timer);
    this.socket.destroy();
  }
}

async function start(t: Test): Promise<Front> {
  const entry = { kind: 'agent', reason: 'x'.repeat(200), by: 'root', atMs: 0 };
  const entries = Array.from({ length: LIST_ENTRIES }, (_, id) => ({ ...entry, id: `a${id}` }));
  const at = { epoch: EPOCH, version: LIST_ENTRIES, asOfMs: 0 };
  const front = await startFront({
    kills: ({ kind }) => ({ answer: kind === 'list' ? { ...at, entries } : at }),
  });
  t.teardown(() => front.close());
  return front;
}

t.test('clients that send or read slowly are closed, and others are served', async (t) => {
  const front = await start(t);
  const get = (path: string): string => `GET ${path} HTTP/1.1\r\nHost: a\r\n`;
  const admin = `Authorization: Bearer ${ADMIN_TOKEN}\r\n`;
  const post =
    `POST /api/v1/enrollment-tokens HTTP/1.1\r\nHost: a\r\n${admin}` +
    'Content-Type: application/json\r\n';
  const clients = Array.from({ length: CLIENTS_OF_EACH }, () => [
    new SlowClient(front, 'a header').drip(get('/api/v1/auth/device'), 'X-Slow: aaaaaaaaaaaaaaaa'),
    new SlowClient(front, 'a request line').drip('G', 'ET /aaaaaaaaaaaaaaaaaaaaaaaaaaaaaa'),
    new SlowClient(front, 'a body').drip(`${post}Content-Length: 60000\r\n\r\n{`, ' '),
    new SlowClient(front, 'chunks').drip(`${post}Transfer-Encoding: chunked\r\n\r\n`, '1\r\n \r\n'),
    new SlowClient(front, 'nothing').drip('', ''),
  ]).flat();
  const deaf = new SlowClient(front, 'reading').deaf(`${get('/api/v1/kill-list')}${admin}\r\n`);
  t.teardown(() => {
    for (const client of [...clients, deaf]) client.end();
  });
  const startMs = performance.now();
  let slowestMs = 0;
  let served = 0;
  const isOver = (): boolean => performance.now() - startMs > CLOSED_WITHIN_MS;
  const openOnes = (): SlowClient[] => clients.filter(({ isClosed }) => !isClosed);
  while (openOnes().length > 0 && !isOver()) {
    const askedMs = performance.now();
    const answer = await call(front.url, 'GET', '/api/v1/auth/device', { bearer: CREDENTIAL });
    slowestMs = Math.max(slowestMs, performance.now() - askedMs);
    if (answer.status !== 200) t.fail(`another client was answered ${answer.status}`);
    served += 1;
  }
  const tookMs = Math.round(performance.now() - startMs);
  t.same([...new Set(openOnes().map(({ what }) => what))], [], `all closed after ${tookMs} ms`);
  t.ok(slowestMs < SERVED_WITHIN_MS, `${served} served, the slowest in ${slowestMs.toFixed()} ms`);
  t.ok(tookMs > 5_000, 'a client may take its time for a while');
  t.equal(front.actor.last('mintToken'), undefined);
  await until(() => front.server.snapshot().inFlight === 0, CLOSED_WITHIN_MS);
  t.equal(deaf.text, '', 'and who never reads is closed too');
});
