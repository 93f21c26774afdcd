/** The probe says within two seconds that the store cannot be written, whatever is wrong. */
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import t, { type Test } from 'tap';
import { systemClock } from '../src/runtime/clock.js';
import { FORMAT_NEWEST } from '../src/storage/envelope.js';
import { PING_MAX_MS, PostgresProbe } from '../src/storage/postgres/probe.js';
import { startCluster, type TestCluster, type TestDatabase } from './fixtures/postgres-database.js';
import { codeOf, timed, until } from './fixtures/postgres-stores.js';
import { TcpProxy } from './fixtures/tcp-proxy.js';

// Each test has its own server, and most of the time it waits.
t.jobs = 4;

/** What a busy machine adds. */
const LEEWAY_MS = 700;

interface Opened {
  readonly cluster: TestCluster;
  readonly database: TestDatabase;
  readonly probe: PostgresProbe;
}

async function open(t: Test, options = {}): Promise<Opened> {
  const cluster = await startCluster(options);
  t.teardown(() => cluster.stop());
  const database = await cluster.database();
  const probe = new PostgresProbe({ url: database.url, replica: 'one', clock: systemClock });
  await probe.ping();
  return { cluster, database, probe };
}

async function fails(t: Test, probe: PostgresProbe, what: string): Promise<void> {
  const { ms, code } = await timed(() => probe.ping());
  t.equal(code, 'store_unavailable', what);
  t.ok(ms < PING_MAX_MS + LEEWAY_MS, `within its bound: ${Math.round(ms)} ms`);
}

async function recovers(probe: PostgresProbe): Promise<void> {
  await until('the probe succeeds', () => probe.ping().then(() => true));
}

t.test('each ping renews the row of the replica, on the clock of the database', async (t) => {
  const { database, probe } = await open(t);
  const row = `SELECT replica, reads_format,
    (expires_at - clock_timestamp())::text > '00:00:10' AS alive FROM halo_replicas`;
  const expected = [{ replica: 'one', reads_format: FORMAT_NEWEST, alive: true }];
  t.same(await database.sql(row), expected);
  await database.sql("UPDATE halo_replicas SET expires_at = 'epoch', reads_format = 1");
  await probe.ping();
  t.same(await database.sql(row), expected);
  await database.sql("INSERT INTO halo_replicas VALUES ('dead', 1, 'epoch')");
  await probe.remove();
  t.same(await database.sql(row), [], 'gone at shutdown, with those that died long ago');
  await probe.remove();
});

t.test('no ping leaves a connection behind', async (t) => {
  const { database, probe } = await open(t);
  for (let round = 0; round < 10; round += 1) await probe.ping();
  await until('all are closed', async () => {
    const own = `SELECT 1 FROM pg_stat_activity
      WHERE datname = '${database.name}' AND usename = 'halo_serving'`;
    return (await database.sql(own)).length === 0;
  });
});

t.test('a database that cannot be written fails it', async (t) => {
  const { cluster, database, probe } = await open(t);
  await cluster.server.setting('default_transaction_read_only', 'on');
  await fails(t, probe, 'read-only');
  await cluster.server.sql('ALTER SYSTEM RESET default_transaction_read_only');
  await cluster.server.sql('SELECT pg_reload_conf()');
  await recovers(probe);
  await database.sql('REVOKE INSERT ON halo_replicas FROM halo_serving');
  await fails(t, probe, 'without the right to');
  await database.sql('GRANT INSERT ON halo_replicas TO halo_serving');
  await recovers(probe);
  const locked = database.sql('BEGIN; LOCK TABLE halo_replicas; SELECT pg_sleep(4); COMMIT');
  await until('the table is locked', async () => {
    const modes = await database.sql("SELECT 1 FROM pg_locks WHERE mode = 'AccessExclusiveLock'");
    return modes.length > 0;
  });
  await fails(t, probe, 'behind a lock');
  await locked;
  await recovers(probe);
});

t.test('a server that hangs or is gone fails it', async (t) => {
  const { cluster, probe } = await open(t);
  cluster.server.pause();
  await fails(t, probe, 'paused');
  cluster.server.resume();
  await recovers(probe);
  await cluster.server.kill();
  await fails(t, probe, 'killed');
  await cluster.server.start();
  await recovers(probe);
});

t.test('a network that drops packets fails it', async (t) => {
  const { cluster, database } = await open(t);
  const proxy = await TcpProxy.start(cluster.server);
  t.teardown(() => proxy.stop());
  const url = proxy.urlOf(database.url);
  const probe = new PostgresProbe({ url, replica: 'two', clock: systemClock });
  await probe.ping();
  proxy.goSilent();
  await fails(t, probe, 'silent');
  proxy.heal();
  await recovers(probe);
  proxy.refuse();
  await fails(t, probe, 'refused');
});

t.test('a server without free connections fails it', async (t) => {
  const { cluster, database, probe } = await open(t, { maxConnections: 12 });
  const sleepers = Array.from({ length: 12 }, () =>
    codeOf(() => cluster.server.sql('SELECT pg_sleep(3)', database.name)),
  );
  await until('it is full', async () => (await codeOf(() => probe.ping())) !== undefined);
  await fails(t, probe, 'full');
  await Promise.all(sleepers);
  await recovers(probe);
});

t.test('a password that was changed fails it, until it is told the new one', async (t) => {
  const { cluster, database, probe } = await open(t, { auth: 'scram' });
  await cluster.server.setPassword('halo_serving', 'changed');
  await fails(t, probe, 'with the old password');
  const url = cluster.server.url('halo_serving', 'changed', database.name);
  await new PostgresProbe({ url, replica: 'one', clock: systemClock }).ping();
});

t.test('a standby fails it', async (t) => {
  const { cluster, probe } = await open(t);
  await cluster.server.halt();
  writeFileSync(join(cluster.server.dataDir, 'standby.signal'), '');
  await cluster.server.start();
  await fails(t, probe, 'in recovery');
  await cluster.server.sql('SELECT pg_promote()');
  await recovers(probe);
});
