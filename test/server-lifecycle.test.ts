import { existsSync, mkdtempSync, statSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import t from 'tap';
import { fromAnotherAddress, TRUST_LOOPBACK } from './fixtures/another-address.js';
import { startHaloCluster } from './fixtures/halo-cluster.js';
import { ADMIN_TOKEN, eventually, HaloServer, newInstallation } from './fixtures/halo-server.js';

// Real servers, and faults that take their time.
t.setTimeout(240_000);

const onFiles = (): string[] => ['--data-dir', mkdtempSync(join(tmpdir(), 'halo-data-'))];

t.test('a server on files keeps what it answered through kill -9', async (t) => {
  const installation = newInstallation();
  const storage = onFiles();
  const first = await HaloServer.start(installation, storage);
  const device = await first.enrol('Ann');
  const other = await first.enrol();
  await first.admin('POST', `/api/v1/devices/${other.id}/revoke`, { reason: 'lost' });
  t.equal(await first.stop('SIGKILL'), 'SIGKILL');
  const second = await HaloServer.start(installation, storage);
  t.teardown(() => second.stop());
  t.equal(await second.authenticate(device.credential), 'in');
  t.equal(await second.authenticate(other.credential), 'device_revoked');
});

t.test(
  'a data directory has one server at a time; the second says so and exits with 3',
  async (t) => {
    const installation = newInstallation();
    const storage = onFiles();
    const first = await HaloServer.start(installation, storage);
    const second = HaloServer.spawn(installation, storage);
    t.equal(await second.ended(), 3);
    t.match(second.output, /Another process .* Stop it first.*--data-dir/);
    t.equal(await first.stop(), 0);
    const third = await HaloServer.start(installation, storage);
    t.equal(await third.stop(), 0);
  },
);

t.test('a port that is taken is said, with exit code 1', async (t) => {
  const taken = createServer().listen(0, '127.0.0.1');
  await new Promise((resolve) => taken.once('listening', resolve));
  t.teardown(() => taken.close());
  const { port } = taken.address() as { port: number };
  for (const option of ['--listen', '--metrics-listen']) {
    const address = `127.0.0.1:${port}`;
    const server = HaloServer.spawn(newInstallation(), onFiles(), [option, address]);
    t.equal(await server.ended(), 1, option);
    t.match(server.output, new RegExp(` on ${address}\\. Is another .*${option}`), 'what to do');
    t.match(server.output, '"code":"port_taken"');
  }
});

t.test(
  'a database that is behind is refused with what to do; migrated at start if asked',
  async (t) => {
    const halo = await startHaloCluster(0);
    t.teardown(() => halo.stop());
    const empty = await halo.cluster.emptyDatabase();
    const behind = HaloServer.spawn(halo.installation, halo.storage(empty.url));
    t.equal(await behind.ended(), 3);
    t.match(behind.output, /halo-server migrate/);
    const both = await Promise.all(
      [1, 2].map(() =>
        HaloServer.start(halo.installation, halo.storage(empty.ownerUrl), ['--auto-migrate']),
      ),
    );
    t.teardown(() => Promise.all(both.map((server) => server.stop('SIGKILL'))));
    const device = await both[0]!.enrol();
    t.equal(await both[1]!.authenticate(device.credential), 'in');
  },
);

t.test('SIGTERM: unready first, what is in flight is answered, exit 0, nothing left', async (t) => {
  const installation = newInstallation();
  const server = await HaloServer.start(installation, onFiles());
  const { credential } = await server.enrol();
  const readyFile = join(installation.directory, 'ready-1');
  const answers: Promise<string>[] = [];
  let asking = true;
  const client = (async () => {
    while (asking) {
      const answer = server.authenticate(credential);
      answers.push(answer);
      await answer.catch(() => undefined);
    }
  })();
  await eventually(() => answers.length > 20, 5_000);
  const code = await server.stop();
  asking = false;
  await client;
  const results = await Promise.allSettled(answers);
  const firstFailed = results.findIndex((result) => result.status === 'rejected');
  const answered = firstFailed < 0 ? results : results.slice(0, firstFailed);
  t.equal(code, 0);
  t.ok(answered.length > 20);
  t.ok(answered.every((result) => result.status === 'fulfilled' && result.value === 'in'));
  const after = firstFailed < 0 ? [] : results.slice(firstFailed);
  t.ok(
    after.every((result) => result.status === 'rejected'),
    'closed once, and for good',
  );
  t.notOk(existsSync(readyFile), 'the ready file is gone');
});

t.test('a terminal that closes ends it like SIGTERM', async (t) => {
  const installation = newInstallation();
  const server = await HaloServer.start(installation, onFiles());
  const { credential } = await server.enrol();
  t.equal(await server.authenticate(credential), 'in');
  t.equal(await server.stop('SIGHUP'), 0);
  t.match(server.output, '"signal":"SIGHUP"');
  t.notOk(existsSync(join(installation.directory, 'ready-1')), 'the ready file is gone');
});

t.test('secrets are for their owner only, and in no log', async (t) => {
  const installation = newInstallation();
  const directory = mkdtempSync(join(tmpdir(), 'halo-data-'));
  const server = await HaloServer.start(
    installation,
    ['--data-dir', directory],
    ['--log-level', 'trace'],
  );
  const device = await server.enrol();
  const minted = await server.admin('POST', '/api/v1/enrollment-tokens', { user: 'bob' });
  await server.authenticate(device.credential);
  await server.call('GET', `/api/v1/devices?cursor=${device.credential}`, { token: ADMIN_TOKEN });
  await server.call('POST', '/api/v1/enroll', { body: { token: minted.json.token, name: 1 } });
  await server.call('GET', '/api/v1/devices', { token: minted.json.token });
  t.equal(await server.stop(), 0);
  for (const secret of [ADMIN_TOKEN, device.credential, minted.json.token]) {
    t.notOk(server.output.includes(secret), 'not in the log');
  }
  const { readdirSync, readFileSync } = await import('node:fs');
  for (const name of readdirSync(directory)) {
    const path = join(directory, name);
    const stat = statSync(path);
    t.equal(stat.mode & 0o077, 0, `${name} is for its owner only`);
    if (!stat.isFile()) continue;
    const text = readFileSync(path, 'utf8');
    for (const secret of [device.credential, minted.json.token]) {
      t.notOk(text.includes(secret), `not in ${name}`);
    }
  }
});

t.test('admin tokens are read again without a restart', async (t) => {
  const installation = newInstallation();
  const server = await HaloServer.start(installation, onFiles(), TRUST_LOOPBACK);
  t.teardown(() => server.stop());
  const next = 'another-token-for-tests-of-40-characters';
  const status = async (token: string): Promise<number> =>
    (await server.call('GET', '/v1/status', { token, headers: fromAnotherAddress() })).status;
  t.equal(await status(next), 401);
  writeFileSync(installation.tokenFile, `next:${next}\n`);
  await eventually(async () => (await status(next)) === 200, 5_000, 'the new token');
  t.equal(await status(ADMIN_TOKEN), 401, 'the old one is gone');
});

t.test('Postgres without a signing key file is wrong usage', async (t) => {
  const { spawnSync } = await import('node:child_process');
  const program = new URL('../src/cli/halo-server.js', import.meta.url).pathname;
  const file = join(mkdtempSync(join(tmpdir(), 'halo-url-')), 'url');
  writeFileSync(file, 'postgres://127.0.0.1/x');
  const run = spawnSync(process.execPath, [program, 'serve', '--database-url-file', file], {
    encoding: 'utf8',
  });
  t.equal(run.status, 2);
  t.match(run.stderr, /signing-key-file/);
});

t.test('a server that is told to stop while it starts ends by itself, with 0', async (t) => {
  const halo = await startHaloCluster(0);
  t.teardown(() => halo.stop());
  const empty = await halo.cluster.emptyDatabase();
  // A migrator that waits for another's lock is a start that takes long.
  const { default: pg } = await import('pg');
  const other = new pg.Client({ connectionString: empty.ownerUrl });
  await other.connect();
  t.teardown(() => other.end());
  await other.query('BEGIN; SELECT pg_advisory_xact_lock(7521983763894560626)');
  const extra = ['--auto-migrate', '--shutdown-grace', '1s'];
  const server = HaloServer.spawn(halo.installation, halo.storage(empty.ownerUrl), extra);
  t.teardown(() => server.stop('SIGKILL'));
  await eventually(async () => {
    const waiting = await empty.sql(
      "SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted",
    );
    return waiting.length > 0;
  }, 20_000);
  server.signal('SIGTERM');
  t.equal(await server.ended(), 0);
});
