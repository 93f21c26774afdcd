/** The kill list and its gateways over HTTP: what is asked of the actors, and what comes back. */
import t from 'tap';
import { digestOf } from '../src/actors/secrets.js';
import { systemClock } from '../src/runtime/clock.js';
import { failure } from '../src/runtime/failure.js';
import { call, type Sent } from './fixtures/http-client.js';
import {
  ADMIN_TOKEN,
  CREDENTIAL,
  EPOCH,
  freshSecret,
  GATEWAY_ID,
  GATEWAY_TOKEN,
  respondAsGateways,
  startFront,
} from './fixtures/http-front.js';
import { GATEWAY_TOKEN as PUSH_TOKEN, PushFront } from './fixtures/push-front.js';

const LIST = '/api/v1/kill-list';
const TAG = `"${EPOCH}.7"`;
const admin = { bearer: ADMIN_TOKEN };
const gateway = { bearer: GATEWAY_TOKEN };

t.test('a gateway and a viewer get the list under its version as the entity tag', async (t) => {
  const front = await startFront();
  t.teardown(() => front.close());
  for (const sent of [admin, gateway]) {
    const list = await call(front.url, 'GET', LIST, sent);
    t.match(list, { status: 200, headers: { etag: TAG, 'cache-control': 'private, no-cache' } });
    t.same(list.json, {
      epoch: EPOCH,
      version: 7,
      asOf: '2026-01-31T12:00:00.000Z',
      entries: [
        { kind: 'agent', id: 'a', reason: 'r', by: 'root', at: '2026-01-31T12:00:00.000Z' },
      ],
    });
  }
  t.equal(front.gateways.last('authenticate')?.payload, digestOf(GATEWAY_TOKEN));
});

t.test('a poll that knows the version gets 304 and costs no list', async (t) => {
  const front = await startFront();
  t.teardown(() => front.close());
  const lists = () => front.kills.asked.filter(({ kind }) => kind === 'list').length;
  await call(front.url, 'GET', LIST, gateway);
  const before = lists();
  for (const tag of [TAG, `W/${TAG}`, `"x", ${TAG}`, '*']) {
    const poll = await call(front.url, 'GET', LIST, {
      ...gateway,
      headers: { 'if-none-match': tag },
    });
    t.match(poll, { status: 304, text: '', headers: { etag: TAG } }, tag);
  }
  t.equal(lists(), before, 'the list itself was never asked for');
  for (const tag of [`"${EPOCH}.6"`, '"ffffffffffffffff.7"', EPOCH]) {
    const poll = await call(front.url, 'GET', LIST, {
      ...gateway,
      headers: { 'if-none-match': tag },
    });
    t.match(poll, { status: 200, json: { version: 7 }, headers: { etag: TAG } }, tag);
  }
});

t.test('a gateway’s token opens nothing but the list', async (t) => {
  const front = await startFront();
  t.teardown(() => front.close());
  const refused: readonly (readonly [string, string])[] = [
    ['GET', '/api/v1/devices'],
    ['GET', '/api/v1/gateways'],
    ['POST', '/api/v1/gateways'],
    ['PUT', `${LIST}/agent/a`],
    ['DELETE', `${LIST}/agent/a`],
  ];
  for (const [method, path] of refused) {
    t.match(
      await call(front.url, method, path, gateway),
      { json: { code: 'token_unknown' } },
      path,
    );
  }
  t.equal(front.gateways.asked.length, 0);
  t.match(await call(front.url, 'GET', LIST, { bearer: CREDENTIAL }), {
    status: 401,
    json: { code: 'token_unknown' },
  });
});

t.test(
  'an unknown gateway token counts as a gateway’s failure, before the list is asked',
  async (t) => {
    const front = await startFront();
    t.teardown(() => front.close());
    await call(front.url, 'GET', '/healthz');
    const before = front.kills.asked.length;
    const wrong = [freshSecret('gateway'), `${GATEWAY_TOKEN.slice(0, -1)}?`, 'halo_gateway_x'];
    for (const bearer of wrong) {
      const answer = await call(front.url, 'GET', LIST, { bearer });
      t.match(answer, { status: 401, json: { code: 'token_unknown' } });
    }
    t.same(
      front.limiter.asked.map(({ payload }) => (payload as { class: string }).class),
      ['gateway', 'gateway', 'gateway'],
    );
    t.equal(front.gateways.asked.length, 1, 'a token with a wrong checksum is not looked up');
    t.equal(front.kills.asked.length, before);
    await call(front.url, 'GET', LIST, { bearer: freshSecret('admin') });
    t.match(front.limiter.last('failed')?.payload, { class: 'admin' });
  },
);

t.test('who asks as a gateway while nobody can judge that is told to come back', async (t) => {
  let fault = 'store_unavailable';
  const front = await startFront({
    gateways: (asked) =>
      fault === 'stale'
        ? { answer: GATEWAY_ID, freshSinceMs: systemClock.monotonicMs() - 1_500 }
        : asked.kind === 'authenticate'
          ? { answer: failure(fault) }
          : respondAsGateways(asked),
  });
  t.teardown(() => front.close());
  for (fault of ['store_unavailable', 'overloaded', 'deadline_exceeded', 'stale']) {
    const answer = await call(front.url, 'GET', LIST, gateway);
    t.match(answer, { status: 503, json: { code: fault }, headers: { 'retry-after': '1' } });
  }
  t.equal(front.limiter.asked.length, 0, 'and that is no failed attempt');
});

t.test('a kill is asked for by who did it, with its end in any offset', async (t) => {
  const front = await startFront();
  t.teardown(() => front.close());
  const kill = (path: string, body: object) =>
    call(front.url, 'PUT', LIST + path, { ...admin, body });
  const answer = await kill('/agent/a%2Fb%20c', { reason: 'leaked' });
  t.match(answer, { status: 200, json: { epoch: EPOCH, version: 7, entry: { id: 'a/b c' } } });
  t.match(front.kills.last('kill'), {
    payload: { kind: 'agent', id: 'a/b c', reason: 'leaked', by: 'root' },
    options: { operator: true },
  });
  for (const expiresAt of [
    '2099-01-31T12:00:00Z',
    '2099-01-31T12:00:00.000z',
    '2099-01-31t13:30:00+01:30',
    '2099-01-30T23:00:00.0000-13:00',
  ]) {
    const ending = await kill('/agent/a', { reason: 'r', expiresAt });
    t.equal(ending.json.entry.expiresAt, '2099-01-31T12:00:00.000Z', expiresAt);
  }
  for (const expiresAt of [
    '2099-02-30T12:00:00Z',
    '2099-02-29T12:00:00Z',
    '2099-13-01T12:00:00Z',
    '2099-01-31T24:00:00Z',
    '2099-01-31T12:00:00',
    '2099-01-31 12:00:00Z',
    '2099-01-31',
    '2099-01-31T12:00:00+1:00',
    '2099-01-31T12:00:00+24:00',
    'tomorrow',
    4_073_544_000_000,
  ]) {
    const refused = await kill('/agent/a', { reason: 'r', expiresAt });
    t.match(
      refused,
      { status: 422, json: { errors: [{ pointer: '/expiresAt' }] } },
      `${expiresAt}`,
    );
  }
});

t.test('killing a user in any spelling kills the user', async (t) => {
  const front = await startFront();
  t.teardown(() => front.close());
  for (const id of ['Alice', '%20ALICE', 'alice']) {
    await call(front.url, 'PUT', `${LIST}/user/${id}`, { ...admin, body: { reason: 'r' } });
    t.match(front.kills.last('kill')?.payload, { kind: 'user', id: 'alice' });
    await call(front.url, 'DELETE', `${LIST}/user/${id}`, admin);
    t.match(front.kills.last('lift')?.payload, { kind: 'user', id: 'alice', by: 'root' });
  }
  await call(front.url, 'PUT', `${LIST}/agent/Alice`, { ...admin, body: { reason: 'r' } });
  t.match(front.kills.last('kill')?.payload, { id: 'Alice' }, 'other ids have one spelling');
  const blank = await call(front.url, 'PUT', `${LIST}/user/%20`, {
    ...admin,
    body: { reason: 'r' },
  });
  t.match(blank, { status: 422, json: { errors: [{ in: 'path', pointer: '/id' }] } });
});

t.test('a kind is a lower-case word', async (t) => {
  const front = await startFront();
  t.teardown(() => front.close());
  const kill = (kind: string) =>
    call(front.url, 'PUT', `${LIST}/${kind}/a`, { ...admin, body: { reason: 'r' } });
  for (const kind of ['a', 'x-1', 'mandate', `a${'b'.repeat(63)}`]) {
    t.equal((await kill(kind)).status, 200, kind);
  }
  for (const kind of ['Agent', '1a', '-a', 'a_b', 'a%2Fb', 'a%0A', `a${'b'.repeat(64)}`]) {
    const refused = await kill(kind);
    t.match(refused, { status: 422, json: { errors: [{ in: 'path', pointer: '/kind' }] } }, kind);
  }
});

t.test('what the kill list refuses is said with its reason', async (t) => {
  let refusal = failure('kill_list_full', 'The kill list holds 3 entries; lift some first.');
  const front = await startFront({ kills: () => ({ answer: refusal }) });
  t.teardown(() => front.close());
  const kill = () => call(front.url, 'PUT', `${LIST}/agent/a`, { ...admin, body: { reason: 'r' } });
  t.match(await kill(), { status: 409, json: { code: 'kill_list_full', detail: /holds 3/ } });
  refusal = failure('kill_already_expired', 'expiresAt is not in the future.');
  t.match(await kill(), { status: 422, json: { code: 'kill_already_expired' } });
});

t.test('a retried mutation carries its key to the actor', async (t) => {
  const front = await startFront();
  t.teardown(() => front.close());
  const keyed = (body?: object): Sent => ({
    ...admin,
    headers: { 'idempotency-key': 'k1' },
    ...(body ? { body } : {}),
  });
  await call(front.url, 'PUT', `${LIST}/agent/a%62`, keyed({ reason: 'r' }));
  await call(front.url, 'DELETE', `${LIST}/agent/ab`, keyed());
  await call(front.url, 'POST', '/api/v1/gateways', keyed({ name: 'edge' }));
  await call(front.url, 'POST', `/api/v1/gateways/${GATEWAY_ID}/rotate`, keyed());
  await call(front.url, 'DELETE', `/api/v1/gateways/${GATEWAY_ID}`, keyed());
  const calls = [...front.kills.asked, ...front.gateways.asked].flatMap(({ payload }) => {
    const { idempotency } = payload as { idempotency?: { principal: string; call: string } };
    return idempotency ? [`${idempotency.principal} ${idempotency.call}`] : [];
  });
  t.same(calls, [
    `admin:root PUT ${LIST}/agent/ab k1`,
    `admin:root DELETE ${LIST}/agent/ab k1`,
    'admin:root POST /api/v1/gateways k1',
    `admin:root POST /api/v1/gateways/${GATEWAY_ID}/rotate k1`,
    `admin:root DELETE /api/v1/gateways/${GATEWAY_ID} k1`,
  ]);
});

t.test('gateways are made, listed, rotated and removed', async (t) => {
  const front = await startFront();
  t.teardown(() => front.close());
  const path = '/api/v1/gateways';
  t.match(await call(front.url, 'POST', path, { ...admin, body: { name: 'edge' } }), {
    status: 201,
    json: { id: GATEWAY_ID, name: 'edge', token: GATEWAY_TOKEN },
  });
  const list = await call(front.url, 'GET', path, admin);
  t.match(list.json, {
    items: [{ id: GATEWAY_ID, connections: 2, ackVersion: 6, ackAt: '2026-01-31T12:00:00.000Z' }],
    epoch: EPOCH,
    version: 7,
  });
  t.same(front.gateways.last('list')?.payload, { behind: false, limit: 100 });
  await call(front.url, 'GET', `${path}?behind=true`, admin);
  t.same(front.gateways.last('list')?.payload, { behind: true, limit: 100 });
  t.match(await call(front.url, 'GET', `${path}?behind=yes`, admin), {
    status: 422,
    json: { errors: [{ in: 'query', pointer: '/behind', detail: 'must be `true` or `false`' }] },
  });
  const rotate = await call(front.url, 'POST', `${path}/${GATEWAY_ID}/rotate`, admin);
  t.same(rotate.json, { token: GATEWAY_TOKEN });
  t.match(front.gateways.last('rotate')?.payload, { id: GATEWAY_ID, overlapSeconds: 300 });
  const removed = await call(front.url, 'DELETE', `${path}/${GATEWAY_ID}`, admin);
  t.match(removed, {
    status: 200,
    json: { id: GATEWAY_ID, removedAt: '2026-01-31T12:00:00.000Z' },
  });
  t.match(front.gateways.last('remove')?.options, { operator: true });
});

t.test('a page of gateways names the next one, within one history', async (t) => {
  const place = { createdAtMs: Date.UTC(2026, 0, 31, 12), id: GATEWAY_ID };
  let epoch = EPOCH;
  const front = await startFront({
    gateways: () => ({ answer: { items: [], next: place, epoch, version: 7 } }),
  });
  t.teardown(() => front.close());
  const get = (query: string) => call(front.url, 'GET', `/api/v1/gateways?${query}`, admin);
  const { next } = (await get('limit=500')).json;
  t.match(next, /^[\w-]+$/);
  t.same(front.gateways.last('list')?.payload, { behind: false, limit: 500 });
  t.equal((await get(`behind=true&cursor=${next}`)).status, 200);
  const asked = { behind: true, limit: 100, after: place };
  t.same(front.gateways.last('list')?.payload, asked);
  const ofDevices = Buffer.from(`${EPOCH}.7`, 'latin1').toString('base64url');
  for (const cursor of [ofDevices, `${next}x`, next.slice(0, 40)]) {
    t.match(await get(`cursor=${cursor}`), { status: 400, json: { code: 'cursor_invalid' } });
  }
  t.match(await get('limit=501'), { status: 422 });
  t.match(await call(front.url, 'GET', `/api/v1/devices?cursor=${next}`, admin), { status: 400 });
  epoch = 'fedcba9876543210';
  t.match(await get(`cursor=${next}`), { status: 400, json: { code: 'cursor_invalid' } });
});

t.test('polls are answered out of the mirror, each after a catch-up of its own', async (t) => {
  const push = await PushFront.start();
  t.teardown(() => push.close());
  push.kill(...Array.from({ length: 9_000 }, (_, id) => `a${id}`));
  const poll = () => call(push.front.url, 'GET', LIST, { bearer: PUSH_TOKEN });
  const first = await poll();
  t.equal(first.json.entries.length, 9_000);
  const startedMs = Date.now();
  push.asked.length = 0;
  const polls = await Promise.all(Array.from({ length: 20 }, poll));
  for (const { json, headers } of polls) {
    t.same([json.version, json.entries.length], [9_000, 9_000]);
    t.ok(Date.parse(json.asOf) >= startedMs, 'known to be so when it was asked');
    t.equal(headers['etag'], first.headers['etag']);
  }
  t.same([...new Set(push.asked)], ['version'], 'the list never crosses the threads again');
  push.telling = false;
  push.lift('a0');
  push.kill('new');
  const { json } = await poll();
  t.same([json.version, json.entries.length], [9_002, 9_000], 'without news it is asked for');
  t.ok(json.entries.some(({ id }: { id: string }) => id === 'new'));
  t.equal(push.asked.filter((kind) => kind === 'list').length, 1);
  push.telling = true;
  push.kill('newer');
  const { json: newer, headers } = await poll();
  t.equal(newer.entries.at(-1).id, 'newer', 'and no old document is kept');
  t.equal(headers['etag'], `"${EPOCH}.9003"`);
  push.failing = failure('store_unavailable');
  t.match(await poll(), { status: 503, json: { code: 'store_unavailable' } });
});
