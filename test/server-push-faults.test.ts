/** Replicas whose network fails: what is late is said, what is cut off lets go. */
import t from 'tap';
import { startHaloCluster } from './fixtures/halo-cluster.js';
import { eventually, type HaloServer } from './fixtures/halo-server.js';
import { Follower, kill, newGateway, proxyOf } from './fixtures/push-cluster.js';
import { StreamClient } from './fixtures/stream-client.js';

t.test('one replica is far from the database', async (t) => {
  const cluster = await startHaloCluster(1);
  t.teardown(() => cluster.stop());
  const proxy = await proxyOf(cluster);
  t.teardown(() => proxy.stop());
  const [near] = cluster.servers as [HaloServer];
  const far = await cluster.add([], proxy.urlOf(cluster.database.url));
  const { token } = await newGateway(near);

  t.test('gateways that move between both never see a version go back', async (t) => {
    proxy.delay(150);
    let index = 0;
    const followers = Array.from({ length: 10 }, () => {
      return new Follower(token, () => [near, far][index % 2]!);
    });
    t.teardown(() => {
      for (const follower of followers) follower.stop();
    });
    await eventually(() => followers.every(({ list }) => list.version >= 0), 10_000);
    let version = 0;
    for (; index < 12; index += 1) {
      version = await kill(near, `moving-${index}`);
      for (const follower of followers) follower.move();
      await eventually(
        () => followers.filter(({ list }) => list.version === version).length > 4,
        10_000,
      );
    }
    await eventually(() => followers.every(({ list }) => list.version === version), 10_000);
    t.same(
      followers.flatMap(({ list }) => list.faults),
      [],
    );
    proxy.heal();
  });

  t.test('cut off from the database, it closes its streams with 1013 within seconds', async (t) => {
    // The way to the database was healed a moment ago: until it is used again it answers 503.
    let opened: StreamClient | undefined;
    await eventually(async () => {
      opened = await StreamClient.open(far.url, { token }).catch(() => undefined);
      return opened !== undefined;
    }, 10_000);
    const client = opened!;
    const other = await StreamClient.open(near.url, { token });
    t.teardown(() => other.destroy());
    await eventually(() => client.frames.length > 0, 5_000);
    proxy.refuse();
    const tookMs = await eventually(() => client.closed !== undefined, 20_000);
    t.equal(client.closed?.code, 1013);
    t.ok(tookMs > 8_000 && tookMs < 13_000, `after ${tookMs} ms`);
    t.equal(other.closed, undefined);
    await t.rejects(StreamClient.open(far.url, { token }), /503/);
    proxy.heal();
    const again = await eventually(async () => {
      const opened = await StreamClient.open(far.url, { token }).catch(() => undefined);
      opened?.destroy();
      return opened !== undefined;
    }, 10_000);
    t.ok(again < 10_000, 'and takes them again');
  });
});
