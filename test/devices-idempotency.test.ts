import t from 'tap';
import type { Idempotency } from '../src/actors/idempotency.js';
import { digestOf } from '../src/actors/secrets.js';
import { codeOf, enrol, openReplicas } from './fixtures/device-replica.js';

const key = (call: string, bodyHmac = 'h', principal = 'admin:root'): Idempotency => ({
  principal,
  call,
  bodyHmac,
});
const SHAPE = { name: 'laptop', platform: 'linux' };

t.test(
  'a minted token is handed out again with another secret, and only one of them works',
  async (t) => {
    const { replicas, close } = await openReplicas();
    t.teardown(close);
    const [a, b] = replicas as [(typeof replicas)[0], (typeof replicas)[0]];
    const input = { user: 'ann', ttlSeconds: 60, by: 'root', idempotency: key('mint 1') };
    const [first, second] = [await a.devices.mintToken(input), await b.devices.mintToken(input)];
    t.equal(second.expiresAtMs, first.expiresAtMs);
    t.not(second.token, first.token);
    const enrolWith = (token: string): Promise<string> =>
      codeOf(a.devices.enroll({ tokenDigest: digestOf(token), ...SHAPE }));
    t.equal(await enrolWith(first.token), 'enrollment_token_invalid');
    t.equal(await enrolWith(second.token), 'resolved');
    t.equal(await codeOf(b.devices.mintToken(input)), 'replay_superseded', 'no second device');
    t.equal(
      await codeOf(a.devices.mintToken({ ...input, idempotency: key('mint 1', 'other') })),
      'idempotency_mismatch',
    );
    const other = { ...input, idempotency: key('mint 1', 'h', 'admin:eve') };
    t.equal(await codeOf(a.devices.mintToken(other)), 'resolved', 'keys belong to their principal');
  },
);

t.test('an enrolment is repeated with its key until the device has authenticated', async (t) => {
  const { replicas, close } = await openReplicas();
  t.teardown(close);
  const [a, b] = replicas as [(typeof replicas)[0], (typeof replicas)[0]];
  const { token } = await a.devices.mintToken({ user: 'ann', ttlSeconds: 60, by: 'root' });
  const tokenDigest = digestOf(token);
  const idempotency = key('enroll', 'h', `enrollment:${tokenDigest}`);
  const input = { tokenDigest, ...SHAPE, idempotency };
  const first = await a.devices.enroll(input);
  const second = await b.devices.enroll(input);
  t.equal(first.device.id, second.device.id);
  t.equal(await a.authenticate(first.credential), 'device_unknown');
  t.equal(await a.authenticate(second.credential), `${first.device.id}ann`);
  t.equal(await codeOf(b.devices.enroll(input)), 'enrollment_token_invalid');
});

t.test('a revocation and a rotation are answered the same again', async (t) => {
  const { replicas, close } = await openReplicas();
  t.teardown(close);
  const [a, b] = replicas as [(typeof replicas)[0], (typeof replicas)[0]];
  const device = await enrol(a);
  const rotation = {
    id: device.id,
    overlapSeconds: 300,
    caller: { kind: 'device' as const, credentialDigest: digestOf(device.credential) },
    idempotency: key('rotate 1', 'h', `device:${device.id}`),
  };
  const lost = await a.devices.rotate(rotation);
  const again = await b.devices.rotate(rotation);
  t.not(again.credential, lost.credential);
  t.equal(await b.authenticate(lost.credential), 'device_unknown', 'the lost one is replaced');
  t.equal(await b.authenticate(again.credential), `${device.id}ann`);
  t.equal(await b.authenticate(device.credential), `${device.id}ann`, 'the overlap is the first');
  const next = { ...rotation, idempotency: key('rotate 2', 'h', `device:${device.id}`) };
  next.caller = { kind: 'device', credentialDigest: digestOf(again.credential) };
  await a.devices.rotate(next);
  t.equal(
    await codeOf(a.devices.rotate({ ...rotation, caller: next.caller })),
    'replay_superseded',
  );
  const revocation = { id: device.id, reason: 'lost', by: 'root', idempotency: key('revoke') };
  const one = await a.devices.revoke(revocation);
  t.same(await b.devices.revoke(revocation), one);
});

t.test('calls with one key at the same time do the work once', async (t) => {
  const { replicas, close } = await openReplicas();
  t.teardown(close);
  const [a, b] = replicas as [(typeof replicas)[0], (typeof replicas)[0]];
  const { token } = await a.devices.mintToken({ user: 'ann', ttlSeconds: 60, by: 'root' });
  const tokenDigest = digestOf(token);
  const idempotency = key('enroll', 'h', `enrollment:${tokenDigest}`);
  const all = await Promise.all(
    Array.from({ length: 10 }, (_, index) =>
      (index % 2 ? a : b).devices.enroll({ tokenDigest, ...SHAPE, idempotency }),
    ),
  );
  t.equal(new Set(all.map(({ device }) => device.id)).size, 1);
  const passed = await Promise.all(all.map(({ credential }) => a.authenticate(credential)));
  t.equal(passed.filter((answer) => answer.startsWith('dev_')).length, 1, 'one credential works');
});
