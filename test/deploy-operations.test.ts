/** What the operations page promises, compared with real servers on a real database. */
import { spawnSync } from 'node:child_process';
import { existsSync, mkdtempSync, readFileSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import t from 'tap';
import { MIGRATE_OPTIONS } from '../src/cli/migrate-options.js';
import { SERVE_OPTIONS } from '../src/cli/serve-options.js';
import { PROBLEMS } from '../src/http/problems.js';
import { startHaloCluster } from './fixtures/halo-cluster.js';
import { eventually, HaloServer, newInstallation } from './fixtures/halo-server.js';
import { type PostgresServer, startPostgres } from './fixtures/postgres-server.js';

const ROOT = fileURLToPath(new URL('../../', import.meta.url));
const PAGE = readFileSync(join(ROOT, 'docs/operations.md'), 'utf8');
const ALERTS = readFileSync(join(ROOT, 'deploy/prometheus/halos-alerts.yaml'), 'utf8');
const PROGRAM = join(ROOT, 'dist/src/cli/halo-server.js');

/** The fenced blocks of a language, in order. */
function blocks(language: string): string[] {
  const pattern = new RegExp(`^ *\`\`\`${language}\\n([\\s\\S]*?)^ *\`\`\``, 'gm');
  return [...PAGE.matchAll(pattern)].map(([, text = '']) => text);
}

/** The first cells of the table that follows a heading, each a list of `code` words. */
function firstCells(heading: string): string[] {
  const section = PAGE.split(`\n### ${heading}\n`)[1]?.split('\n#')[0] ?? '';
  const rows = section.split('\n').filter((line) => line.startsWith('| `'));
  return rows.flatMap((row) => {
    const cell = row.split('|')[1] ?? '';
    return [...cell.matchAll(/`([^`]+)`/g)].map(([, word = '']) => word);
  });
}

async function runSql(server: PostgresServer, block: string): Promise<void> {
  const database = block.startsWith('-- in the database halos') ? 'halos' : undefined;
  for (const statement of block.replaceAll(/^--.*$/gm, '').split(';')) {
    if (statement.trim() !== '') await server.sql(statement, database);
  }
}

t.test('the roles of the page are enough to migrate and to serve, and no more', async (t) => {
  const server = await startPostgres({ auth: 'scram' });
  t.teardown(() => server.stop());
  const sql = blocks('sql');
  for (const block of sql.slice(0, 2)) await runSql(server, block);
  const installation = newInstallation();
  const { directory } = installation;
  const file = (name: string, url: string): string => {
    writeFileSync(join(directory, name), `${url}\n`, { mode: 0o600 });
    return join(directory, name);
  };
  const owner = file('owner-url', server.url('halo_owner', 'choose-one', 'halos'));
  const serving = file('database-url', server.url('halo_serving', 'choose-another', 'halos'));
  const migrate = (...args: string[]): number | null =>
    spawnSync(process.execPath, [PROGRAM, 'migrate', ...args]).status;
  t.equal(migrate('--check', '--database-url-file', serving), 3, 'an empty database is refused');
  t.equal(migrate('--plan', '--database-url-file', owner), 0);
  t.equal(migrate('--database-url-file', owner), 0);
  t.equal(migrate('--check', '--database-url-file', serving), 0);
  const halo = await HaloServer.start(installation, ['--database-url-file', serving]);
  t.teardown(() => halo.stop('SIGKILL'));
  t.equal(await halo.authenticate((await halo.enrol()).credential), 'in');
  const rights = await server.sql(
    `SELECT table_name, string_agg(privilege_type, ',' ORDER BY privilege_type) AS rights
     FROM information_schema.role_table_grants WHERE grantee = 'halo_serving'
     GROUP BY table_name`,
    'halos',
  );
  t.ok(rights.length > 10);
  t.same([...new Set(rights.map((row) => row['rights']))], ['DELETE,INSERT,SELECT,UPDATE']);
  const [may] = await server.sql(
    `SELECT has_schema_privilege('halo_serving', 'public', 'CREATE') AS make,
       has_database_privilege('halo_serving', 'halos', 'CREATE,TEMPORARY') AS more`,
    'halos',
  );
  t.same(may, { make: false, more: false });
});

t.test('a new epoch can be given by hand after a restore that nobody saw', async (t) => {
  const halo = await startHaloCluster(1);
  t.teardown(() => halo.stop());
  const [server] = halo.servers as [HaloServer];
  const epochOf = async (one: HaloServer): Promise<string> => {
    const read = async (): Promise<string> => (await one.admin('GET', '/v1/status')).json.epoch;
    await eventually(async () => (await read()) !== '', 5_000, 'the epoch');
    return read();
  };
  const { credential } = await server.enrol();
  const before = await epochOf(server);
  await server.stop();
  const [, , renewal = ''] = blocks('sql');
  await halo.database.sql(renewal);
  const next = await halo.add();
  const after = await epochOf(next);
  t.match(after, /^[0-9a-f]{16}$/);
  t.not(after, before);
  t.equal(await next.authenticate(credential), 'in');
});

t.test('every metric of Halos is explained, and every one that is named exists', async (t) => {
  const halo = await startHaloCluster(1);
  t.teardown(() => halo.stop());
  const [server] = halo.servers as [HaloServer];
  await server.authenticate((await server.enrol()).credential);
  await server.authenticate('nobody');
  const scrape = await (await fetch(`${server.metricsUrl}/metrics`)).text();
  const types = new Map(
    [...scrape.matchAll(/^# TYPE (halo_\S+) (\S+)$/gm)].map(([, a, b]) => [a, b]),
  );
  t.same(firstCells('Metrics').sort(), [...types.keys()].sort());
  for (const [, name = ''] of `${PAGE}${ALERTS}`.matchAll(
    /\b(halo_(?:http|actor|db|log|limiter|push|kill_list)_\w+)/g,
  )) {
    const family = types.has(name) ? name : name.replace(/_(bucket|sum|count)$/, '');
    t.ok(types.has(family), name);
    if (family !== name) t.equal(types.get(family), 'histogram', name);
  }
  for (const [, code = ''] of ALERTS.matchAll(/code="(\w+)"/g)) t.ok(code in PROBLEMS, code);
  const labels = [...scrape.matchAll(/^halo_\w+\{([^}]*)\}/gm)].flatMap(([, text = '']) =>
    [...text.matchAll(/(\w+)="/g)].map(([, label]) => label),
  );
  const explained = PAGE.split('\n### Metrics\n')[1]?.split('\n#')[0] ?? '';
  for (const label of new Set(labels)) {
    if (label !== 'le') t.match(explained, `\`${label}\``, `the label ${label}`);
  }
});

t.test('every alert is explained, and every field of the status and of a log line', async (t) => {
  const alerts = [...ALERTS.matchAll(/alert: (\w+)/g)].map(([, name]) => name);
  t.same(firstCells('Alerts').sort(), alerts.sort());
  const halo = await startHaloCluster(1);
  t.teardown(() => halo.stop());
  const [server] = halo.servers as [HaloServer];
  await eventually(
    async () => (await server.admin('GET', '/v1/status')).json.actors.length > 0,
    5_000,
    'the actors',
  );
  const status = (await server.admin('GET', '/v1/status')).json;
  const fields = new Set(Object.keys(status));
  for (const actor of status.actors) for (const field of Object.keys(actor)) fields.add(field);
  const explained = new Set(firstCells('Status'));
  for (const field of fields) t.ok(explained.has(field), `the status field ${field}`);
  for (const field of explained) t.ok(fields.has(field), `${field} is in the status`);
  const known = new Set(firstCells('Logs'));
  const traceparent = `00-${'a'.repeat(32)}-${'b'.repeat(16)}-01`;
  await server.call('GET', '/api/v1/auth/device', { headers: { traceparent } });
  await eventually(() => server.output.includes('traceId'), 5_000, 'the log line');
  for (const line of server.output.split('\n').filter((text) => text.endsWith('}'))) {
    for (const field of Object.keys(JSON.parse(line))) t.ok(known.has(field), `the field ${field}`);
  }
});

t.test('every option, file and example address that the page names is one', async (t) => {
  const options = [...SERVE_OPTIONS, ...MIGRATE_OPTIONS].map(({ name }) => name as string);
  const commands = blocks('sh').join('\n').replaceAll(/\\\n/g, ' ').split('\n');
  for (const command of commands.filter((line) => line.trim().startsWith('halo-server '))) {
    for (const [, name = ''] of command.matchAll(/ --([a-z-]+)/g))
      t.ok(options.includes(name), name);
  }
  const inline = [...PAGE.matchAll(/`--([a-z-]+)[^`]*`/g)].map(([, name = '']) => name);
  // Of the container engine, and of `halo` (docs-commands.test.ts tries those).
  const elsewhere = ['read-only', 'init', 'wait', 'timeout', 'expires-in'];
  for (const name of inline) t.ok([...options, ...elsewhere].includes(name), `--${name}`);
  for (const [, path = ''] of PAGE.matchAll(/`((?:deploy|docs|test|src)\/[\w./-]+)`/g)) {
    t.ok(existsSync(join(ROOT, path)), path);
  }
  for (const [, path = ''] of PAGE.matchAll(/\]\(([^)#]+)\)/g)) {
    t.ok(existsSync(join(ROOT, 'docs', path)), path);
  }
});

t.test('the secrets that the page makes are taken', async (t) => {
  const directory = mkdtempSync(join(tmpdir(), 'halo-secrets-'));
  const made = /^openssl genpkey.*$/m.exec(PAGE)?.[0] ?? '';
  const token = /^echo "root:halo_admin_.*$/m.exec(PAGE)?.[0] ?? '';
  for (const command of [made, token]) {
    const run = spawnSync('/bin/sh', ['-ec', command.replaceAll('/etc/halos', directory)]);
    if (run.status !== 0) {
      t.comment('openssl is not installed: its commands were not tried');
      return;
    }
  }
  const installation = {
    directory,
    keyFile: join(directory, 'signing-key.pem'),
    tokenFile: join(directory, 'admin-tokens'),
  };
  const storage = ['--data-dir', join(directory, 'data')];
  const server = await HaloServer.start(installation, storage);
  t.teardown(() => server.stop('SIGKILL'));
  const [, secret = ''] = readFileSync(installation.tokenFile, 'utf8').trim().split(':');
  t.equal((await server.call('GET', '/v1/status', { token: secret })).status, 200);
});
