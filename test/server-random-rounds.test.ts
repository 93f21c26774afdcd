import { generateKeyPairSync, type KeyObject, sign } from 'node:crypto';
import t, { type Test } from 'tap';
import { type Random, seededRandom } from '../src/runtime/random.js';
import { fromAnotherAddress, TRUST_LOOPBACK } from './fixtures/another-address.js';
import { type HaloCluster, startHaloCluster } from './fixtures/halo-cluster.js';
import { ADMIN_TOKEN, type HaloAnswer, type HaloServer, pause } from './fixtures/halo-server.js';

// Real servers, and faults that take their time.
t.setTimeout(240_000);

const SEED = Number(process.env['SEED'] ?? Math.floor(Math.random() * 1_000_000));
const ROUNDS = Number(process.env['ROUNDS'] ?? 100);
/** One round in so many kills a replica; each costs the start of another. */
const KILL_EVERY = 8;
/** 422: a key of the round that was used with another body. */
const STATUSES = new Set([200, 201, 401, 403, 409, 422, 503]);

interface DeviceKey {
  readonly publicKey: string;
  readonly privateKey: KeyObject;
}
function newDeviceKey(): DeviceKey {
  const { publicKey, privateKey } = generateKeyPairSync('ed25519');
  return { publicKey: publicKey.export({ format: 'jwk' }).x as string, privateKey };
}

class Round {
  readonly credentials = new Set<string>();
  readonly devices = new Set<string>();
  /** Ids whose revocation was answered. */
  readonly revoked = new Set<string>();

  constructor(
    readonly t: Test,
    readonly halo: HaloCluster,
    readonly random: Random,
    readonly user: string,
  ) {}

  any(): HaloServer {
    const { servers } = this.halo;
    return servers[Math.floor(this.random.fraction() * servers.length)]!;
  }

  /** undefined when the replica died under the request. */
  async call(
    server: HaloServer,
    method: string,
    path: string,
    body?: unknown,
    token: string | undefined = ADMIN_TOKEN,
    headers: Record<string, string> = {},
  ): Promise<HaloAnswer | undefined> {
    const answer = await server
      .call(method, path, {
        headers: { ...fromAnotherAddress(), ...headers },
        ...(token ? { token } : {}),
        ...(body ? { body } : {}),
      })
      .catch(() => undefined);
    if (answer && !STATUSES.has(answer.status)) this.t.fail(`${method} ${path}: ${answer.text}`);
    return answer;
  }

  async enrol(token: string, key: DeviceKey | undefined, idempotency: string): Promise<void> {
    const proof = key && {
      deviceKey: key.publicKey,
      proof: sign(null, Buffer.from(`halo-enroll-v1\n${token}`), key.privateKey).toString(
        'base64url',
      ),
    };
    const body = { token, name: 'n', platform: 'p', ...proof };
    const headers: Record<string, string> =
      idempotency === '' ? {} : { 'idempotency-key': idempotency };
    for (let attempt = 0; attempt < 2; attempt += 1) {
      await pause(this.random.fraction() * 20);
      const answer = await this.call(this.any(), 'POST', '/api/v1/enroll', body, '', headers);
      if (answer?.status !== 201) continue;
      this.devices.add(answer.json.device.id);
      this.credentials.add(answer.json.credential);
      if (this.random.fraction() < 0.4) await this.use(answer.json);
    }
  }

  async use(enrolled: { device: { id: string }; credential: string }): Promise<void> {
    const { id } = enrolled.device;
    const { credential } = enrolled;
    const what = this.random.fraction();
    if (what < 0.4) {
      const known = this.revoked.has(id);
      const answer = await this.call(
        this.any(),
        'GET',
        '/api/v1/auth/device',
        undefined,
        credential,
      );
      if (known && answer?.status === 200) this.t.fail('a revoked device passed');
    } else if (what < 0.7) {
      const path = `/api/v1/devices/${id}/rotate`;
      const answer = await this.call(this.any(), 'POST', path, { overlapSeconds: 5 }, credential);
      if (answer?.status === 200) this.credentials.add(answer.json.credential);
    } else {
      await this.revoke(id);
    }
  }

  async revoke(id: string): Promise<boolean> {
    const path = `/api/v1/devices/${id}/revoke`;
    const answer = await this.call(this.any(), 'POST', path, { reason: 'r' });
    if (answer?.status === 200) this.revoked.add(id);
    return answer?.status === 200;
  }
}

async function play(round: Round): Promise<void> {
  const { random } = round;
  const minted = await round.call(round.any(), 'POST', '/api/v1/enrollment-tokens', {
    user: round.user,
  });
  if (minted?.status !== 201) return;
  const { token } = minted.json;
  const [own, other] = [newDeviceKey(), newDeviceKey()];
  const keys = [own, own, own, other, undefined, undefined];
  const count = 2 + Math.floor(random.fraction() * 5);
  await Promise.all(
    Array.from({ length: count }, () => {
      const key = keys[Math.floor(random.fraction() * keys.length)];
      return round.enrol(token, key, random.fraction() < 0.3 ? `key-${round.user}` : '');
    }),
  );
}

/** What must hold once the dust has settled, asked of both replicas. */
async function check(round: Round): Promise<void> {
  const { t, halo, user } = round;
  t.ok(round.devices.size <= 1, `${user}: one token, ${round.devices.size} devices`);
  for (const server of halo.servers) {
    const list = await server.admin('GET', `/api/v1/devices?user=${user}`);
    t.ok(list.json.items.length <= 1, `${user}: one token, listed ${list.json.items.length} times`);
    const id = list.json.items[0]?.id;
    if (id && round.random.fraction() < 0.5) await round.revoke(id);
    for (const credential of round.credentials) {
      const { status, json } = await server.call('GET', '/api/v1/auth/device', {
        token: credential,
        headers: fromAnotherAddress(),
      });
      const code = status === 200 ? 'in' : json.code;
      const passed = code === 'in' || code === 'store_unavailable';
      t.notOk(round.revoked.has(id) && passed, `${user}: revoked, then ${code}`);
    }
  }
}

t.test(`${ROUNDS} rounds on two replicas, one killed at random, seed ${SEED}`, async (t) => {
  t.comment(`SEED=${SEED}`);
  const halo = await startHaloCluster(2, {}, TRUST_LOOPBACK);
  t.teardown(() => halo.stop());
  const random = seededRandom(SEED);
  let kills = 0;
  for (let count = 0; count < ROUNDS; count += 1) {
    const round = new Round(t, halo, random, `user-${count}`);
    const playing = play(round);
    if (count % KILL_EVERY === KILL_EVERY - 1) {
      await pause(random.fraction() * 60);
      const [victim] = halo.servers.splice(Math.floor(random.fraction() * 2), 1);
      kills += 1;
      await victim!.stop('SIGKILL');
      await playing;
      await halo.add();
    }
    await playing;
    await check(round);
  }
  t.comment(`${kills} replicas were killed`);
});
