/** Lists, single devices, revocation, rotation: what is asked of the actor, what comes back. */
import t from 'tap';
import { digestOf } from '../src/actors/secrets.js';
import { failure } from '../src/runtime/failure.js';
import { call } from './fixtures/http-client.js';
import {
  ADMIN_TOKEN,
  CREDENTIAL,
  DEVICE_ID,
  DEVICE_VIEW,
  EPOCH,
  freshSecret,
  REVOKED_CREDENTIAL,
  startFront,
} from './fixtures/http-front.js';

const cursorOf = (inside: string): string => Buffer.from(inside, 'latin1').toString('base64url');

t.test('a page has devices as the interface names them, and a cursor with the epoch', async (t) => {
  const front = await startFront();
  t.teardown(() => front.close());
  const page = await call(front.url, 'GET', '/api/v1/devices', { bearer: ADMIN_TOKEN });
  t.equal(page.status, 200);
  t.same(page.json, {
    items: [
      {
        id: DEVICE_ID,
        user: 'ann',
        name: 'laptop',
        platform: 'linux',
        enrolledAt: '2026-01-31T12:00:00.000Z',
      },
    ],
    next: cursorOf(`${EPOCH}.7`),
  });
  t.same(front.actor.last('list')?.payload, { limit: 100, after: 0 });
});

t.test('the last page has no cursor, and every time is in UTC with milliseconds', async (t) => {
  const view = {
    ...DEVICE_VIEW,
    revokedAtMs: 1_700_000_000_123,
    revokedReason: 'lost',
    lastSeenAtMs: 1_700_000_000_000,
  };
  const front = await startFront({
    respond: () => ({ answer: { items: [view], epoch: EPOCH } }),
  });
  t.teardown(() => front.close());
  const page = await call(front.url, 'GET', '/api/v1/devices', { bearer: ADMIN_TOKEN });
  t.notOk('next' in page.json);
  t.match(page.json.items[0], {
    revokedAt: '2023-11-14T22:13:20.123Z',
    revokedReason: 'lost',
    lastSeenAt: '2023-11-14T22:13:20.000Z',
  });
});

t.test('limit, cursor and user reach the actor, the user in its one form', async (t) => {
  const front = await startFront();
  t.teardown(() => front.close());
  const query = `limit=500&cursor=${cursorOf(`${EPOCH}.42`)}&user=%20A%CC%8AKE+B%20`;
  const page = await call(front.url, 'GET', `/api/v1/devices?${query}`, { bearer: ADMIN_TOKEN });
  t.equal(page.status, 200);
  t.same(front.actor.last('list')?.payload, { limit: 500, after: 42, user: 'åke b' });
});

t.test('a cursor that is not ours, or of another history, is said to be invalid', async (t) => {
  const front = await startFront();
  t.teardown(() => front.close());
  const wrong = [
    'x',
    '%20',
    cursorOf(EPOCH),
    cursorOf(`${EPOCH}.`),
    cursorOf(`${EPOCH}.0`),
    cursorOf(`${EPOCH}.01`),
    cursorOf(`${EPOCH}.-1`),
    cursorOf(`${EPOCH}.1e3`),
    cursorOf(`${EPOCH}.9999999999999999`),
    cursorOf(`${EPOCH.toUpperCase()}.1`),
    `${cursorOf(`${EPOCH}.1`)}=`,
    cursorOf('fedcba9876543210.7'),
  ];
  for (const cursor of wrong) {
    const page = await call(front.url, 'GET', `/api/v1/devices?cursor=${cursor}`, {
      bearer: ADMIN_TOKEN,
    });
    t.match(page, { status: 400, json: { code: 'cursor_invalid' } }, cursor);
  }
});

t.test('lists and devices have a tag, and 304 answers whoever has them already', async (t) => {
  const front = await startFront();
  t.teardown(() => front.close());
  for (const path of ['/api/v1/devices', `/api/v1/devices/${DEVICE_ID}`, '/openapi.json']) {
    const first = await call(front.url, 'GET', path, { bearer: ADMIN_TOKEN });
    const etag = first.headers['etag'] ?? '';
    t.match(etag, /^"[0-9A-Za-z_-]{22}"$/);
    for (const condition of [etag, `W/${etag}`, `"other", ${etag}`, '*']) {
      const again = await call(front.url, 'GET', path, {
        bearer: ADMIN_TOKEN,
        headers: { 'if-none-match': condition },
      });
      t.match(again, { status: 304, text: '', headers: { etag } }, condition);
    }
    const changed = await call(front.url, 'GET', path, {
      bearer: ADMIN_TOKEN,
      headers: { 'if-none-match': '"other"' },
    });
    t.match(changed, { status: 200, text: first.text });
    const head = await call(front.url, 'HEAD', path, { bearer: ADMIN_TOKEN });
    t.match(head, { status: 200, text: '', headers: { etag } });
    t.equal(Number(head.headers['content-length']), Buffer.byteLength(first.text));
  }
});

t.test('a long list arrives whole, also by a slow reader', async (t) => {
  const items = Array.from({ length: 500 }, (_, index) => ({
    ...DEVICE_VIEW,
    id: `dev_${index}`,
    name: 'ä'.repeat(256),
  }));
  const front = await startFront({ respond: () => ({ answer: { items, epoch: EPOCH } }) });
  t.teardown(() => front.close());
  for (let round = 0; round < 5; round += 1) {
    const page = await call(front.url, 'GET', '/api/v1/devices?limit=500', {
      bearer: ADMIN_TOKEN,
    });
    t.equal(page.json.items.length, 500);
    t.equal(page.json.items[499].id, 'dev_499');
  }
  t.equal(front.server.snapshot().inFlight, 0);
});

t.test('a device is found by its id, however the id is encoded in the path', async (t) => {
  const front = await startFront();
  t.teardown(() => front.close());
  const encoded = DEVICE_ID.replace('_', '%5F').replace('d', '%64');
  for (const id of [DEVICE_ID, encoded]) {
    const found = await call(front.url, 'GET', `/api/v1/devices/${id}`, { bearer: ADMIN_TOKEN });
    t.match(found, { status: 200, json: { id: DEVICE_ID } });
  }
  const missing = await call(front.url, 'GET', '/api/v1/devices/dev_x', { bearer: ADMIN_TOKEN });
  t.match(missing, { status: 404, json: { code: 'device_not_found' } });
  const odd = await call(front.url, 'GET', '/api/v1/devices/a%2Fb%25', { bearer: ADMIN_TOKEN });
  t.equal(odd.status, 404);
  t.same(front.actor.last('get')?.payload, { id: 'a/b%' }, 'decoded once and only once');
});

t.test('a revocation names who asked and may use the operators’ reserve', async (t) => {
  const front = await startFront({
    options: {
      adminTokens: [
        { name: 'someone', digest: digestOf('another token of at least 32 characters') },
        { name: 'root', digest: digestOf(ADMIN_TOKEN) },
      ],
    },
  });
  t.teardown(() => front.close());
  const path = `/api/v1/devices/${DEVICE_ID}/revoke`;
  const revoked = await call(front.url, 'POST', path, {
    bearer: ADMIN_TOKEN,
    body: { reason: 'lost' },
  });
  t.match(revoked, {
    status: 200,
    json: { id: DEVICE_ID, revokedAt: /Z$/, revokedReason: 'lost' },
  });
  t.same(front.actor.last('revoke')?.payload, { id: DEVICE_ID, reason: 'lost', by: 'root' });
  t.same(front.actor.last('revoke')?.options, { operator: true });
});

t.test('a device rotates with its credential, an administrator with a token', async (t) => {
  const front = await startFront();
  t.teardown(() => front.close());
  const path = `/api/v1/devices/${DEVICE_ID}/rotate`;
  const own = await call(front.url, 'POST', path, { bearer: CREDENTIAL });
  t.match(own, { status: 200, json: { credential: CREDENTIAL } });
  t.equal(own.headers['cache-control'], 'no-store');
  t.same(front.actor.last('rotate')?.payload, {
    id: DEVICE_ID,
    overlapSeconds: 300,
    caller: { kind: 'device', credentialDigest: digestOf(CREDENTIAL) },
  });
  await call(front.url, 'POST', path, { bearer: ADMIN_TOKEN, body: { overlapSeconds: 0 } });
  t.same(front.actor.last('rotate')?.payload, {
    id: DEVICE_ID,
    overlapSeconds: 0,
    caller: { kind: 'admin', name: 'root' },
  });
  for (const [token, status] of [
    [freshSecret('enroll'), 401],
    [freshSecret('gateway'), 401],
    [freshSecret('admin'), 401],
  ] as const) {
    const refused = await call(front.url, 'POST', path, { bearer: token });
    t.match(refused, { status, json: { code: 'token_unknown' } });
  }
});

t.test('what the actor refuses about a rotation is told with its words', async (t) => {
  let code = '';
  const front = await startFront({
    respond: () => ({ answer: failure(code, 'In words.') }),
  });
  t.teardown(() => front.close());
  const statuses = {
    device_unknown: 401,
    device_revoked: 403,
    not_own_device: 403,
    device_not_found: 404,
    rotation_refused: 409,
    replay_superseded: 409,
    idempotency_in_progress: 409,
    idempotency_mismatch: 422,
    outcome_unknown: 503,
  };
  for (const [name, status] of Object.entries(statuses)) {
    code = name;
    const path = `/api/v1/devices/${DEVICE_ID}/rotate`;
    const refused = await call(front.url, 'POST', path, { bearer: CREDENTIAL });
    t.match(refused, { status, json: { code: name, status } });
    const isDeviceCode = name !== 'outcome_unknown';
    t.equal(refused.json.detail, isDeviceCode ? 'In words.' : undefined);
  }
});

t.test('replaced administrators’ tokens work from the next request on', async (t) => {
  const front = await startFront();
  t.teardown(() => front.close());
  const next = freshSecret('admin');
  t.equal((await call(front.url, 'GET', '/v1/status', { bearer: next })).status, 401);
  front.server.setAdminTokens([{ name: 'next', digest: digestOf(next) }]);
  t.equal((await call(front.url, 'GET', '/v1/status', { bearer: next })).status, 200);
  t.equal((await call(front.url, 'GET', '/v1/status', { bearer: ADMIN_TOKEN })).status, 401);
});

t.test('a rotation with a credential that is none never becomes a write', async (t) => {
  const front = await startFront();
  t.teardown(() => front.close());
  const path = `/api/v1/devices/${DEVICE_ID}/rotate`;
  const code = async (bearer: string, at = path): Promise<string> =>
    (await call(front.url, 'POST', at, { bearer })).json.code;
  for (const bearer of ['halo_device_x', `${CREDENTIAL.slice(0, -1)}!`]) {
    t.equal(await code(bearer), 'device_unknown');
    t.match(front.limiter.last('failed')?.payload, { class: 'device' });
  }
  t.equal(front.actor.asked.length, 0, 'a wrong checksum is told at the door');
  t.equal(await code(freshSecret('device')), 'device_unknown');
  t.equal(front.limiter.asked.length, 3, 'and each of them is a failed attempt');
  t.equal(await code(REVOKED_CREDENTIAL), 'device_revoked');
  t.equal(await code(CREDENTIAL, path.replace(DEVICE_ID, 'dev_x')), 'not_own_device');
  t.same([...new Set(front.actor.asked.map(({ kind }) => kind))], ['mayRotate']);
});
