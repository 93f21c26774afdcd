/** What gateways see of two real replicas on one database. */
import t from 'tap';
import { seededRandom } from '../src/runtime/random.js';
import { startHaloCluster } from './fixtures/halo-cluster.js';
import { eventually, type HaloServer, pause } from './fixtures/halo-server.js';
import { Follower, kill, lift, listed, newGateway } from './fixtures/push-cluster.js';
import { StreamClient } from './fixtures/stream-client.js';

const SEED = Number(process.env['SEED'] ?? 11);

t.test('two replicas say the same to every gateway', async (t) => {
  const cluster = await startHaloCluster(2);
  t.teardown(() => cluster.stop());
  const [a, b] = cluster.servers as [HaloServer, HaloServer];
  const gateway = await newGateway(a);

  t.test('a kill on one reaches the streams of both, faster than the poll', async (t) => {
    const clients = await Promise.all(
      [a, a, b, b].map((server) => StreamClient.open(server.url, { token: gateway.token })),
    );
    t.teardown(() => {
      for (const client of clients) client.destroy();
    });
    for (const server of [a, b]) {
      await eventually(async () => {
        const status = await server.admin('GET', '/v1/status');
        return status.json.push === 'listen';
      }, 5_000);
    }
    await eventually(() => clients.every(({ list }) => list.version >= 0), 5_000);
    const tookMs: number[] = [];
    for (let round = 0; round < 20; round += 1) {
      const version = await kill(a, `fast-${round}`);
      const ms = await eventually(
        () => clients.every(({ list }) => list.version >= version),
        5_000,
      );
      tookMs.push(ms);
    }
    const median = tookMs.sort((x, y) => x - y)[10] ?? 0;
    t.ok(median < 60, `a median of ${median} ms to all`);
    for (const { list } of clients) t.same(list.faults, []);
  });

  t.test('an expiry is one version for all, and comes by itself', async (t) => {
    const client = await StreamClient.open(b.url, { token: gateway.token });
    t.teardown(() => client.destroy());
    const expiresAt = new Date(Date.now() + 700).toISOString();
    const put = { reason: 'soon over', expiresAt };
    const { json } = await a.admin('PUT', '/api/v1/kill-list/agent/ends', put);
    await eventually(() => client.list.version === json.version + 1, 5_000);
    t.notOk(client.list.entries.has('agent/ends'));
    t.equal((await listed(a)).version, json.version + 1);
  });

  t.test('a removed gateway is shut out on both, with 4403', async (t) => {
    const removed = await newGateway(a);
    const { token } = removed;
    const clients = await Promise.all([a, b].map(({ url }) => StreamClient.open(url, { token })));
    const kept = await StreamClient.open(b.url, { token: gateway.token });
    t.teardown(() => kept.destroy());
    t.equal((await a.admin('DELETE', `/api/v1/gateways/${removed.id}`)).status, 200);
    await eventually(() => clients.every(({ closed }) => closed?.code === 4403), 5_000);
    t.equal(kept.closed, undefined);
    await t.rejects(StreamClient.open(b.url, { token }));
  });

  t.test('kills and lifts racing from both, and all gateways end with one list', async (t) => {
    t.comment(`seed ${SEED}`);
    const random = seededRandom(SEED);
    const followers = [a, a, b, b].map((server) => new Follower(gateway.token, () => server));
    t.teardown(() => {
      for (const follower of followers) follower.stop();
    });
    for (let round = 0; round < 200; round += 1) {
      await Promise.all(
        Array.from({ length: 3 }, () => {
          const server = random.fraction() < 0.5 ? a : b;
          const id = `race-${Math.floor(random.fraction() * 4)}`;
          return random.fraction() < 0.6 ? kill(server, id) : lift(server, id);
        }),
      );
      if (round % 20 === 0) followers[round % 4]?.move();
    }
    const end = await listed(b);
    await eventually(() => followers.every(({ list }) => list.version === end.version), 10_000);
    for (const { list } of followers) {
      t.same(list.names, end.names);
      t.same(list.faults, []);
    }
  });
});

/** The number; each gateway may have a hundred on one front thread. */
const STREAMS = 1_000;
const GATEWAYS = 12;
/** Each kill is a thousand frames that this process reads beside the replicas. */
const KILL_EVERY_MS = 40;

t.test('both replicas restart in turn under 1,000 streams, and no kill is lost', async (t) => {
  const cluster = await startHaloCluster(2);
  t.teardown(() => cluster.stop());
  const gateways = await Promise.all(
    Array.from({ length: GATEWAYS }, () => newGateway(cluster.servers[0] as HaloServer)),
  );
  let live = [...cluster.servers];
  const followers = Array.from({ length: STREAMS }, (_, index) => {
    const { token } = gateways[index % gateways.length]!;
    return new Follower(token, () => live[index % live.length]!);
  });
  t.teardown(() => {
    for (const follower of followers) follower.stop();
  });
  await eventually(() => followers.every(({ list }) => list.version >= 0), 20_000);
  const answered: string[] = [];
  let killing = true;
  const killer = (async () => {
    for (let count = 0; killing; count += 1) {
      const done = await kill(live.at(-1)!, `k${count}`).catch(() => undefined);
      if (done !== undefined) answered.push(`agent/k${count}`);
      await pause(KILL_EVERY_MS);
    }
  })();
  for (const server of cluster.servers.slice(0, 2)) {
    const before = answered.length;
    live = live.filter((other) => other !== server);
    t.equal(await server.stop(), 0, 'it ends in order');
    live = [...live, await cluster.add()];
    await eventually(() => answered.length > before + 10, 20_000, 'kills meanwhile');
  }
  killing = false;
  await killer;
  const end = await listed(live[0]!);
  await eventually(() => followers.every(({ list }) => list.version === end.version), 20_000);
  t.comment(`${answered.length} kills`);
  t.same(
    answered.filter((name) => !end.names.includes(name)),
    [],
    'what was answered is in force',
  );
  t.ok(followers.every(({ list }) => list.names.join() === end.names.join()));
  t.same(
    followers.flatMap(({ list }) => list.faults),
    [],
  );
  const closes = followers.flatMap((follower) => follower.closes);
  t.ok(closes.filter((code) => code === 1012).length >= 0.8 * STREAMS, 'told to come back');
});
