/** Replays of calls at moments at which their first answer would be a lie. */
import t from 'tap';
import type { Idempotency } from '../src/actors/idempotency.js';
import { digestOf } from '../src/actors/secrets.js';
import { codeOf, openReplicas } from './fixtures/device-replica.js';
import { keepAlive } from './fixtures/keep-alive.js';

keepAlive(t);

const idempotency: Idempotency = { principal: 'admin:root', call: 'mint', bodyHmac: 'h' };
const MINT = { user: 'ann', ttlSeconds: 60, by: 'root' };

t.test('a token that was voided since is not handed out again', async (t) => {
  const { replicas, close } = await openReplicas();
  t.teardown(close);
  const [a, b] = replicas as [(typeof replicas)[0], (typeof replicas)[0]];
  await a.devices.mintToken({ ...MINT, idempotency });
  await b.devices.voidTokens({ user: 'bob', by: 'root' });
  t.equal(await codeOf(b.devices.mintToken({ ...MINT, idempotency })), 'resolved', 'not his');
  await b.devices.voidTokens({ user: 'ann', by: 'root' });
  t.equal(await codeOf(a.devices.mintToken({ ...MINT, idempotency })), 'replay_superseded');
  const { token } = await a.devices.mintToken(MINT);
  const enrolment = { tokenDigest: digestOf(token), name: 'laptop', platform: 'linux' };
  t.equal(await codeOf(b.devices.enroll(enrolment)), 'resolved', 'a new one is good');
});

t.test('a token ends at its very millisecond, for an enrolment and for a replay', async (t) => {
  const { clock, replicas, close } = await openReplicas();
  t.teardown(close);
  const [a] = replicas as [(typeof replicas)[0]];
  const { expiresAtMs } = await a.devices.mintToken({ ...MINT, idempotency });
  const { token } = await a.devices.mintToken(MINT);
  const enrolment = { tokenDigest: digestOf(token), name: 'laptop', platform: 'linux' };
  clock.advance(expiresAtMs - clock.wallMs());
  t.equal(await codeOf(a.devices.enroll(enrolment)), 'enrollment_token_invalid');
  t.equal(await codeOf(a.devices.mintToken({ ...MINT, idempotency })), 'replay_superseded');
});

t.test('a call that both replicas get at the same moment mints one token that works', async (t) => {
  const { replicas, close } = await openReplicas();
  t.teardown(close);
  const minted = await Promise.all(
    [...replicas, ...replicas, ...replicas].map((replica) =>
      replica.devices.mintToken({ ...MINT, idempotency }),
    ),
  );
  const enrolled = await Promise.all(
    minted.map(({ token }, index) =>
      codeOf(
        replicas[index % 2]!.devices.enroll({
          tokenDigest: digestOf(token),
          name: 'laptop',
          platform: 'linux',
        }),
      ),
    ),
  );
  t.equal(enrolled.filter((code) => code === 'resolved').length, 1, enrolled.join(' '));
});
