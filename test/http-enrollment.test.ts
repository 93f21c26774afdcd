/** Enrolment over HTTP: tokens, the proof of the device key, and idempotent mutations. */
import { createHmac, generateKeyPairSync, hash, sign } from 'node:crypto';
import t from 'tap';
import type { Idempotency } from '../src/actors/devices/messages.js';
import { digestOf } from '../src/actors/secrets.js';
import { call, type Received } from './fixtures/http-client.js';
import {
  ADMIN_TOKEN,
  CREDENTIAL,
  DEVICE_ID,
  ENROLLMENT_TOKEN,
  type Front,
  freshSecret,
  startFront,
} from './fixtures/http-front.js';

const HMAC_KEY = hash('sha256', 'test', 'buffer');

function enrol(front: Front, body: Record<string, unknown>): Promise<Received> {
  return call(front.url, 'POST', '/api/v1/enroll', {
    body: { token: ENROLLMENT_TOKEN, name: 'laptop', platform: 'linux', ...body },
  });
}

function deviceKey(): { deviceKey: string; proofOf: (token: string) => string } {
  const { publicKey, privateKey } = generateKeyPairSync('ed25519');
  return {
    deviceKey: publicKey.export({ format: 'jwk' }).x as string,
    proofOf: (token) =>
      sign(null, Buffer.from(`halo-enroll-v1\n${token}`), privateKey).toString('base64url'),
  };
}

t.test('an administrator mints a token for a user in the user’s one form', async (t) => {
  const front = await startFront();
  t.teardown(() => front.close());
  const minted = await call(front.url, 'POST', '/api/v1/enrollment-tokens', {
    bearer: ADMIN_TOKEN,
    body: { user: '  Åsa\t' },
  });
  t.match(minted, {
    status: 201,
    headers: { 'cache-control': 'no-store' },
    json: { token: ENROLLMENT_TOKEN, expiresAt: '2026-01-31T13:00:00.000Z' },
  });
  t.same(front.actor.last('mintToken')?.payload, { user: 'åsa', ttlSeconds: 3600, by: 'root' });
  for (const ttlSeconds of [1, 86_400]) {
    const body = { user: 'x', ttlSeconds };
    const sent = { bearer: ADMIN_TOKEN, body };
    t.equal((await call(front.url, 'POST', '/api/v1/enrollment-tokens', sent)).status, 201);
    t.match(front.actor.last('mintToken')?.payload, { ttlSeconds });
  }
});

t.test('an administrator voids the tokens of a user', async (t) => {
  const front = await startFront();
  t.teardown(() => front.close());
  const voided = await call(front.url, 'POST', '/api/v1/enrollment-tokens/void', {
    bearer: ADMIN_TOKEN,
    body: { user: 'ANN' },
  });
  t.match(voided, { status: 200, json: { voidedUpTo: '2026-01-31T12:00:00.000Z' } });
  t.same(front.actor.last('voidTokens')?.payload, { user: 'ann', by: 'root' });
});

t.test('a token enrols a device; the actor sees only its digest', async (t) => {
  const front = await startFront();
  t.teardown(() => front.close());
  const enrolled = await enrol(front, {});
  t.match(enrolled, {
    status: 201,
    headers: { 'cache-control': 'no-store' },
    json: {
      device: {
        id: DEVICE_ID,
        user: 'ann',
        name: 'laptop',
        platform: 'linux',
        enrolledAt: '2026-01-31T12:00:00.000Z',
      },
      credential: CREDENTIAL,
    },
  });
  t.same(front.actor.last('enroll')?.payload, {
    tokenDigest: digestOf(ENROLLMENT_TOKEN),
    name: 'laptop',
    platform: 'linux',
  });
});

t.test('a token that cannot be one is refused without asking the actor', async (t) => {
  const front = await startFront();
  t.teardown(() => front.close());
  const wrong = [
    'x',
    ENROLLMENT_TOKEN.slice(0, -1),
    `${ENROLLMENT_TOKEN.slice(0, -1)}!`,
    ENROLLMENT_TOKEN.toLowerCase(),
    freshSecret('device'),
    ADMIN_TOKEN,
  ];
  for (const token of wrong) {
    const refused = await enrol(front, { token });
    t.match(refused, { status: 401, json: { code: 'enrollment_token_invalid' } });
    t.equal(refused.headers['www-authenticate'], 'Bearer');
    t.notOk(refused.text.includes(`"${token}"`), 'the token is not repeated');
  }
  t.equal(front.actor.asked.length, 0);
  const unknown = await enrol(front, { token: freshSecret('enroll') });
  t.match(unknown, { status: 401, json: { code: 'enrollment_token_invalid' } });
  t.same(
    front.actor.asked.map(({ kind }) => kind),
    ['mayEnroll'],
    'a well-formed one is looked up',
  );
});

t.test('a device key is passed on only with a proof that it signed this token', async (t) => {
  const front = await startFront();
  t.teardown(() => front.close());
  const key = deviceKey();
  const good = { deviceKey: key.deviceKey, proof: key.proofOf(ENROLLMENT_TOKEN) };
  t.equal((await enrol(front, good)).status, 201);
  t.match(front.actor.last('enroll')?.payload, { deviceKey: key.deviceKey });
  const asked = () => front.actor.asked.filter(({ kind }) => kind === 'enroll').length;
  t.equal(asked(), 1);
  const wrong: [Record<string, unknown>, string][] = [
    [{ deviceKey: key.deviceKey }, '/proof'],
    [{ proof: good.proof }, '/deviceKey'],
    [{ ...good, proof: key.proofOf(freshSecret('enroll')) }, '/proof'],
    [{ ...good, deviceKey: deviceKey().deviceKey }, '/proof'],
    [{ ...good, proof: good.proof.slice(1) }, '/proof'],
    [{ ...good, proof: `${good.proof}=` }, '/proof'],
    [{ ...good, deviceKey: `${key.deviceKey.slice(0, -1)}!` }, '/deviceKey'],
    [{ ...good, deviceKey: 'A'.repeat(43) }, '/proof'],
    [{ ...good, deviceKey: null }, '/deviceKey'],
  ];
  for (const [body, pointer] of wrong) {
    const refused = await enrol(front, body);
    t.match(refused, { status: 422, json: { code: 'validation_failed', errors: [{ pointer }] } });
  }
  t.equal(asked(), 1, 'nothing of it became an enrolment');
  t.equal(front.limiter.asked.length, 0, 'whoever has a token guesses nothing');
  const guessed = { ...good, token: freshSecret('enroll') };
  t.match(await enrol(front, guessed), { json: { code: 'enrollment_token_invalid' } });
  t.equal(front.limiter.asked.length, 1, 'without a token no proof is looked at');
});

t.test('one key has one spelling, so that another spelling is no other key', async (t) => {
  const front = await startFront();
  t.teardown(() => front.close());
  const key = deviceKey();
  const alphabet = 'ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_';
  const last = alphabet.indexOf(key.deviceKey.at(-1) as string);
  const twin = key.deviceKey.slice(0, -1) + alphabet[last + 1];
  t.same(Buffer.from(twin, 'base64url'), Buffer.from(key.deviceKey, 'base64url'));
  const refused = await enrol(front, { deviceKey: twin, proof: key.proofOf(ENROLLMENT_TOKEN) });
  t.match(refused, { status: 422, json: { errors: [{ pointer: '/deviceKey' }] } });
});

/** What the actor was last given as the call's idempotency. */
function lastKeyed(front: Front, kind: string): Idempotency {
  const payload = front.actor.last(kind)?.payload as { idempotency: Idempotency } | undefined;
  if (payload === undefined) throw new Error(`${kind} was not asked`);
  return payload.idempotency;
}

async function idempotencyOf(
  front: Front,
  path: string,
  kind: string,
  sent: { bearer?: string; body?: unknown; key: string },
): Promise<Idempotency> {
  const headers = { 'idempotency-key': sent.key };
  const answer = await call(front.url, 'POST', path, { ...sent, headers });
  t.ok(answer.status < 300, `${path}: ${answer.text}`);
  return lastKeyed(front, kind);
}

t.test('a key reaches the actor with who asks, what is asked and an HMAC', async (t) => {
  const front = await startFront();
  t.teardown(() => front.close());
  const hmac = (text: string): string => createHmac('sha256', HMAC_KEY).update(text).digest('hex');
  const tokens = '/api/v1/enrollment-tokens';
  t.same(
    await idempotencyOf(front, tokens, 'mintToken', {
      bearer: ADMIN_TOKEN,
      body: { user: 'ann', ttlSeconds: 60 },
      key: 'k 1'.replace(' ', '~'),
    }),
    {
      principal: 'admin:root',
      call: `POST ${tokens} k~1`,
      bodyHmac: hmac('{"ttlSeconds":60,"user":"ann"}'),
    },
  );
  const body = { token: ENROLLMENT_TOKEN, name: 'a', platform: 'b' };
  t.match(await idempotencyOf(front, '/api/v1/enroll', 'enroll', { body, key: 'k' }), {
    principal: `enrollment:${digestOf(ENROLLMENT_TOKEN)}`,
  });
  const encoded = DEVICE_ID.replace('_', '%5F');
  t.same(
    await idempotencyOf(front, `/api/v1/devices/${encoded}/rotate`, 'rotate', {
      bearer: CREDENTIAL,
      key: 'k',
    }),
    {
      principal: `device:${DEVICE_ID}`,
      call: `POST /api/v1/devices/${DEVICE_ID}/rotate k`,
      bodyHmac: hmac(''),
    },
    'an encoded path is the same call',
  );
});

t.test('the order of fields and white space do not make another body', async (t) => {
  const front = await startFront();
  t.teardown(() => front.close());
  const hmacOf = async (body: string): Promise<string> => {
    await call(front.url, 'POST', '/api/v1/enrollment-tokens', {
      bearer: ADMIN_TOKEN,
      headers: { 'content-type': 'application/json', 'idempotency-key': 'k' },
      body,
    });
    return lastKeyed(front, 'mintToken').bodyHmac;
  };
  const first = await hmacOf('{"user":"ann","ttlSeconds":60}');
  t.equal(await hmacOf(' { "ttlSeconds" : 6.0e1 ,\n"us\\u0065r":"ann" }'), first);
  t.not(await hmacOf('{"user":"ann","ttlSeconds":61}'), first);
  t.not(await hmacOf('{"user":"ann"}'), first);
});

t.test('a key must be 1 to 255 visible ASCII characters', async (t) => {
  const front = await startFront();
  t.teardown(() => front.close());
  const status = async (key: string): Promise<Received> =>
    call(front.url, 'POST', '/api/v1/enrollment-tokens', {
      bearer: ADMIN_TOKEN,
      body: { user: 'x' },
      headers: { 'idempotency-key': key },
    });
  t.equal((await status('k'.repeat(255))).status, 201);
  for (const key of ['', 'k'.repeat(256), 'a b', 'é', 'a\tb']) {
    t.match(await status(key), { status: 400, json: { code: 'headers_invalid' } }, `“${key}”`);
  }
});
