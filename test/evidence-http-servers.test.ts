/** Auditors against real servers, on files and on PostgreSQL: what they read is what is proved. */
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import t, { type Test } from 'tap';
import { runHalo } from '../src/cli/halo/program.js';
import { runHaloVerify } from '../src/cli/halo-verify/program.js';
import { parseKeyring } from '../src/evidence/keyring.js';
import { startHaloCluster } from './fixtures/halo-cluster.js';
import { HaloServer, type Installation, newInstallation } from './fixtures/halo-server.js';
import { keepAlive } from './fixtures/keep-alive.js';
import { until } from './fixtures/postgres-stores.js';

// Real servers, which take their time to start.
t.setTimeout(120_000);
keepAlive(t);

interface Site {
  readonly installation: Installation;
  readonly servers: readonly HaloServer[];
  /** Where the chain lies, as `halo-verify` is told. */
  readonly place: readonly string[];
}

async function onFiles(t: Test): Promise<Site> {
  const installation = newInstallation();
  const dataDir = join(installation.directory, 'data');
  const server = await HaloServer.start(installation, ['--data-dir', dataDir]);
  t.teardown(() => server.stop('SIGKILL'));
  return { installation, servers: [server], place: ['--data-dir', dataDir] };
}

async function onPostgres(t: Test): Promise<Site> {
  const { database, servers, installation, stop } = await startHaloCluster(2);
  t.teardown(stop);
  const urlFile = join(installation.directory, 'verify.url');
  writeFileSync(urlFile, database.url);
  return { installation, servers, place: ['--database-url-file', urlFile] };
}

function capturing() {
  const said = { out: '', err: '' };
  const console = {
    environment: {} as Record<string, string>,
    out: (text: string) => {
      said.out += text;
    },
    err: (text: string) => {
      said.err += text;
    },
  };
  return { said, console };
}

async function halo({ installation }: Site, server: HaloServer, ...args: string[]) {
  const { said, console } = capturing();
  console.environment = { HALO_URL: server.url, HALO_TOKEN_FILE: installation.tokenFile };
  return { exitCode: await runHalo(['audit', ...args], console), ...said };
}

async function verify(args: readonly string[]) {
  const { said, console } = capturing();
  const exitCode = await runHaloVerify([...args, '--json'], console, { isTerminal: false });
  return { exitCode, ...JSON.parse(said.out || '{}'), err: said.err };
}

for (const [name, open] of [
  ['files', onFiles],
  ['PostgreSQL with two replicas', onPostgres],
] as const) {
  t.test(`an auditor reads, exports and proves the chain of a live server: ${name}`, async (t) => {
    const site = await open(t);
    const { installation, servers, place } = site;
    const [a, b = a] = servers as [HaloServer, HaloServer | undefined];
    const path = (file: string): string => join(installation.directory, file);
    let writing = true;
    const writers = servers.map(async (server) => {
      while (writing) await server.enrol('ann');
    });
    const kept = await halo(site, a, 'checkpoint', path('kept'));
    t.equal(kept.exitCode, 0, kept.err);
    const [{ publicKey } = { publicKey: new Uint8Array() }] = parseKeyring(
      readFileSync(installation.keyFile, 'utf8'),
    ).keys;
    writeFileSync(path('key'), Buffer.from(publicKey).toString('hex'));
    const pins = ['--key', path('key'), '--checkpoint', path('kept')];
    for (let round = 0; round < 5; round += 1) {
      const live = await verify([...place, ...pins]);
      t.match(live, { exitCode: 0, ok: true, pinned: true }, 'while it is being written');
      const exported = await halo(site, b, 'export', path('export'));
      t.equal(exported.exitCode, 0, exported.err);
      const offline = await verify([path('export'), ...pins]);
      t.match(offline, { exitCode: 0, ok: true, pinned: true }, 'and from a file, offline');
      t.ok(offline.records >= live.records);
    }
    writing = false;
    await Promise.all(writers);
    const { out } = await halo(site, b, 'tail', '-n', '1', '--kind', 'device.enrolled', '--json');
    const { ref, seq } = JSON.parse(out);
    for (const server of servers) {
      const found = await server.admin('GET', `/v1/evidence/by-ref/${ref}`);
      t.match(found.json, { ref, seq, pending: false, record: { kind: 'device.enrolled' } });
      t.same((await server.admin('GET', `/api/v1/evidence/by-ref/${seq}`)).json, found.json);
    }
    await until('a replica has verified all of it by itself', async () => {
      const { head, verified } = (await a.admin('GET', '/api/v1/audit?limit=1')).json;
      return head.seq > 50 && verified.upTo === head.seq;
    });
    for (const server of servers) t.equal(await server.stop(), 0);
    const last = await verify([...place, ...pins]);
    t.match(last, { exitCode: 0, ok: true, pending: name === 'files' ? undefined : 0 });
  });
}
