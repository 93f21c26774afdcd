/** Headers, bodies and frames at each limit, and one over it. */
import { connect } from 'node:net';
import t, { type Test } from 'tap';
import { CLIENT_FRAME_BYTES_MAX, CLOSE } from '../src/http/push/frames.js';
import { call, hasWholeAnswer, rawRequest } from './fixtures/http-client.js';
import { ADMIN_TOKEN, CREDENTIAL, startFront, until } from './fixtures/http-front.js';
import { PushFront } from './fixtures/push-front.js';

/** Request line and headers may have so much (docs/operations.md). */
const HEAD_BYTES_MAX = 4 * 1024;
/** What the library takes; from one more on it does not answer (test/http-raw-sockets.test.ts). */
const HEADERS_MAX = 98;
const BODY_BYTES_MAX = 64 * 1024;
const CHUNK_BYTES = 16 * 1024;

const CREDENTIALS = `Authorization: Bearer ${CREDENTIAL}`;
const ASKING = `GET /api/v1/auth/device HTTP/1.1\r\nHost: a\r\n${CREDENTIALS}\r\n`;

async function start(t: Test): Promise<number> {
  const front = await startFront();
  t.teardown(() => front.close());
  return front.port;
}

/** The head of a request that has so many bytes, the empty line included. */
function headOf(bytes: number): string {
  const beginning = `${ASKING}X-Padding: `;
  return `${beginning}${'p'.repeat(bytes - beginning.length - 4)}\r\n\r\n`;
}

/** Sends pieces far enough apart that each is read alone; resolves with the answer's first line. */
function inPieces(port: number, pieces: readonly string[]): Promise<string> {
  return new Promise((resolve, reject) => {
    const socket = connect(port, '127.0.0.1').setNoDelay(true);
    let text = '';
    socket.on('error', reject);
    socket.on('close', () => resolve(text.split('\r\n')[0] ?? ''));
    socket.on('data', (chunk) => {
      text += chunk.toString('latin1');
      if (hasWholeAnswer(text)) socket.destroy();
    });
    const rest = [...pieces];
    const next = (): void => {
      if (socket.destroyed || rest.length === 0) return;
      socket.write(rest.shift() ?? '');
      setTimeout(next, 20);
    };
    next();
  });
}

t.test('a head of 4 KB is read, however it arrives; one byte more only by luck', async (t) => {
  const port = await start(t);
  const halves = (bytes: number): string[] => [
    headOf(bytes).slice(0, bytes / 2),
    headOf(bytes).slice(bytes / 2),
  ];
  t.match(await inPieces(port, [headOf(HEAD_BYTES_MAX)]), / 200 /);
  t.match(await inPieces(port, halves(HEAD_BYTES_MAX)), / 200 /);
  for (const bytes of [HEAD_BYTES_MAX + 1, 2 * HEAD_BYTES_MAX, 15 * HEAD_BYTES_MAX]) {
    t.match(await inPieces(port, halves(bytes)), / 431 /, `${bytes} bytes`);
    t.match(await inPieces(port, [headOf(bytes)]), / (200|431) /, 'as one piece it may fit');
  }
});

t.test('as many headers as the library takes are read', async (t) => {
  const port = await start(t);
  const head = `${ASKING}${'X: y\r\n'.repeat(HEADERS_MAX - 2)}\r\n`;
  t.match((await rawRequest(port, head)).text, / 200 /);
});

t.test('a body of 64 KB is read, by length and in chunks; one byte more is 413', async (t) => {
  const port = await start(t);
  const head =
    'POST /api/v1/enrollment-tokens HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n' +
    `Authorization: Bearer ${ADMIN_TOKEN}\r\n`;
  for (const [bytes, status] of [
    [BODY_BYTES_MAX, / 201 /],
    [BODY_BYTES_MAX + 1, / 413 /],
  ] as const) {
    const body = `{"user":"ann"${' '.repeat(bytes - 14)}}`;
    const chunks: string[] = [];
    for (let at = 0; at < bytes; at += CHUNK_BYTES) {
      const chunk = body.slice(at, at + CHUNK_BYTES);
      chunks.push(`${chunk.length.toString(16)}\r\n${chunk}\r\n`);
    }
    const chunked = `${head}Transfer-Encoding: chunked\r\n\r\n`;
    const whole = `${bytes.toString(16)}\r\n${body}\r\n`;
    const end = '0\r\n\r\n';
    const told = [`${head}Content-Length: ${bytes}\r\n\r\n`, body];
    t.match(await inPieces(port, told), status, `${bytes} bytes by length`);
    t.match(await inPieces(port, [chunked, whole, end]), status, `${bytes} bytes in one chunk`);
    t.match(await inPieces(port, [chunked, ...chunks, end]), status, `${bytes} bytes in chunks`);
  }
});

t.test(
  'an idempotency key has 255 characters at most, a request id that is kept 128',
  async (t) => {
    const front = await startFront();
    t.teardown(() => front.close());
    const mint = (key: string) =>
      call(front.url, 'POST', '/api/v1/enrollment-tokens', {
        bearer: ADMIN_TOKEN,
        body: { user: 'ann' },
        headers: { 'idempotency-key': key },
      });
    t.equal((await mint('k'.repeat(255))).status, 201);
    t.match(await mint('k'.repeat(256)), { status: 400, json: { code: 'headers_invalid' } });
    const named = async (id: string): Promise<string | undefined> =>
      (await call(front.url, 'GET', '/healthz', { headers: { 'x-request-id': id } })).headers[
        'x-request-id'
      ];
    t.equal(await named('r'.repeat(128)), 'r'.repeat(128));
    t.not(await named('r'.repeat(129)), 'r'.repeat(129));
  },
);

t.test('a frame of a stream’s client has 256 bytes at most', async (t) => {
  const push = await PushFront.start();
  t.teardown(() => push.close());
  await until(() => push.front.server.snapshot().push?.version === 0);
  const frameOf = (bytes: number): string => '{"type":"ack","version":0}'.padEnd(bytes, ' ');
  const [fits, over, far] = [await push.open(), await push.open(), await push.open()];
  for (const client of [fits, over, far]) await until(() => client.frames.length > 0);
  fits.send(frameOf(CLIENT_FRAME_BYTES_MAX));
  over.send(frameOf(CLIENT_FRAME_BYTES_MAX + 1));
  far.send(frameOf(60_000));
  await Promise.all([over.ended, far.ended]);
  t.equal(over.closed?.code, CLOSE.protocol);
  push.kill('a');
  await until(() => fits.list.version === 1);
  t.equal(fits.closed, undefined);
});
