/** The door for devices: who is let in, what is said to the others, and that nothing slips past. */
import { connect } from 'node:net';
import t from 'tap';
import { packAllowed } from '../src/actors/devices/messages.js';
import { digestOf } from '../src/actors/secrets.js';
import { type Clock, systemClock } from '../src/runtime/clock.js';
import { failure } from '../src/runtime/failure.js';
import { FRESHNESS_MAX_MS } from '../src/runtime/freshness.js';
import { call, rawRequest } from './fixtures/http-client.js';
import {
  ADMIN_TOKEN,
  CREDENTIAL,
  DEVICE_ID,
  freshSecret,
  REVOKED_CREDENTIAL,
  startFront,
  until,
} from './fixtures/http-front.js';

const PATH = '/api/v1/auth/device';
const METHODS = ['GET', 'POST', 'PUT', 'PATCH', 'DELETE', 'OPTIONS', 'TRACE', 'PROPFIND'];

t.test('any method and any path below lets a known device in', async (t) => {
  const front = await startFront();
  t.teardown(() => front.close());
  for (const method of METHODS) {
    for (const path of [PATH, `${PATH}/`, `${PATH}/some/page?x=%zz`, `${PATH}//a%2Fb`]) {
      const answer = await call(front.url, method, path, { bearer: CREDENTIAL });
      t.equal(answer.status, 200, `${method} ${path}`);
      t.same(answer.json, { device: { id: DEVICE_ID, user: 'ann' } });
      t.match(answer.headers, {
        'x-halo-device': DEVICE_ID,
        'x-halo-user': 'ann',
        'content-type': 'application/json',
        'cache-control': 'no-store',
        'x-request-id': /^[0-9a-f]{12}-[0-9a-z]+$/,
      });
    }
  }
  t.equal(front.actor.last('authenticate')?.payload, digestOf(CREDENTIAL), 'only a digest is sent');
  t.equal(front.log.lines.length, 0, 'an allowed authentication is not logged');
});

t.test('HEAD has the headers and no body, again and again on one connection', async (t) => {
  const front = await startFront();
  t.teardown(() => front.close());
  const one = `HEAD ${PATH} HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer ${CREDENTIAL}\r\n\r\n`;
  const socket = connect(front.port, '127.0.0.1');
  t.teardown(() => socket.destroy());
  let text = '';
  socket.on('data', (chunk) => {
    text += chunk.toString('latin1');
  });
  for (const count of [1, 2, 3]) {
    socket.write(one);
    await until(() => text.split('\r\n\r\n').length === count + 1);
  }
  t.equal(text.match(/^HTTP\/1\.1 200 OK/gm)?.length, 3);
  t.equal(text.match(/^content-length: 73/gm)?.length, 3, 'the length that GET would send');
  t.notMatch(text, '{', 'no body');
  const refused = await call(front.url, 'HEAD', PATH);
  t.equal(refused.status, 401);
  t.equal(refused.text, '');
});

t.test('the scheme may be written in any case and be followed by several spaces', async (t) => {
  const front = await startFront();
  t.teardown(() => front.close());
  for (const scheme of ['bearer ', 'BEARER ', 'BeArEr    ']) {
    const headers = { authorization: scheme + CREDENTIAL };
    t.equal((await call(front.url, 'GET', PATH, { headers })).status, 200, scheme);
  }
});

t.test('a missing credential is told apart from a wrong one', async (t) => {
  const front = await startFront();
  t.teardown(() => front.close());
  for (const headers of [{}, { authorization: '' }, { authorization: 'Bearer' }]) {
    const answer = await call(front.url, 'GET', PATH, { headers });
    t.equal(answer.status, 401);
    t.equal(answer.json.code, 'credential_missing');
    t.equal(answer.headers['www-authenticate'], 'Bearer');
    t.equal(answer.headers['content-type'], 'application/problem+json');
  }
  t.equal(front.actor.asked.length, 0, 'nobody was asked');
});

t.test('other schemes, other kinds of secrets and cut credentials are unknown', async (t) => {
  const front = await startFront();
  t.teardown(() => front.close());
  const wrong = [
    `Basic ${Buffer.from('ann:secret').toString('base64')}`,
    `Token ${CREDENTIAL}`,
    CREDENTIAL,
    `Bearer ${CREDENTIAL} ${CREDENTIAL}`,
    `Bearer ${ADMIN_TOKEN}`,
    `Bearer ${freshSecret('enroll')}`,
    `Bearer ${freshSecret('gateway')}`,
    `Bearer ${freshSecret('device')}`,
    `Bearer ${CREDENTIAL.slice(0, -1)}`,
    `Bearer ${CREDENTIAL.slice(1)}`,
    `Bearer ${CREDENTIAL}x`,
    `Bearer ${CREDENTIAL.toUpperCase()}`,
    'Bearer halo_device_',
    `Bearer halo_device_${'é'.repeat(49)}`,
    `Bearer ${'x'.repeat(3000)}`,
  ];
  for (const authorization of wrong) {
    const answer = await call(front.url, 'GET', PATH, {
      headers: { authorization: Buffer.from(authorization, 'utf8').toString('latin1') },
    });
    t.equal(answer.status, 401, authorization.slice(0, 12));
    t.equal(answer.json.code, 'device_unknown');
    t.notOk(answer.text.includes(authorization.slice(7)), 'the answer does not repeat it');
  }
  t.equal(front.actor.asked.length, 1, 'only one of the right length is asked about');
});

t.test('a mistyped credential is said to be mistyped, a guessed one is not', async (t) => {
  const front = await startFront();
  t.teardown(() => front.close());
  const middle = CREDENTIAL[30] === 'x' ? 'y' : 'x';
  const mistyped = CREDENTIAL.slice(0, 30) + middle + CREDENTIAL.slice(31);
  const answer = await call(front.url, 'GET', PATH, { bearer: mistyped });
  t.match(answer.json, { code: 'device_unknown', detail: /checksum/ });
  const guessed = await call(front.url, 'GET', PATH, { bearer: freshSecret('device') });
  t.equal(guessed.json.detail, undefined);
});

t.test('a second Authorization header is refused, whichever of them is good', async (t) => {
  const front = await startFront();
  t.teardown(() => front.close());
  const good = `Bearer ${CREDENTIAL}`;
  for (const [first, second] of [
    [good, 'Bearer x'],
    ['Bearer x', good],
    [good, good],
  ]) {
    const answer = await rawRequest(
      front.port,
      `GET ${PATH} HTTP/1.1\r\nHost: a\r\nAuthorization: ${first}\r\n` +
        `authorization: ${second}\r\n\r\n`,
    );
    // Not 400: nginx makes a 500 of any answer to auth_request but 2xx, 401 and 403.
    t.match(answer.text, /^HTTP\/1\.1 401 /);
    t.match(answer.text, '"credential_missing"');
    t.match(answer.text, 'must come once');
  }
  t.equal(front.actor.asked.length, 0);
  t.equal(front.limiter.asked.length, 0, 'nothing was tried, so nothing failed');
});

t.test('a revoked device is refused with 403, whatever else happens with its code', async (t) => {
  const front = await startFront();
  t.teardown(() => front.close());
  const answer = await call(front.url, 'GET', PATH, { bearer: REVOKED_CREDENTIAL });
  t.equal(answer.status, 403);
  t.equal(answer.json.code, 'device_revoked');
  t.equal(answer.headers['www-authenticate'], undefined);
});

t.test('what goes wrong behind the door is 503 with Retry-After, or 500', async (t) => {
  let answer: unknown;
  const front = await startFront({ respond: () => ({ answer }) });
  t.teardown(() => front.close());
  for (const code of [
    'store_unavailable',
    'overloaded',
    'deadline_exceeded',
    'actor_restarted',
    'outcome_unknown',
    'history_changed',
    'incompatible',
  ]) {
    answer = failure(code, 'connect ECONNREFUSED 10.1.2.3:5432', 3);
    const got = await call(front.url, 'GET', PATH, { bearer: CREDENTIAL });
    t.equal(got.status, 503, code);
    t.equal(got.headers['retry-after'], '3');
    t.equal(got.json.retryable, true);
    t.notMatch(got.text, '10.1.2.3', 'the store is not described to callers');
  }
  for (const broken of [failure('internal_error'), failure('no_such_code'), undefined, null, 7]) {
    answer = broken;
    const got = await call(front.url, 'GET', PATH, { bearer: CREDENTIAL });
    t.equal(got.status, 500);
    t.equal(got.json.code, 'internal_error');
  }
});

t.test('an allow on knowledge older than a second is answered stale', async (t) => {
  let nowMs = 50_000;
  const clock: Clock = { ...systemClock, monotonicMs: () => nowMs };
  let freshSinceMs = 0;
  const front = await startFront({
    clock,
    respond: () => ({ answer: packAllowed(DEVICE_ID, 'ann'), freshSinceMs }),
  });
  t.teardown(() => front.close());
  const statusAt = async (ageMs: number): Promise<number> => {
    nowMs += 10_000;
    freshSinceMs = nowMs - ageMs;
    return (await call(front.url, 'GET', PATH, { bearer: CREDENTIAL })).status;
  };
  t.equal(await statusAt(0), 200);
  t.equal(await statusAt(FRESHNESS_MAX_MS), 200);
  t.equal(await statusAt(FRESHNESS_MAX_MS + 1), 503);
  nowMs += 10_000;
  freshSinceMs = nowMs - 60_000;
  const stale = await call(front.url, 'GET', PATH, { bearer: CREDENTIAL });
  t.match(stale.json, { code: 'stale', retryable: true });
  t.equal(stale.headers['x-halo-user'], undefined);
});

t.test('a user of any characters travels encoded, and never as a header of its own', async (t) => {
  const users = [
    'Jörg',
    'a b',
    '100%',
    'ann"\\',
    'x\r\nx-halo-user: root',
    '日本',
    '😀',
    'a,b;c=d',
  ];
  let user = '';
  const front = await startFront({
    respond: () => ({ answer: packAllowed(DEVICE_ID, user) }),
  });
  t.teardown(() => front.close());
  for (user of users) {
    const answer = await call(front.url, 'GET', PATH, { bearer: CREDENTIAL });
    t.same(answer.json, { device: { id: DEVICE_ID, user } });
    t.match(answer.headers['x-halo-user'], /^[!-~]*$/);
    t.equal(decodeURIComponent(answer.headers['x-halo-user'] ?? ''), user);
    const head = await call(front.url, 'HEAD', PATH, { bearer: CREDENTIAL });
    t.equal(Number(head.headers['content-length']), Buffer.byteLength(answer.text));
  }
});

t.test('an id that cannot be a header is a fault, not a header', async (t) => {
  const front = await startFront({
    respond: () => ({ answer: packAllowed('dev\r\nx-evil: 1'.padEnd(40, 'x'), 'ann') }),
  });
  t.teardown(() => front.close());
  await t.rejects(call(front.url, 'GET', PATH, { bearer: CREDENTIAL }), 'the connection ends');
  t.equal(front.server.snapshot().inFlight, 0);
  t.match(front.log.lines, [{ level: 'error' }]);
  t.equal((await call(front.url, 'GET', '/healthz')).status, 200, 'the server lives');
});

t.test('bodies are ignored, of any size, chunked or announced with Expect', async (t) => {
  const front = await startFront();
  t.teardown(() => front.close());
  const headers = `Host: a\r\nAuthorization: Bearer ${CREDENTIAL}`;
  const requests = [
    `POST ${PATH} HTTP/1.1\r\n${headers}\r\nContent-Length: 300000\r\n\r\n${'x'.repeat(300_000)}`,
    `PUT ${PATH} HTTP/1.1\r\n${headers}\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n`,
    `GET ${PATH} HTTP/1.1\r\n${headers}\r\nContent-Length: 2\r\n\r\n{}`,
    `POST ${PATH} HTTP/1.1\r\n${headers}\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n`,
  ];
  for (const request of requests) {
    const answer = await rawRequest(front.port, request);
    t.match(answer.text, /^HTTP\/1\.1 200 OK/m);
    t.match(answer.text, DEVICE_ID);
  }
});

t.test('the request id and the trace of the caller are kept and logged', async (t) => {
  const front = await startFront();
  t.teardown(() => front.close());
  const traceId = '0af7651916cd43dd8448eb211c80319c';
  const headers = {
    'x-request-id': 'edge-17/a:b',
    traceparent: `00-${traceId}-b7ad6b7169203331-01`,
  };
  const allowed = await call(front.url, 'GET', PATH, { bearer: CREDENTIAL, headers });
  t.equal(allowed.headers['x-request-id'], 'edge-17/a:b');
  const refused = await call(front.url, 'GET', `${PATH}/a/b?secret=1`, {
    bearer: REVOKED_CREDENTIAL,
    headers,
  });
  t.equal(refused.headers['x-request-id'], 'edge-17/a:b');
  t.equal(refused.json.requestId, 'edge-17/a:b');
  t.match(front.log.lines, [
    {
      level: 'info',
      message: 'A request ended.',
      route: `${PATH}/*`,
      method: 'GET',
      status: 403,
      code: 'device_revoked',
      requestId: 'edge-17/a:b',
      traceId,
      client: '127.0.0.1',
      durationMs: Number,
    },
  ]);
  t.notMatch(front.log.text(), 'secret', 'neither path nor query is logged');
  const insane = await call(front.url, 'GET', PATH, {
    bearer: CREDENTIAL,
    headers: { 'x-request-id': 'x'.repeat(129) },
  });
  t.match(insane.headers['x-request-id'], /^[0-9a-f]{12}-/);
});

t.test('an allowed device is logged at debug only when that is asked for', async (t) => {
  const front = await startFront({ options: { logAllowed: true } });
  t.teardown(() => front.close());
  await call(front.url, 'GET', PATH, { bearer: CREDENTIAL });
  t.match(front.log.lines, [{ level: 'debug', route: PATH, status: 200 }]);
});

t.test('a client that goes away before the answer hurts nobody', async (t) => {
  const front = await startFront({ respond: () => undefined });
  t.teardown(() => front.close());
  const socket = connect(front.port, '127.0.0.1');
  socket.on('error', () => undefined);
  socket.write(`GET ${PATH} HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer ${CREDENTIAL}\r\n\r\n`);
  await until(() => front.actor.asked.length === 1);
  t.equal(front.server.snapshot().inFlight, 1);
  socket.destroy();
  await until(() => front.server.snapshot().inFlight === 0);
  front.actor.asked[0]?.sink.answered(packAllowed(DEVICE_ID, 'ann'), 0);
  front.actor.asked[0]?.sink.answered(failure('overloaded'), 0);
  t.match(front.server.snapshot(), { aborted: 1, inFlight: 0 });
  front.actor.respond = () => ({ answer: packAllowed(DEVICE_ID, 'ann') });
  t.equal((await call(front.url, 'GET', PATH, { bearer: CREDENTIAL })).status, 200);
});

t.test('an answer within the same turn is as good as a later one', async (t) => {
  const front = await startFront();
  t.teardown(() => front.close());
  front.actor.ask = (_kind, _payload, sink) => sink.answered(failure('actor_restarted'), 0);
  const refused = await call(front.url, 'GET', PATH, { bearer: CREDENTIAL });
  t.equal(refused.json.code, 'actor_restarted');
  front.actor.ask = (_kind, _payload, sink) => sink.answered(packAllowed(DEVICE_ID, 'ann'), 0);
  t.equal((await call(front.url, 'GET', PATH, { bearer: CREDENTIAL })).status, 200);
  front.actor.ask = () => {
    throw new Error('a bug');
  };
  await t.rejects(call(front.url, 'GET', PATH, { bearer: CREDENTIAL }));
  t.equal(front.server.snapshot().inFlight, 0);
});
