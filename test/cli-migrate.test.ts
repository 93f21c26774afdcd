/** `halo-server migrate` on a real database: what it says, and how it ends. */
import { mkdtempSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import t from 'tap';
import { runHaloServer } from '../src/cli/server-program.js';
import { startStorageThread } from '../src/storage/file/storage-thread.js';
import { startCluster } from './fixtures/postgres-database.js';

const cluster = await startCluster();
t.teardown(() => cluster.stop());

interface Ran {
  readonly exitCode: number;
  readonly out: string;
  readonly err: string;
}

async function run(...args: string[]): Promise<Ran> {
  let out = '';
  let err = '';
  const exitCode = await runHaloServer(['migrate', ...args], {
    environment: {},
    out: (text) => {
      out += text;
    },
    err: (text) => {
      err += text;
    },
  });
  return { exitCode, out, err };
}

function urlFile(url: string): string {
  const path = join(mkdtempSync(join(tmpdir(), 'halo-url-')), 'url');
  writeFileSync(path, `${url}\n`, { mode: 0o600 });
  return path;
}

t.test('an empty database is planned, refused, migrated and then accepted', async (t) => {
  const database = await cluster.emptyDatabase();
  const file = urlFile(database.ownerUrl);
  const planned = await run('--database-url-file', file, '--plan');
  t.match(planned, { exitCode: 0, err: '' });
  t.match(planned.out, /schema version 0\. To apply:\n {2}0001 init\n/);

  const refused = await run('--database-url-file', file, '--check');
  t.match(refused, { exitCode: 3, out: '' });
  t.match(refused.err, /run halo-server migrate.*\(schema_behind\)/);

  const serving = urlFile(database.url);
  t.match(await run('--database-url-file', serving), {
    exitCode: 1,
    err: /answered 42501: the role in the URL may not do this\. \(store_unavailable\)\n/,
  });
  const elsewhere = urlFile(database.url.replace(/[^/]+$/, 'no_such_database'));
  t.match(await run('--database-url-file', elsewhere), {
    exitCode: 1,
    err: /answered 3D000: the database in the URL does not exist\./,
  });

  t.match(await run('--database-url-file', file), {
    exitCode: 0,
    out: /^Migrated from schema version 0 to \d+:\n {2}0001 init\n/,
  });
  t.match(await run('--database-url-file', file), { exitCode: 0, out: /^Nothing to do: / });
  t.match(await run('--database-url-file', file, '--plan'), { exitCode: 0, out: /^Nothing to do/ });
  t.match(await run('--database-url-file', serving, '--check'), {
    exitCode: 0,
    out: /can serve it\.\nWarning: fsync is off/,
  });
});

t.test('a newer database is refused unless it still accepts this version', async (t) => {
  const database = await cluster.database();
  const file = urlFile(database.ownerUrl);
  const add = (minBinary: number): string =>
    `INSERT INTO halo_schema_migrations (version, min_binary, name)
     VALUES (999, ${minBinary}, 'x')`;
  await database.sql(add(1));
  t.match(await run('--database-url-file', file, '--check'), { exitCode: 0 });
  t.match(await run('--database-url-file', file, '--plan'), { out: /newer than this version/ });
  await database.sql('DELETE FROM halo_schema_migrations WHERE version = 999');
  await database.sql(add(999));
  for (const action of ['--check', '--json']) {
    t.equal((await run('--database-url-file', file, action)).exitCode, 3, action);
  }
});

t.test('finish names the replica that is too old, and otherwise raises the format', async (t) => {
  const database = await cluster.database();
  const file = urlFile(database.ownerUrl);
  await database.sql(
    'INSERT INTO halo_replicas (replica, reads_format, expires_at) ' +
      "VALUES ('old-one', 0, now() + interval '1 hour')",
  );
  t.match(await run('--database-url-file', file, '--finish'), {
    exitCode: 3,
    err: /old-one.*\(replica_too_old\)/,
  });
  await database.sql('DELETE FROM halo_replicas');
  t.match(await run('--database-url-file', file, '--finish'), { exitCode: 0, out: /format \d/ });
});

t.test('with --json a result and a refusal are both one JSON object', async (t) => {
  const database = await cluster.emptyDatabase();
  const file = urlFile(database.ownerUrl);
  const refused = await run('--database-url-file', file, '--check', '--json');
  t.equal(refused.exitCode, 3);
  t.match(JSON.parse(refused.out), { ok: false, code: 'schema_behind', message: /migrate/ });
  const done = await run('--database-url-file', file, '--json');
  t.match(JSON.parse(done.out), { ok: true, from: 0, applied: [{ version: 1, name: 'init' }] });
});

t.test('nothing of a URL is ever said', async (t) => {
  const urls: ReadonlyArray<readonly [string, number]> = [
    ['postgres://halo:hunter2@db.example/halo', 3],
    ['postgres://halo:hunter2@127.0.0.1:1/halo', 1],
    ['mysql://halo:hunter2@127.0.0.1/halo', 1],
    ['two urls postgres://halo:hunter2@127.0.0.1/halo', 1],
    ['', 1],
  ];
  for (const [url, exitCode] of urls) {
    const ran = await run('--database-url-file', urlFile(url));
    t.equal(ran.exitCode, exitCode, url);
    t.not(ran.err, '');
    t.notMatch(ran.out + ran.err, /hunter2|db\.example/);
  }
  t.match(await run('--database-url-file', join(t.testdir({}), 'none')), {
    exitCode: 1,
    err: /Cannot read the database URL.*ENOENT/,
  });
});

t.test('a wrong command line of migrate ends with 2', async (t) => {
  const secret = 'postgres://halo:hunter2@127.0.0.1/halo';
  const wrong = [
    [],
    ['--database-url-file', 'x', '--plan', '--check'],
    ['--database-url-file', secret],
    [`--database-url=${secret}`],
    ['--database-url', secret],
    ['--database-url-file', 'x', secret],
    ['--bogus'],
  ];
  for (const args of wrong) {
    const ran = await run(...args);
    t.equal(ran.exitCode, 2, args.join(' '));
    t.equal(ran.out, '');
    t.not(ran.err, '');
    t.notMatch(ran.err, /hunter2/);
  }
});

t.test('a store on files is finished too, once its server has stopped', async (t) => {
  const dataDir = join(t.testdir(), 'data');
  const made = await startStorageThread({ dataDir });
  const held = await run('--finish', '--data-dir', dataDir);
  t.equal(held.exitCode, 3, 'a running server holds the directory');
  await made.close();
  const finished = await run('--finish', '--data-dir', dataDir);
  t.equal(finished.exitCode, 0, finished.err);
  t.match(finished.out, /format \d+ from now on/);
  t.equal((await run('--data-dir', dataDir)).exitCode, 2, 'files need no migration');
  const both = await run('--finish', '--data-dir', dataDir, '--database-url-file', 'x');
  t.equal(both.exitCode, 2);
});
