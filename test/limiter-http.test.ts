/** What clients see of the limiter: which failures count, and whom it never stops. */
import { connect } from 'node:net';
import t from 'tap';
import type { FailedAttempt } from '../src/actors/limiter/messages.js';
import { failure } from '../src/runtime/failure.js';
import { call, type Received, rawRequest, type Sent } from './fixtures/http-client.js';
import {
  ADMIN_TOKEN,
  CREDENTIAL,
  DEVICE_ID,
  ENROLLMENT_TOKEN,
  type Front,
  freshSecret,
  REVOKED_CREDENTIAL,
  respondAsDevices,
  startFront,
  until,
} from './fixtures/http-front.js';
import { startLimitedFront } from './fixtures/limited-front.js';

const AUTH = '/api/v1/auth/device';
const ENROLL = '/api/v1/enroll';

function enrolment(token: string): Sent {
  return { body: { token, name: 'laptop', platform: 'linux' } };
}

/** One way to fail for each class that there is a way for. */
const FAILING: Readonly<Record<string, (front: Front) => Promise<Received>>> = {
  device: ({ url }) => call(url, 'GET', AUTH, { bearer: freshSecret('device') }),
  enrolment: ({ url }) => call(url, 'POST', ENROLL, enrolment(freshSecret('enroll'))),
  admin: ({ url }) => call(url, 'GET', '/api/v1/devices', { bearer: freshSecret('admin') }),
};

async function fail(front: Front, failureClass: string, times: number): Promise<number[]> {
  const statuses: number[] = [];
  for (let i = 0; i < times; i += 1) {
    statuses.push((await FAILING[failureClass]!(front)).status);
  }
  return statuses;
}

/** The classes and addresses that the limiter was asked about. */
function counted(front: Front): FailedAttempt[] {
  return front.limiter.asked.map(({ payload }) => payload as FailedAttempt);
}

for (const failureClass of Object.keys(FAILING)) {
  t.test(`the eleventh failed ${failureClass} attempt in a minute is a 429`, async (t) => {
    const front = await startLimitedFront();
    t.teardown(() => front.close());
    t.same(await fail(front, failureClass, 10), Array(10).fill(401));
    const refused = await FAILING[failureClass]!(front);
    t.match(refused, {
      status: 429,
      headers: { 'content-type': 'application/problem+json', 'cache-control': 'no-store' },
      json: {
        type: '/docs/errors#too_many_failures',
        status: 429,
        code: 'too_many_failures',
        retryable: true,
      },
    });
    const waitSeconds = Number(refused.headers['retry-after']);
    t.ok(waitSeconds > 50 && waitSeconds <= 60, `${waitSeconds} s`);
    t.equal(refused.json.retryAfterSeconds, waitSeconds);
    t.equal(refused.json.requestId, refused.headers['x-request-id']);
    t.notOk('www-authenticate' in refused.headers);
    const failures = new Map(
      front.server.snapshot().failures.map(({ code, count }) => [code, count]),
    );
    t.equal(failures.get('too_many_failures'), 1);
    t.match(front.log.lines.at(-1), {
      status: 429,
      code: 'too_many_failures',
      client: '127.0.0.1',
    });
    t.equal(front.server.snapshot().inFlight, 0);
  });
}

t.test('whatever is valid passes from an address that is blocked for everything', async (t) => {
  const front = await startLimitedFront();
  t.teardown(() => front.close());
  const { url } = front;
  for (const failureClass of Object.keys(FAILING)) {
    t.equal((await fail(front, failureClass, 11)).at(-1), 429, failureClass);
  }
  const asked = front.limiter.asked.length;
  t.equal((await call(url, 'GET', AUTH, { bearer: CREDENTIAL })).status, 200);
  t.equal((await call(url, 'POST', ENROLL, enrolment(ENROLLMENT_TOKEN))).status, 201);
  t.equal((await call(url, 'GET', '/api/v1/devices', { bearer: ADMIN_TOKEN })).status, 200);
  const rotate = `/api/v1/devices/${DEVICE_ID}/rotate`;
  t.equal((await call(url, 'POST', rotate, { bearer: CREDENTIAL })).status, 200);
  t.equal((await call(url, 'GET', AUTH, { bearer: REVOKED_CREDENTIAL })).status, 403);
  t.equal((await call(url, 'GET', AUTH)).json.code, 'credential_missing');
  t.equal((await call(url, 'GET', '/api/v1/devices')).json.code, 'credential_missing');
  t.equal(front.limiter.asked.length, asked, 'none of them even asks the limiter');
});

t.test('what is no failed attempt never counts', async (t) => {
  const front = await startFront({
    respond: (asked) => {
      if (asked.kind === 'authenticate' && unavailable) return { answer: failure('overloaded') };
      return respondAsDevices(asked);
    },
  });
  t.teardown(() => front.close());
  const { url } = front;
  let unavailable = false;
  const wrong = freshSecret('device');
  const twice = `Host: a\r\nAuthorization: Bearer ${wrong}\r\nAuthorization: Bearer ${wrong}\r\n`;
  t.match((await rawRequest(front.port, `GET ${AUTH} HTTP/1.1\r\n${twice}\r\n`)).text, / 401 /);
  for (const headers of [{}, { authorization: 'Bearer' }, { authorization: 'Bearer ' }]) {
    t.equal((await call(url, 'GET', AUTH, { headers })).json.code, 'credential_missing');
  }
  t.equal((await call(url, 'GET', AUTH, { bearer: REVOKED_CREDENTIAL })).status, 403);
  t.equal((await call(url, 'GET', AUTH, { bearer: CREDENTIAL })).status, 200);
  t.equal((await call(url, 'GET', '/nowhere', { bearer: wrong })).status, 404);
  t.equal((await call(url, 'PUT', '/api/v1/devices', { bearer: wrong })).status, 405);
  t.equal((await call(url, 'POST', ENROLL, { body: { token: 'x' } })).status, 422);
  t.equal((await call(url, 'GET', '/healthz', { bearer: wrong })).status, 200);
  unavailable = true;
  t.equal((await call(url, 'GET', AUTH, { bearer: wrong })).status, 503);
  t.same(counted(front), []);
});

t.test('every kind of wrong credential counts, each in its class', async (t) => {
  const front = await startFront();
  t.teardown(() => front.close());
  const { url } = front;
  const mistyped = `${CREDENTIAL.slice(0, -1)}${CREDENTIAL.endsWith('0') ? '1' : '0'}`;
  const wrong = [freshSecret('device'), mistyped, CREDENTIAL.slice(0, -1)];
  for (const bearer of [...wrong, freshSecret('gateway'), ADMIN_TOKEN, 'x', 'x'.repeat(900)]) {
    t.match(await call(url, 'GET', `${AUTH}/a/b`, { bearer }), {
      status: 401,
      json: { code: 'device_unknown' },
    });
  }
  const basic = { headers: { authorization: 'Basic YTpi' } };
  t.equal((await call(url, 'GET', AUTH, basic)).json.code, 'device_unknown');
  t.same(counted(front), Array(8).fill({ class: 'device', address: '127.0.0.1' }));
  front.limiter.asked.length = 0;
  for (const token of [freshSecret('enroll'), ENROLLMENT_TOKEN.slice(0, -1), CREDENTIAL]) {
    const refused = await call(url, 'POST', ENROLL, enrolment(token));
    t.match(refused, { status: 401, json: { code: 'enrollment_token_invalid' } });
  }
  t.same(counted(front), Array(3).fill({ class: 'enrolment', address: '127.0.0.1' }));
  front.limiter.asked.length = 0;
  for (const path of ['/api/v1/devices', `/api/v1/devices/${DEVICE_ID}`, '/v1/status']) {
    t.equal((await call(url, 'GET', path, { bearer: CREDENTIAL })).json.code, 'token_unknown');
  }
  const rotate = `/api/v1/devices/${DEVICE_ID}/rotate`;
  t.equal((await call(url, 'POST', rotate, { bearer: 'x' })).json.code, 'token_unknown');
  t.same(counted(front), Array(4).fill({ class: 'admin', address: '127.0.0.1' }));
  front.limiter.asked.length = 0;
  front.actor.respond = () => ({ answer: failure('device_unknown') });
  const unknown = await call(url, 'POST', rotate, { bearer: freshSecret('device') });
  t.equal(unknown.json.code, 'device_unknown');
  t.same(counted(front), [{ class: 'device', address: '127.0.0.1' }]);
});

t.test('a limiter that cannot be asked makes a failure a 503, and nobody else', async (t) => {
  const codes = ['overloaded', 'deadline_exceeded', 'actor_restarted', 'store_unavailable'];
  const front = await startFront({ limit: () => ({ answer: failure(codes[0]!, 'x', 2) }) });
  t.teardown(() => front.close());
  for (const [failureClass, attempt] of Object.entries(FAILING)) {
    for (const code of codes) {
      front.limiter.respond = () => ({ answer: failure(code, 'a detail', 2) });
      t.match(
        await attempt(front),
        { status: 503, headers: { 'retry-after': '2' }, json: { code, retryable: true } },
        `${failureClass}, ${code}`,
      );
    }
  }
  t.equal((await call(front.url, 'GET', AUTH, { bearer: CREDENTIAL })).status, 200);
  t.equal((await call(front.url, 'GET', AUTH, { bearer: REVOKED_CREDENTIAL })).status, 403);
});

t.test('a refusal is the same after it was counted: HEAD, detail, connection', async (t) => {
  const front = await startLimitedFront();
  t.teardown(() => front.close());
  const { url, port } = front;
  const mistyped = `${CREDENTIAL.slice(0, -1)}${CREDENTIAL.endsWith('0') ? '1' : '0'}`;
  t.match((await call(url, 'GET', AUTH, { bearer: mistyped })).json.detail, /checksum/);
  const head = await call(url, 'HEAD', AUTH, { bearer: freshSecret('device') });
  t.match(head, { status: 401, text: '', headers: { 'www-authenticate': 'Bearer' } });
  t.ok(Number(head.headers['content-length']) > 50);
  const wrong = `Host: a\r\nAuthorization: Bearer ${freshSecret('admin')}\r\n`;
  const small = `POST /api/v1/enrollment-tokens HTTP/1.1\r\n${wrong}Content-Length: 2\r\n\r\n{}`;
  const then = `GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n`;
  const kept = await rawRequest(port, small, (text) => text.includes('token_unknown'));
  t.match(kept, { text: / 401 /, closed: false });
  const socket = connect(port, '127.0.0.1');
  let text = '';
  socket.on('data', (chunk) => {
    text += chunk.toString();
  });
  socket.on('error', () => undefined);
  socket.write(small);
  await until(() => text.includes('token_unknown'));
  socket.write(then);
  await until(() => text.includes('"status":"ok"'));
  socket.destroy();
  const long = `POST ${ENROLL.replace('enroll', 'enrollment-tokens')} HTTP/1.1\r\n${wrong}`;
  const cut = await rawRequest(
    port,
    `${long}Content-Length: 100000\r\n\r\n${'x'.repeat(70_000)}`,
    () => false,
  );
  t.match(cut, { text: /401/, closed: true }, 'a long body is not waited for');
});

t.test('a client that goes away while its failure is counted hurts nobody', async (t) => {
  const front = await startFront({ limit: () => undefined });
  t.teardown(() => front.close());
  const requests = [
    `GET ${AUTH} HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer ${freshSecret('device')}\r\n\r\n`,
    `GET /v1/status HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer ${freshSecret('admin')}\r\n\r\n`,
  ];
  for (const [index, request] of requests.entries()) {
    const socket = connect(front.port, '127.0.0.1');
    socket.on('error', () => undefined);
    socket.write(request);
    await until(() => front.limiter.asked.length === index + 1);
    socket.destroy();
    await until(() => front.server.snapshot().inFlight === 0);
    front.limiter.asked[index]!.sink.answered(failure('too_many_failures', 'x', 60), 0);
  }
  t.match(front.server.snapshot(), { aborted: 2, inFlight: 0, failures: [] });
  t.notOk(front.log.lines.some(({ level }) => level === 'error'));
  front.limiter.respond = () => ({ answer: 'within_budget' });
  t.same(await fail(front, 'device', 1), [401]);
});
