import t from 'tap';
import { digestOf } from '../src/actors/secrets.js';
import { codeOf, enrol, openReplicas } from './fixtures/device-replica.js';

const SHAPE = { name: 'laptop', platform: 'linux' };

t.test('a token enrols one device, on whichever replica comes first', async (t) => {
  const { replicas, close } = await openReplicas();
  t.teardown(close);
  const [a, b] = replicas as [(typeof replicas)[0], (typeof replicas)[0]];
  const { token } = await a.devices.mintToken({ user: 'ann', ttlSeconds: 60, by: 'root' });
  const tries = Array.from({ length: 20 }, (_, index) =>
    codeOf((index % 2 ? a : b).devices.enroll({ tokenDigest: digestOf(token), ...SHAPE })),
  );
  const codes = await Promise.all(tries);
  t.equal(codes.filter((code) => code === 'resolved').length, 1);
  t.equal(codes.filter((code) => code === 'enrollment_token_invalid').length, 19);
});

t.test('an unknown, expired or voided token is refused', async (t) => {
  const { clock, replicas, close } = await openReplicas();
  t.teardown(close);
  const [a, b] = replicas as [(typeof replicas)[0], (typeof replicas)[0]];
  const tryWith = (token: string): Promise<string> =>
    codeOf(b.devices.enroll({ tokenDigest: digestOf(token), ...SHAPE }));
  t.equal(await tryWith('halo_enroll_x'), 'enrollment_token_invalid');
  const expired = await a.devices.mintToken({ user: 'ann', ttlSeconds: 60, by: 'root' });
  const voided = await a.devices.mintToken({ user: 'bob', ttlSeconds: 600, by: 'root' });
  const kept = await a.devices.mintToken({ user: 'carl', ttlSeconds: 600, by: 'root' });
  clock.advance(60_000);
  t.equal(await tryWith(expired.token), 'enrollment_token_invalid');
  await a.devices.voidTokens({ user: 'bob', by: 'root' });
  t.equal(await tryWith(voided.token), 'enrollment_token_invalid');
  const after = await b.devices.mintToken({ user: 'bob', ttlSeconds: 600, by: 'root' });
  t.equal(await tryWith(after.token), 'resolved', 'a token minted after the void works');
  t.equal(await tryWith(kept.token), 'resolved', 'another user is not touched');
});

t.test('the same token and device key get the same device until its first use', async (t) => {
  const { replicas, close } = await openReplicas();
  t.teardown(close);
  const [a, b] = replicas as [(typeof replicas)[0], (typeof replicas)[0]];
  const { token } = await a.devices.mintToken({ user: 'ann', ttlSeconds: 60, by: 'root' });
  const tokenDigest = digestOf(token);
  const input = { tokenDigest, ...SHAPE, deviceKey: 'key-1' };
  const first = await a.devices.enroll(input);
  const second = await b.devices.enroll(input);
  t.equal(second.device.id, first.device.id);
  t.not(second.credential, first.credential);
  t.equal(
    await codeOf(b.devices.enroll({ ...input, deviceKey: 'key-2' })),
    'enrollment_token_invalid',
    'another key is refused',
  );
  t.equal(
    await codeOf(b.devices.enroll({ tokenDigest, ...SHAPE })),
    'enrollment_token_invalid',
    'no key is refused',
  );
  t.equal(await a.authenticate(first.credential), 'device_unknown', 'the older is dead');
  t.equal(await a.authenticate(second.credential), `${first.device.id}ann`);
  t.equal(await codeOf(b.devices.enroll(input)), 'enrollment_token_invalid', 'spent for good');
  t.equal(await b.authenticate(second.credential), `${first.device.id}ann`);
});

t.test('a revoked device cannot be had again with its token', async (t) => {
  const { replicas, close } = await openReplicas();
  t.teardown(close);
  const [a, b] = replicas as [(typeof replicas)[0], (typeof replicas)[0]];
  const { token } = await a.devices.mintToken({ user: 'ann', ttlSeconds: 60, by: 'root' });
  const input = { tokenDigest: digestOf(token), ...SHAPE, deviceKey: 'key-1' };
  const first = await a.devices.enroll(input);
  await b.devices.revoke({ id: first.device.id, reason: 'lost', by: 'root' });
  t.equal(await codeOf(a.devices.enroll(input)), 'enrollment_token_invalid');
  t.equal(await a.authenticate(first.credential), 'device_revoked');
});

t.test('lists page in one order on every replica, by user and whole', async (t) => {
  const { replicas, close } = await openReplicas();
  t.teardown(close);
  const [a, b] = replicas as [(typeof replicas)[0], (typeof replicas)[0]];
  const ids: string[] = [];
  for (let index = 0; index < 7; index += 1) {
    ids.push((await enrol(index % 2 ? a : b, index % 3 ? 'ann' : 'bob')).id);
  }
  await a.devices.rotate({ id: ids[0]!, overlapSeconds: 0, caller: { kind: 'admin', name: 'r' } });
  const seen: string[] = [];
  let after = 0;
  for (let page = 0; page < 10; page += 1) {
    const { items, next } = await (page % 2 ? a : b).devices.list({ limit: 2, after });
    seen.push(...items.map((item) => item.id));
    if (next === undefined) break;
    after = next;
  }
  t.same(seen, ids);
  const bobs = await b.devices.list({ limit: 10, after: 0, user: 'bob' });
  t.same(
    bobs.items.map((item) => item.id),
    [ids[0], ids[3], ids[6]],
  );
  t.equal((await a.devices.get(ids[4]!)).user, 'ann');
  t.equal(await codeOf(a.devices.get('dev_none')), 'device_not_found');
});

t.test(
  'whoever guesses is refused from the view, and nothing is locked or committed',
  async (t) => {
    const operations: string[] = [];
    const before = (operation: string): void => {
      if (operation !== 'catchUp') operations.push(operation);
    };
    const { clock, replicas, close } = await openReplicas(1, [{ before }, {}]);
    t.teardown(close);
    const [a, b] = replicas as [(typeof replicas)[0], (typeof replicas)[0]];
    const mint = async (user: string, ttlSeconds = 600) =>
      digestOf((await b.devices.mintToken({ user, ttlSeconds, by: 'root' })).token);
    const [expired, voided, good, keyed] = [
      await mint('ann', 1),
      await mint('bob'),
      await mint('carl'),
      await mint('carl'),
    ];
    await b.devices.voidTokens({ user: 'bob', by: 'root' });
    clock.advance(1_000);
    const { id, credential } = await enrol(b);
    const other = await enrol(b);
    operations.length = 0;
    const may = (tokenDigest: string, more: object = {}): Promise<string> =>
      codeOf(a.devices.mayEnroll({ tokenDigest, ...SHAPE, ...more }));
    const guesses = Array.from({ length: 30 }, (_, index) => may(digestOf(`guess ${index}`)));
    t.same(new Set(await Promise.all(guesses)), new Set(['enrollment_token_invalid']));
    t.ok(operations.length <= 2, `${operations.length} look-ups for thirty guesses`);
    t.same(
      await Promise.all([may(expired), may(voided)]),
      Array(2).fill('enrollment_token_invalid'),
    );
    t.same(await Promise.all([may(good), may(keyed)]), ['resolved', 'resolved']);
    await b.devices.enroll({ tokenDigest: good, ...SHAPE });
    await b.devices.enroll({ tokenDigest: keyed, ...SHAPE, deviceKey: 'k' });
    t.equal(await may(good), 'enrollment_token_invalid', 'spent');
    t.equal(await may(good, { deviceKey: 'k' }), 'enrollment_token_invalid');
    t.equal(await may(keyed, { deviceKey: 'other' }), 'enrollment_token_invalid');
    t.equal(await may(keyed, { deviceKey: 'k' }), 'resolved', 'a retry goes on to be judged');
    const idempotency = { principal: 'p', call: 'c', bodyHmac: 'h' };
    t.equal(await may(good, { idempotency }), 'resolved', 'and so does the same call');
    const rotating = (secret: string, of = id): Promise<string> =>
      codeOf(a.devices.mayRotate({ credentialDigest: digestOf(secret), id: of }));
    t.equal(await rotating('halo_device_x'), 'device_unknown');
    t.equal(await rotating(credential), 'resolved');
    t.equal(await rotating(credential, other.id), 'not_own_device');
    await b.devices.revoke({ id, reason: 'lost', by: 'root' });
    t.equal(await rotating(credential), 'device_revoked');
    t.notOk(operations.includes('commit'), operations.join());
    t.equal(a.host.snapshots()[0]?.commits, 0);
  },
);
