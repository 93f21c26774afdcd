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
