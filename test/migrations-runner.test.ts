/** Migrating a database: each migration once, one transaction, and who may run on the result. */
import { execFile } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import t from 'tap';
import { systemClock } from '../src/runtime/clock.js';
import { FORMAT_NEWEST } from '../src/storage/envelope.js';
import {
  check,
  finish,
  type MigrationResult,
  migrate,
  plan,
} from '../src/storage/postgres/migrate.js';
import { type Migration, readMigrations } from '../src/storage/postgres/migrations.js';
import { PostgresProbe } from '../src/storage/postgres/probe.js';
import { startCluster } from './fixtures/postgres-database.js';

const cluster = await startCluster();
t.teardown(() => cluster.stop());
const newest = readMigrations();

/** This binary's migrations and one of a later binary. */
function withNext(sql: string, minBinary = 1): Migration[] {
  const version = newest.length + 1;
  return [...newest, { version, name: 'next', minBinary, sql }];
}

t.test('an empty database is migrated once, and then there is nothing to do', async (t) => {
  const database = await cluster.emptyDatabase();
  const url = database.ownerUrl;
  const target = newest.length;
  const all = newest.map(({ version, name }) => ({ version, name }));
  // What test databases are set to: they are thrown away.
  const hazards = ['fsync', 'full_page_writes'];
  t.same(await plan({ url }), { version: 0, target, pending: all, hazards });
  await t.rejects(check({ url }), {
    code: 'schema_behind',
    message: /version 0 .* needs \d+: run halo-server migrate/,
  });
  t.same(await migrate({ url }), { from: 0, to: target, applied: all });
  t.same(await migrate({ url }), { from: target, to: target, applied: [] });
  const done = { version: target, target, pending: [], hazards };
  t.same(await plan({ url }), done);
  t.same(await check({ url }), done);
  t.same(await check({ url: database.url }), done, 'the serving role may ask, too');
  const [store] = await database.sql('SELECT epoch, write_format FROM halo_store');
  t.match(
    store,
    { epoch: /^[0-9a-f]{16}$/, write_format: FORMAT_NEWEST },
    'nobody older can be on a database that was empty',
  );
  t.match(await database.sql('SELECT seq FROM halo_audit_head'), [{ seq: '-1' }]);
});

t.test('two databases have two epochs', async (t) => {
  const databases = await Promise.all([cluster.emptyDatabase(), cluster.emptyDatabase()]);
  const epochs = databases.map(async (database) => {
    await migrate({ url: database.ownerUrl });
    return (await database.sql('SELECT epoch FROM halo_store'))[0]?.epoch;
  });
  const [one, two] = await Promise.all(epochs);
  t.not(one, two);
});

t.test('of processes that start together on an empty database one migrates', async (t) => {
  const { ownerUrl, sql } = await cluster.emptyDatabase();
  const program = fileURLToPath(new URL('./fixtures/migrator.js', import.meta.url));
  const run = promisify(execFile);
  const ended = await Promise.all(
    Array.from({ length: 4 }, () => run(process.execPath, [program, ownerUrl])),
  );
  const applied = ended.map(({ stdout }) => (JSON.parse(stdout) as MigrationResult).applied.length);
  t.same(applied.sort(), [0, 0, 0, newest.length]);
  t.same(await sql('SELECT count(*)::int AS n FROM halo_schema_migrations'), [
    { n: newest.length },
  ]);
});

t.test('of twelve connections that migrate at once one does it', async (t) => {
  const { ownerUrl: url } = await cluster.emptyDatabase();
  const results = await Promise.all(Array.from({ length: 12 }, () => migrate({ url })));
  t.equal(results.filter(({ applied }) => applied.length > 0).length, 1);
});

t.test('a migration that fails leaves the database as it was', async (t) => {
  const { ownerUrl: url, sql } = await cluster.emptyDatabase();
  const migrations = withNext('CREATE TABLE halo_next (a integer); SELECT 1 / 0;');
  await t.rejects(migrate({ url, migrations }), {
    code: 'migration_invalid',
    message: /\(next\) failed with 22012/,
  });
  t.same(await sql("SELECT relname FROM pg_class WHERE relname LIKE 'halo%'"), []);
  t.match(await migrate({ url }), { from: 0, to: newest.length });
});

t.test('a newer database is accepted while each newer migration accepts the binary', async (t) => {
  const { ownerUrl: url } = await cluster.database();
  const additive = withNext('CREATE TABLE halo_next (a integer);');
  t.match(await migrate({ url, migrations: additive }), {
    from: newest.length,
    to: newest.length + 1,
    applied: [{ name: 'next' }],
  });
  t.match(await check({ url }), { version: newest.length + 1, target: newest.length });
  t.match(await migrate({ url }), { applied: [] }, 'a rolled back binary has nothing to migrate');
  t.match(await plan({ url }), { pending: [] });
});

t.test('a newer database that no longer accepts the binary is refused', async (t) => {
  const { ownerUrl: url } = await cluster.database();
  const version = newest.length + 1;
  await migrate({ url, migrations: withNext('DROP TABLE halo_counters;', version) });
  const refusal = { code: 'schema_ahead', message: /use a newer binary/ };
  await t.rejects(check({ url }), refusal);
  await t.rejects(migrate({ url }), refusal);
  t.match(
    await check({ url, migrations: withNext('', version) }),
    { version },
    'the newer one runs',
  );
});

t.test('an existing database keeps the format that older binaries read', async (t) => {
  const { ownerUrl: url, sql } = await cluster.database();
  await sql('UPDATE halo_store SET write_format = 1');
  await migrate({ url, migrations: withNext('CREATE TABLE halo_next (a integer);') });
  t.match(await sql('SELECT write_format FROM halo_store'), [{ write_format: 1 }]);
});

t.test('finish raises the format once no live replica needs the old one', async (t) => {
  const { ownerUrl: url, url: serving, sql } = await cluster.database();
  await sql('UPDATE halo_store SET write_format = 1');
  await new PostgresProbe({ url: serving, replica: 'new-1', clock: systemClock }).ping();
  await sql(`INSERT INTO halo_replicas VALUES
    ('old-1', 1, clock_timestamp() + interval '1 minute'),
    ('old-dead', 1, clock_timestamp() - interval '1 second')`);
  await t.rejects(finish({ url }), { code: 'replica_too_old', message: /Replica old-1 / });
  t.match(await sql('SELECT write_format FROM halo_store'), [{ write_format: 1 }]);
  await sql("DELETE FROM halo_replicas WHERE replica = 'old-1'");
  t.same(await finish({ url }), { from: 1, to: FORMAT_NEWEST });
  t.match(await sql('SELECT write_format FROM halo_store'), [{ write_format: FORMAT_NEWEST }]);
  t.same(await finish({ url }), { from: FORMAT_NEWEST, to: FORMAT_NEWEST });
  await sql(`UPDATE halo_store SET write_format = ${FORMAT_NEWEST + 1}`);
  await t.rejects(finish({ url }), { code: 'schema_ahead' });
});

t.test('a database that is not in UTF8 is refused before anything is made', async (t) => {
  await cluster.server.sql("CREATE DATABASE latin ENCODING 'LATIN1' TEMPLATE template0");
  const url = cluster.server.superuserUrl('latin');
  await t.rejects(migrate({ url }), { code: 'database_unsuitable', message: /LATIN1/ });
  t.same(
    await cluster.server.sql("SELECT 1 FROM pg_class WHERE relname LIKE 'halo%'", 'latin'),
    [],
  );
});

t.test('a database that answers before a commit is durable is refused', async (t) => {
  const { name, url, sql } = await cluster.database();
  await sql(`ALTER DATABASE ${name} SET synchronous_commit = off`);
  const refusal = { code: 'database_unsuitable', message: /synchronous_commit/ };
  await t.rejects(check({ url }), refusal);
  await sql(`ALTER DATABASE ${name} SET synchronous_commit = local`);
  await check({ url });
});

t.test('a role without the right to make tables cannot migrate, and is told why', async (t) => {
  const { url } = await cluster.emptyDatabase();
  await t.rejects(migrate({ url }), { code: 'store_unavailable', message: /42501/ });
});

t.test('a server that is not there is told apart, without its address', async (t) => {
  const error = await plan({ url: 'postgres://u:pass-w0rd@127.0.0.1:1/x' }).catch((e: Error) => e);
  t.match(error, { code: 'store_unavailable', message: /ECONNREFUSED/ });
  t.notMatch((error as Error).stack, /pass-w0rd|127\.0\.0\.1/);
});
