/** `halo check | approve | deny | policy check`: against a server, and on the data itself. */
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir, userInfo } from 'node:os';
import { join } from 'node:path';
import t from 'tap';
import { runHalo } from '../src/cli/halo/program.js';
import { runHaloVerify } from '../src/cli/halo-verify/program.js';
import { startHaloCluster } from './fixtures/halo-cluster.js';
import { HaloServer, newInstallation } from './fixtures/halo-server.js';
import { keepAlive } from './fixtures/keep-alive.js';
import { policyFiles } from './fixtures/policy-files.js';

t.setTimeout(120_000);
keepAlive(t);

function policyDir(changes: Readonly<Record<string, string | undefined>> = {}): string {
  const directory = mkdtempSync(join(tmpdir(), 'halo-policy-'));
  t.teardown(() => rmSync(directory, { recursive: true }));
  for (const { name, text } of policyFiles(changes)) writeFileSync(join(directory, name), text);
  return directory;
}

interface Ran {
  readonly code: number;
  readonly out: string;
  readonly err: string;
  readonly json: any;
}

async function halo(...args: readonly string[]): Promise<Ran> {
  const said = { out: '', err: '' };
  const code = await runHalo(args, {
    environment: {},
    out: (text) => {
      said.out += text;
    },
    err: (text) => {
      said.err += text;
    },
  });
  let json: unknown;
  try {
    json = JSON.parse(said.out);
  } catch {
    // It was text for people.
  }
  return { code, ...said, json };
}

async function verified(...args: readonly string[]): Promise<string> {
  let out = '';
  const console = {
    environment: {},
    out: (text: string) => {
      out += text;
    },
    err: () => undefined,
  };
  await runHaloVerify([...args, '--json'], console, { isTerminal: false });
  return (JSON.parse(out) as { status: string }).status;
}

const SEARCH = ['Agent::a', 'tool:call', 'Tool::search'];
const DEAR = [...SEARCH, '--context', '{"amount":500}'];

t.test('a policy repository’s CI is told file, line and column, and an exit code', async (t) => {
  const good = await halo('policy', 'check', policyDir());
  t.match(good, { code: 0, out: /^accepted: 4 policies, digest [0-9a-f]{64}\n$/ });
  const bad = policyDir({ 'x.cedar': '\npermit (principal, action, resource);' });
  const told = await halo('policy', 'check', bad);
  t.equal(told.code, 1);
  t.match(told.out, /^x\.cedar:2:1: error: .* \(permit_unconditional\)\nrefused: 1 errors\n$/);
  const json = await halo('policy', 'check', bad, '--json');
  t.match(json.json, { accepted: false, issues: [{ file: 'x.cedar', line: 2, column: 1 }] });
  t.equal((await halo('policy', 'check', '/nonexistent')).code, 1);
  t.equal((await halo('policy', 'check')).code, 2);
});

t.test('against a server', async (t) => {
  const installation = newInstallation();
  const dataDir = join(installation.directory, 'data');
  const server = await HaloServer.start(
    installation,
    ['--data-dir', dataDir],
    ['--policy-dir', policyDir()],
  );
  t.teardown(() => server.stop('SIGKILL'));
  const tokenFile = join(installation.directory, 'operator');
  writeFileSync(tokenFile, 'a-token-for-tests-of-40-characters-00000', { mode: 0o600 });
  const to = ['--url', server.url, '--token-file', tokenFile, '--json'];
  t.match(await halo('check', ...SEARCH, ...to), { code: 0, json: { decision: 'allow' } });
  t.match(await halo('check', 'User::u', 'tool:call', 'Tool::x', ...to), {
    code: 1,
    json: { decision: 'deny' },
  });
  const dear = await halo('check', ...DEAR, ...to);
  t.match(dear, { code: 1, json: { decision: 'needs_approval' } });
  const own = await halo('approve', dear.json.ref, '--reason', 'mine', ...to);
  t.match(own, { code: 1, err: /approval_own/ });
  t.match(await halo('approve', dear.json.ref, ...to), { code: 2, err: /--reason/ });
  t.match(await halo('check', 'a', 'b', 'c', ...to), { code: 2, err: /Type::id/ });
  t.match(await halo('check', ...SEARCH, '--attrs', '7', ...to), { code: 2, err: /JSON object/ });
});

t.test('on files without a server: recorded, chained, and refused beside one', async (t) => {
  const installation = newInstallation();
  const dataDir = join(installation.directory, 'data');
  const policy = policyDir();
  const started = await HaloServer.start(installation, ['--data-dir', dataDir]);
  const place = [
    '--data-dir',
    dataDir,
    '--signing-key-file',
    installation.keyFile,
    '--policy-dir',
    policy,
    '--json',
  ];
  t.match(await halo('check', ...SEARCH, ...place), { code: 3, err: /uses the data directory/ });
  await started.stop('SIGTERM');
  t.match(await halo('check', ...SEARCH, ...place), { code: 0, json: { pending: false } });
  const dear = await halo('check', ...DEAR, ...place);
  t.match(dear, { code: 1, json: { decision: 'needs_approval' } });
  const own = await halo('approve', dear.json.ref, '--reason', 'x', ...place);
  t.match(own, { code: 1, err: /Whoever asked/ });
  t.equal(await verified('--data-dir', dataDir), 'verified');
  const bad = policyDir({ 'x.cedar': 'permit (principal, action, resource);' });
  const refused = place.map((word) => (word === policy ? bad : word));
  t.match(await halo('check', ...SEARCH, ...refused), { code: 1, err: /x\.cedar:1:1/ });
  t.match(await halo('check', ...SEARCH, '--policy-dir', policy), { code: 2 });
});

t.test('on PostgreSQL beside two servers: what a command records it chains', async (t) => {
  const { installation, database, servers, stop } = await startHaloCluster(2);
  t.teardown(stop);
  const urlFile = join(installation.directory, 'command.url');
  writeFileSync(urlFile, database.url, { mode: 0o600 });
  const place = [
    '--database-url-file',
    urlFile,
    '--signing-key-file',
    installation.keyFile,
    '--policy-dir',
    policyDir(),
    '--json',
  ];
  const refs: string[] = [];
  for (let round = 0; round < 5; round += 1) {
    const { code, json } = await halo('check', ...SEARCH, ...place);
    t.equal(code, 0);
    refs.push(json.ref);
    const found = await servers[round % 2]?.call('GET', `/v1/evidence/by-ref/${json.ref}`, {
      token: 'a-token-for-tests-of-40-characters-00000',
    });
    t.match(found?.json, { pending: false, record: { by: { id: userInfo().username } } });
  }
  await Promise.all(servers.map((server) => server.stop('SIGTERM')));
  const alone = await halo('check', ...SEARCH, ...place);
  t.equal(alone.code, 0);
  const [waiting] = await database.sql('SELECT count(*)::int AS n FROM halo_evidence_outbox');
  t.equal(waiting?.['n'], 0, 'also where no server runs');
  t.equal(await verified('--database-url-file', urlFile), 'verified');
});
