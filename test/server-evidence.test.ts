/**
 * Administrative acts on real servers, from HTTP to the chain: on files, and on two replicas with
 * one PostgreSQL. When the servers have stopped, all of it is chained and verifies.
 */
import { readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import t, { type Test } from 'tap';
import { digestOf, mintSecret } from '../src/actors/secrets.js';
import { runHaloVerify } from '../src/cli/halo-verify/program.js';
import { systemRandom } from '../src/runtime/random.js';
import { startHaloCluster } from './fixtures/halo-cluster.js';
import { ADMIN_TOKEN, HaloServer, newInstallation } from './fixtures/halo-server.js';
import type { RecordedEvent } from './fixtures/recording-replica.js';

// Real servers, which take their time to start.
t.setTimeout(120_000);

interface Site {
  readonly servers: readonly HaloServer[];
  /** Arguments of `halo-verify`. */
  verifyArgs(): string[];
  /** Everything that is stored, as text, and the chain of it. */
  stored(): Promise<{ readonly text: string; readonly records: readonly RecordedEvent[] }>;
}

async function onFiles(t: Test): Promise<Site> {
  const installation = newInstallation();
  const dataDir = join(installation.directory, 'data');
  const server = await HaloServer.start(installation, ['--data-dir', dataDir]);
  t.teardown(() => server.stop('SIGKILL'));
  return {
    servers: [server],
    verifyArgs: () => ['--data-dir', dataDir],
    stored: async () => {
      const names = readdirSync(dataDir, { recursive: true, withFileTypes: true });
      const paths = names
        .filter((one) => one.isFile())
        .map((one) => join(one.parentPath, one.name));
      const chain = paths.filter((path) => path.startsWith(join(dataDir, 'chain'))).sort();
      const lines = chain.flatMap((path) => readFileSync(path, 'utf8').trimEnd().split('\n'));
      return {
        text: paths.map((path) => readFileSync(path, 'utf8')).join('\n'),
        records: lines.map((line) => JSON.parse(line) as RecordedEvent),
      };
    },
  };
}

async function onPostgres(t: Test): Promise<Site> {
  const { database, servers, installation, stop } = await startHaloCluster(2);
  t.teardown(stop);
  const urlFile = join(installation.directory, 'verify.url');
  writeFileSync(urlFile, database.url);
  return {
    servers,
    verifyArgs: () => ['--database-url-file', urlFile],
    stored: async () => {
      const rows = await database.sql('SELECT record FROM halo_audit ORDER BY seq');
      const tables = await database.sql(
        "SELECT tablename FROM pg_tables WHERE schemaname = 'public'",
      );
      const texts: string[] = [];
      for (const { tablename } of tables) {
        const found = await database.sql(`SELECT t::text AS row FROM ${String(tablename)} t`);
        texts.push(...found.map(({ row }) => String(row)));
      }
      return {
        text: texts.join('\n'),
        records: rows.map(({ record }) => JSON.parse(String(record)) as RecordedEvent),
      };
    },
  };
}

async function verified(args: readonly string[]): Promise<{ status: string; records: number }> {
  let out = '';
  const console = {
    environment: {},
    out: (text: string) => {
      out += text;
    },
    err: () => undefined,
  };
  await runHaloVerify([...args, '--json'], console, { isTerminal: false });
  return JSON.parse(out) as { status: string; records: number };
}

/** All acts there are over HTTP; what they handed out, none of which may be stored. */
async function act(a: HaloServer, b: HaloServer, reason: string): Promise<string[]> {
  const ok = async (server: HaloServer, method: string, path: string, body?: unknown) => {
    const answer = await server.admin(method, path, body);
    if (answer.status >= 300) throw new Error(`${method} ${path}: ${answer.text}`);
    return answer.json;
  };
  const { id, credential } = await a.enrol('ann');
  const rotated = await ok(b, 'POST', `/api/v1/devices/${id}/rotate`);
  await ok(a, 'POST', `/api/v1/devices/${id}/revoke`, { reason });
  const minted = await ok(b, 'POST', '/api/v1/enrollment-tokens', { user: 'bob' });
  await ok(a, 'POST', '/api/v1/enrollment-tokens/void', { user: 'bob' });
  await ok(a, 'PUT', '/api/v1/kill-list/agent/writer', { reason });
  await ok(b, 'DELETE', '/api/v1/kill-list/agent/writer');
  const gateway = await ok(a, 'POST', '/api/v1/gateways', { name: 'edge' });
  const again = await ok(b, 'POST', `/api/v1/gateways/${gateway.id}/rotate`);
  await ok(a, 'DELETE', `/api/v1/gateways/${gateway.id}`);
  return [credential, rotated.credential, minted.token, gateway.token, again.token];
}

const KINDS = [
  'enrollment-token.minted',
  'device.enrolled',
  'device.rotated',
  'device.revoked',
  'enrollment-token.minted',
  'enrollment-tokens.voided',
  'kill-list.killed',
  'kill-list.lifted',
  'gateway.created',
  'gateway.rotated',
  'gateway.removed',
];

for (const [name, open] of [
  ['files', onFiles],
  ['PostgreSQL with two replicas', onPostgres],
] as const) {
  t.test(`what admins do is in the chain when the servers have stopped: ${name}`, async (t) => {
    const site = await open(t);
    const [a, b = a] = site.servers as [HaloServer, HaloServer | undefined];
    const secret = mintSecret('admin', systemRandom);
    const handedOut = await act(a, b, `they posted ${secret}`);
    for (const server of site.servers) t.equal(await server.stop('SIGTERM'), 0);
    const { text, records } = await site.stored();
    const count = (kind: string): number => records.filter((one) => one.kind === kind).length;
    t.equal(count('server.started'), site.servers.length);
    t.equal(count('server.stopped'), site.servers.length);
    const acts = records.filter(({ kind }) => !/^(chain|server)\./.test(kind));
    t.strictSame(acts.map(({ kind }) => kind).sort(), [...KINDS].sort());
    const admins = acts.filter(({ kind }) => kind !== 'device.enrolled');
    t.ok(admins.every(({ by }) => by.type === 'admin' && by.id === 'root'));
    const minted = acts.filter(({ kind }) => kind === 'enrollment-token.minted');
    const enrolled = acts.find(({ kind }) => kind === 'device.enrolled');
    t.ok(
      minted.some(({ ref }) => ref === enrolled?.by.id),
      'it can be told who let the device in',
    );
    const { status, records: verifiedRecords } = await verified(site.verifyArgs());
    t.strictSame([status, verifiedRecords], ['verified', records.length]);
    const everything = text + site.servers.map(({ output }) => output).join('\n');
    for (const one of [secret, ADMIN_TOKEN, ...handedOut]) t.notOk(everything.includes(one));
    const chain = JSON.stringify(records);
    for (const one of handedOut) t.notOk(chain.includes(digestOf(one)), 'nor a digest of it');
  });
}
