import { spawnSync } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import t from 'tap';
import { startHaloCluster } from './fixtures/halo-cluster.js';
import { eventually, HaloServer } from './fixtures/halo-server.js';
import { olderBuild } from './fixtures/older-build.js';

// Real servers, and faults that take their time.
t.setTimeout(240_000);

const PROGRAM = new URL('../src/cli/halo-server.js', import.meta.url).pathname;

t.test('an older and a newer binary run side by side until the upgrade is finished', async (t) => {
  const halo = await startHaloCluster(0);
  t.teardown(() => halo.stop());
  const { database, installation } = halo;
  const ownerFile = join(installation.directory, 'owner.url');
  writeFileSync(ownerFile, database.ownerUrl);
  const finish = () =>
    spawnSync(
      process.execPath,
      [PROGRAM, 'migrate', '--finish', '--database-url-file', ownerFile],
      {
        encoding: 'utf8',
      },
    );
  const formats = async (): Promise<string[]> => {
    const rows = await database.sql('SELECT DISTINCT left(body, 5) AS head FROM halo_journal');
    return rows.map((row) => String(row['head'])).sort();
  };
  // As a database is that the older binary made and used.
  await database.sql('UPDATE halo_store SET write_format = 1');
  const older = await HaloServer.start(installation, halo.storage(), [], olderBuild(1));
  t.teardown(() => older.stop('SIGKILL'));
  const newer = await halo.add();
  const [first, second] = [await older.enrol(), await newer.enrol()];
  for (const server of [older, newer]) {
    t.equal(await server.authenticate(first.credential), 'in');
    t.equal(await server.authenticate(second.credential), 'in');
  }
  t.same(await formats(), ['{"v":'], 'the newer binary writes what the older can read');

  const refused = finish();
  t.equal(refused.status, 3);
  t.match(refused.stderr, /rep_/, 'the replica that is too old is named');
  t.equal(await older.stop(), 0);
  const finished = finish();
  t.equal(finished.status, 0, finished.stderr);

  const third = await newer.enrol();
  t.same(await formats(), ['[2,"d', '{"v":']);
  const fresh = await halo.add();
  for (const server of [newer, fresh]) {
    for (const { credential } of [first, second, third]) {
      t.equal(await server.authenticate(credential), 'in', 'both formats are read');
    }
  }
  const late = HaloServer.spawn(installation, halo.storage(), [], olderBuild(1));
  t.teardown(() => late.stop('SIGKILL'));
  await eventually(() => /incompatible|format/.test(late.output), 20_000, 'the complaint');
  t.notOk(late.output.includes('"Ready."'), 'an older binary never serves what it cannot read');
});

t.test('a record of the future makes a running replica unready rather than guess', async (t) => {
  const halo = await startHaloCluster(1);
  t.teardown(() => halo.stop());
  const [server] = halo.servers as [HaloServer];
  const { credential } = await server.enrol();
  t.equal(await server.authenticate(credential), 'in');
  await halo.database.sql(
    `INSERT INTO halo_journal (stream, key, batch, body)
     SELECT stream, 'device/future', batch, '[3,"device"]' FROM halo_journal LIMIT 1`,
  );
  t.equal(await server.authenticate(credential), 'store_unavailable');
  await eventually(async () => (await server.call('GET', '/readyz')).status === 503, 3_000);
  await halo.database.sql(`DELETE FROM halo_journal WHERE key = 'device/future'`);
  await eventually(async () => (await server.authenticate(credential)) === 'in', 15_000);
});

t.test('a binary older than the schema starts only where newer migrations accept it', async (t) => {
  const halo = await startHaloCluster(0);
  t.teardown(() => halo.stop());
  const { database, installation } = halo;
  await database.sql(`INSERT INTO halo_schema_migrations (version, min_binary, name)
    SELECT max(version) + 1, 1, 'additive' FROM halo_schema_migrations`);
  const accepted = await halo.add();
  t.equal(await accepted.authenticate((await accepted.enrol()).credential), 'in');
  await database.sql(`INSERT INTO halo_schema_migrations (version, min_binary, name)
    SELECT max(version) + 1, max(version) + 1, 'breaking' FROM halo_schema_migrations`);
  const refused = HaloServer.spawn(installation, halo.storage());
  t.equal(await refused.ended(), 3);
  t.match(refused.output, /breaking/);
});
