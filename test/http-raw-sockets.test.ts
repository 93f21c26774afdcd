/**
 * What the library itself does with malformed HTTP: it may refuse, close or hang, but the process
 * lives, a hanging connection is closed within its idle time, and nothing reaches an actor.
 */
import { connect } from 'node:net';
import t from 'tap';
import { call, rawRequest } from './fixtures/http-client.js';
import { ADMIN_TOKEN, CREDENTIAL, DEVICE_ID, startFront, until } from './fixtures/http-front.js';

const AUTH = `Authorization: Bearer ${CREDENTIAL}`;
const PATH = '/api/v1/auth/device';
/** The library's idle time is about 12 s, in steps of 4. */
const IDLE_MAX_MS = 20_000;

const MALFORMED: Readonly<Record<string, string>> = {
  'HTTP/1.0': `GET ${PATH} HTTP/1.0\r\nHost: a\r\n${AUTH}\r\n\r\n`,
  'HTTP/0.9': `GET ${PATH}\r\n\r\n`,
  'an absolute target': `GET http://a${PATH} HTTP/1.1\r\nHost: a\r\n${AUTH}\r\n\r\n`,
  'an asterisk': `OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n`,
  CONNECT: `CONNECT a:80 HTTP/1.1\r\nHost: a\r\n\r\n`,
  'a TLS hello': `\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03${'\x01'.repeat(80)}\r\n\r\n`,
  'an HTTP/2 preface': 'PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n',
  'no method': ` ${PATH} HTTP/1.1\r\nHost: a\r\n\r\n`,
  'a length that is no number':
    'POST /api/v1/enroll HTTP/1.1\r\nHost: a\r\nContent-Length: x\r\n\r\n',
  'a negative length': `POST /api/v1/enroll HTTP/1.1\r\nHost: a\r\nContent-Length: -5\r\n\r\n`,
  'a length and chunks':
    'POST /api/v1/enroll HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n' +
    'Content-Length: 5\r\n\r\n0\r\n\r\n',
  'a chunk size that is no number':
    'POST /api/v1/enroll HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\nabc\r\n',
};

/** What this build of the library answers with silence. */
const HANGING: Readonly<Record<string, string>> = {
  'a header name with an underscore': `GET ${PATH} HTTP/1.1\r\nHost: a\r\nfoo_bar: 1\r\n\r\n`,
  'a header name with a space': `GET ${PATH} HTTP/1.1\r\nHost: a\r\nfoo bar: 1\r\n\r\n`,
  'a hundred headers': `GET ${PATH} HTTP/1.1\r\nHost: a\r\n${'X-A: b\r\n'.repeat(120)}\r\n`,
  'no Host': `GET ${PATH} HTTP/1.1\r\n${AUTH}\r\n\r\n`,
  'a folded header': `GET ${PATH} HTTP/1.1\r\nHost: a\r\nX-A: b\r\n  c\r\n\r\n`,
  'a control character': `GET ${PATH} HTTP/1.1\r\nHost: a\r\nX-A: a\x00b\r\n\r\n`,
  'a bare line feed': `GET ${PATH} HTTP/1.1\r\nHost: a\r\nX-A: a\nX-B: b\r\n\r\n`,
  'headers that never end': `GET ${PATH} HTTP/1.1\r\nHost: a\r\n`,
  'headers beyond the limit': `GET ${PATH} HTTP/1.1\r\nHost: a\r\nX-A: ${'a'.repeat(70_000)}`,
  'nothing at all': '',
  'a body that never comes':
    `POST /api/v1/enroll HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n` +
    'Content-Length: 50\r\n\r\n{"tok',
  'chunks that never end':
    'POST /api/v1/enroll HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n' +
    'Transfer-Encoding: chunked\r\n\r\n5\r\nab',
};

t.test(
  'malformed requests are refused, or cut off within the idle time, and the server lives',
  async (t) => {
    const front = await startFront();
    t.teardown(() => front.close());
    const waiting = Object.entries({ ...MALFORMED, ...HANGING }).map(async ([what, request]) => {
      const bytes = Buffer.from(request, 'latin1');
      const answer = await rawRequest(front.port, bytes, () => false, IDLE_MAX_MS);
      t.ok(answer.closed, `${what}: the connection is closed`);
      t.notMatch(answer.text, /HTTP\/1\.1 [23]/, `${what}: nobody is let in`);
      t.equal((await call(front.url, 'GET', '/healthz')).status, 200, `${what}: the server lives`);
    });
    await Promise.all(waiting);
    t.match(front.server.snapshot(), { inFlight: 0 });
    t.equal(front.actor.asked.length, 0);
  },
);

t.test('a request in many pieces is answered or refused, and never twice', async (t) => {
  const front = await startFront();
  t.teardown(() => front.close());
  const request = `GET ${PATH} HTTP/1.1\r\nHost: a\r\n${AUTH}\r\n\r\n`;
  for (const at of [5, PATH.length + 4, PATH.length + 16, 60, request.length - 1]) {
    const socket = connect(front.port, '127.0.0.1');
    socket.setNoDelay(true);
    let text = '';
    let closed = false;
    socket.on('data', (chunk) => {
      text += chunk.toString('latin1');
    });
    socket.on('close', () => {
      closed = true;
    });
    socket.on('error', () => undefined);
    socket.write(request.slice(0, at));
    await new Promise((resolve) => setTimeout(resolve, 20));
    socket.write(request.slice(at));
    await until(() => closed || /"user":"ann"/.test(text));
    t.match(text, /^HTTP\/1\.1 (200|505) /, `split at ${at}`);
    t.equal(text.match(/HTTP\/1\.1 /g)?.length, 1);
    socket.destroy();
  }
});

t.test('a body in many pieces arrives whole', async (t) => {
  const front = await startFront();
  t.teardown(() => front.close());
  const body = JSON.stringify({ user: 'ann', ttlSeconds: 60 });
  const head =
    `POST /api/v1/enrollment-tokens HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n` +
    `Authorization: Bearer ${ADMIN_TOKEN}\r\nContent-Length: ${body.length}\r\n\r\n`;
  const socket = connect(front.port, '127.0.0.1');
  t.teardown(() => socket.destroy());
  socket.setNoDelay(true);
  let text = '';
  socket.on('data', (chunk) => {
    text += chunk.toString('latin1');
  });
  socket.write(head);
  for (const [index, piece] of [...body].entries()) {
    socket.write(piece);
    await until(() => front.server.snapshot().bodyBytes === index + 1);
  }
  await until(() => text.includes('expiresAt'));
  t.same(front.actor.last('mintToken')?.payload, { user: 'ann', ttlSeconds: 60, by: 'root' });
});

t.test('pipelined requests never get each other’s answers', async (t) => {
  const front = await startFront();
  t.teardown(() => front.close());
  const admitted = `GET ${PATH} HTTP/1.1\r\nHost: a\r\n${AUTH}\r\n\r\n`;
  const refused = `GET ${PATH} HTTP/1.1\r\nHost: a\r\n\r\n`;
  const asAdmin = `Authorization: Bearer ${ADMIN_TOKEN}`;
  const list = `GET /api/v1/devices HTTP/1.1\r\nHost: a\r\n${asAdmin}\r\n\r\n`;
  for (const [first, second] of [
    [admitted, refused],
    [refused, admitted],
    [admitted, list],
    [list, refused],
  ] as const) {
    const bytes = first + second;
    const answer = await rawRequest(front.port, bytes, () => false, 300);
    const statuses = [...answer.text.matchAll(/HTTP\/1\.1 (\d+) /g)].map(([, status]) => status);
    const expected = [first, second].map((one) => (one === refused ? '401' : '200'));
    t.same(statuses, expected.slice(0, statuses.length), 'in order, as far as answered');
    t.ok(statuses.length === 2 || answer.closed, 'what is not answered is closed');
  }
  t.equal((await call(front.url, 'GET', '/healthz')).status, 200);
  t.equal(front.server.snapshot().inFlight, 0);
});

t.test('a body that a route does not take does not become the next request', async (t) => {
  const front = await startFront();
  t.teardown(() => front.close());
  const smuggled = `POST /api/v1/devices/${DEVICE_ID}/revoke HTTP/1.1\r\nHost: a\r\n\r\n`;
  for (const path of [PATH, '/healthz', '/nowhere', '/api/v1/devices']) {
    const answer = await rawRequest(
      front.port,
      `GET ${path} HTTP/1.1\r\nHost: a\r\nContent-Length: ${smuggled.length}\r\n\r\n${smuggled}`,
      () => false,
      200,
    );
    t.equal(answer.text.match(/HTTP\/1\.1 /g)?.length, 1, path);
  }
  t.equal(front.actor.last('revoke'), undefined);
});
