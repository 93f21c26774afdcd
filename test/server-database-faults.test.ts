import t, { type Test } from 'tap';
import { type HaloCluster, startHaloCluster } from './fixtures/halo-cluster.js';
import { eventually, type HaloAnswer, type HaloServer } from './fixtures/halo-server.js';
import { TcpProxy } from './fixtures/tcp-proxy.js';

// Real servers, and faults that take their time.
t.setTimeout(240_000);

/** The bound: readiness says so within three seconds. */
const SAID_WITHIN_MS = 3_000;
const BACK_WITHIN_MS = 15_000;

const readyz = async (server: HaloServer): Promise<number> =>
  (await server.call('GET', '/readyz')).status;

async function start(t: Test, ...args: Parameters<typeof startHaloCluster>): Promise<HaloCluster> {
  const halo = await startHaloCluster(...args);
  t.teardown(() => halo.stop());
  return halo;
}

t.test('Postgres killed and started again: 503 meanwhile, then service by itself', async (t) => {
  const { cluster, servers } = await start(t, 1, { fsync: true });
  const [server] = servers as [HaloServer];
  const { credential } = await server.enrol();
  t.equal(await server.authenticate(credential), 'in');
  await cluster.server.kill();
  const seen: HaloAnswer[] = [];
  const ask = async (): Promise<HaloAnswer> => {
    const answer = await server.call('GET', '/api/v1/auth/device', { token: credential });
    seen.push(answer);
    return answer;
  };
  for (let count = 0; count < 20; count += 1) await ask();
  for (const { status, headers, json } of seen) {
    t.match({ status, code: json.code }, { status: 503, code: 'store_unavailable' });
    t.match(headers.get('retry-after'), /^\d+$/);
  }
  const tookMs = await eventually(async () => (await readyz(server)) === 503, SAID_WITHIN_MS);
  t.comment(`unready after ${tookMs} ms`);
  t.equal((await server.call('GET', '/healthz')).status, 200, 'it lives all the same');
  await cluster.server.start();
  const backMs = await eventually(async () => (await ask()).status === 200, BACK_WITHIN_MS);
  t.comment(`service again after ${backMs} ms`);
  await eventually(async () => (await readyz(server)) === 200, BACK_WITHIN_MS);
  t.same([...new Set(seen.map(({ status }) => status))].sort(), [200, 503], 'nothing else ever');
  await server.enrol();
});

t.test('a database that cannot be used makes the replica unready within 3 s', async (t) => {
  const { cluster, database, servers } = await start(t, 1, { auth: 'scram', maxConnections: 20 });
  const [server] = servers as [HaloServer];
  const postgres = cluster.server;
  const unready = async (what: string): Promise<void> => {
    const tookMs = await eventually(
      async () => (await readyz(server)) === 503,
      SAID_WITHIN_MS,
      what,
    );
    t.pass(`${what}: unready after ${tookMs} ms`);
  };
  const back = (): Promise<number> =>
    eventually(async () => (await readyz(server)) === 200, BACK_WITHIN_MS, 'readiness');

  await postgres.sql(`ALTER DATABASE ${database.name} SET default_transaction_read_only = on`);
  await unready('read-only');
  t.match((await server.call('GET', '/readyz')).text, /cannot be written/);
  await postgres.sql(`ALTER DATABASE ${database.name} RESET default_transaction_read_only`);
  await back();

  postgres.pause();
  await unready('paused');
  postgres.resume();
  await back();

  await postgres.setPassword('halo_serving', 'another');
  await unready('password changed');
  t.notMatch(server.output, /of-a-test/, 'and the password is in no log');
  await postgres.setPassword('halo_serving', 'of-a-test');
  await back();

  const { default: pg } = await import('pg');
  const hogs: InstanceType<typeof pg.Client>[] = [];
  for (;;) {
    const hog = new pg.Client({ connectionString: postgres.superuserUrl() });
    hog.on('error', () => undefined);
    try {
      await hog.connect();
      hogs.push(hog);
    } catch {
      break;
    }
  }
  await unready('out of connections');
  await Promise.all(hogs.map((hog) => hog.end()));
  await back();
});

t.test(
  'a replica cut off from the database lets nobody in, whatever happens elsewhere',
  async (t) => {
    const halo = await start(t, 1);
    const [a] = halo.servers as [HaloServer];
    const proxy = await TcpProxy.start(halo.cluster.server);
    t.teardown(() => proxy.stop());
    const b = await halo.add([], proxy.urlOf(halo.database.url));
    const device = await a.enrol();
    t.equal(await b.authenticate(device.credential), 'in');
    for (const fault of ['refuse', 'goSilent'] as const) {
      proxy[fault]();
      if (fault === 'refuse') proxy.cut();
      t.equal(await b.authenticate(device.credential), 'store_unavailable', fault);
      proxy.heal();
      await eventually(
        async () => (await b.authenticate(device.credential)) === 'in',
        BACK_WITHIN_MS,
      );
    }
    proxy.refuse();
    proxy.cut();
    const revoked = await a.admin('POST', `/api/v1/devices/${device.id}/revoke`, {
      reason: 'lost',
    });
    t.equal(revoked.status, 200);
    t.equal(await b.authenticate(device.credential), 'store_unavailable');
    t.equal(await a.authenticate(device.credential), 'device_revoked');
    proxy.heal();
    const codes = new Set<string>();
    await eventually(async () => {
      const code = await b.authenticate(device.credential);
      codes.add(code);
      return code === 'device_revoked';
    }, BACK_WITHIN_MS);
    t.notOk(codes.has('in'), 'not for a moment');
  },
);
