/** The README as a newcomer reads it: its commands are taken from the page, run, and compared. */
import { type ChildProcess, execFile, spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import {
  chmodSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  statSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import t, { type Test } from 'tap';
import { startPostgres } from './fixtures/postgres-server.js';
import { until } from './fixtures/toy-actor.js';

const run = promisify(execFile);
const ROOT = fileURLToPath(new URL('../../', import.meta.url));
const COMPILED = fileURLToPath(new URL('..', import.meta.url));
const PAGE = readFileSync(join(ROOT, 'README.md'), 'utf8');
/** A cold start of a database and two replicas on a busy machine. */
const READY_WITHIN_MS = 120_000;

t.setTimeout(300_000);

const has = (program: string): boolean => spawnSync(program, ['version']).error === undefined;
const unless = (...programs: string[]): { skip?: string } => {
  const missing = programs.filter((program) => !has(program));
  if (missing.length === 0 || process.env['CI'] === 'true') return {};
  return { skip: `${missing.join(' and ')}: missing` };
};

/** What stands between fences under a heading: commands, and what they print. */
function blocksOf(heading: string): { commands: string[]; printed: string[] } {
  const section = PAGE.split(`\n## ${heading}\n`)[1]?.split('\n## ')[0] ?? '';
  const blocks = [...section.matchAll(/^```(\w*)\n([\s\S]*?)^```$/gm)];
  const of = (language: string): string[] =>
    blocks.filter(([, name]) => name === language).map(([, , text = '']) => text);
  return { commands: of('sh'), printed: of('') };
}

/** Text in which what differs from run to run is a word; header names as the server has them. */
function shape(text: string): string {
  return text
    .replaceAll('\r', '')
    .replaceAll(/\b(dev|gw|ev)_[0-9a-f-]{36}/g, '$1_ID')
    .replaceAll(/\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:[\d.]+Z)?/g, 'TIME')
    .replaceAll(/(Date: ).*/g, '$1TIME')
    .replaceAll(/\b[0-9a-f]{12}-[0-9a-z]+\b/g, 'REQUEST')
    .replaceAll(/http:\/\/127\.0\.0\.1:\d+/g, 'URL')
    .trim();
}

/** A PATH where `npx` runs the programs that were compiled with this test. */
function withNpx(): NodeJS.ProcessEnv {
  const folder = mkdtempSync(join(tmpdir(), 'halo-readme-'));
  const script = `#!/bin/sh\nname=$1; shift\nexec node "${COMPILED}/src/cli/$name.js" "$@"\n`;
  writeFileSync(join(folder, 'npx'), script, { mode: 0o755 });
  const kept = Object.entries(process.env).filter(([name]) => !name.startsWith('HALO_'));
  return { ...Object.fromEntries(kept), PATH: `${folder}:${process.env['PATH']}` };
}

interface Started {
  readonly child: ChildProcess;
  said: string;
}

/** Starts a program and waits until it says that. */
async function start(t: Test, args: string[], cwd: string, says: string): Promise<Started> {
  const [program = '', ...rest] = args;
  const child = spawn(program, rest, { cwd, env: withNpx(), stdio: ['ignore', 'pipe', 'pipe'] });
  t.teardown(() => child.kill('SIGKILL'));
  const started: Started = { child, said: '' };
  for (const stream of [child.stdout, child.stderr]) {
    stream?.on('data', (chunk: Buffer) => {
      started.said += chunk.toString();
    });
  }
  await until(() => started.said.includes(says), READY_WITHIN_MS);
  return started;
}

async function stop({ child }: Started): Promise<number | null> {
  const exit = once(child, 'exit');
  child.kill('SIGTERM');
  await exit;
  return child.exitCode;
}

t.test('the policy of the page is accepted, decides, and its decisions are proved', async (t) => {
  const cwd = t.testdir({});
  const env = withNpx();
  const { commands, printed } = blocksOf('Decisions, and their proof');
  const [policy = '', asking = '', proving = ''] = commands;
  const checked = await run('sh', ['-ec', policy], { cwd, env });
  t.equal(checked.stdout, printed[0], 'the digest of the page is that of its policy');
  const program = join(COMPILED, 'src/cli/halo-server.js');
  const listen = ['--listen', '127.0.0.1:0'];
  const args = ['node', program, 'serve', '--dev', ...listen, '--policy-dir', 'policy'];
  const server = await start(t, args, cwd, 'Stop with Ctrl-C');
  const url = /address: +(\S+)/.exec(server.said)?.[1] ?? '';
  const asked = await run('sh', ['-ec', asking], { cwd, env: { ...env, HALO_URL: url } });
  t.equal(shape(asked.stdout), shape(printed[1] ?? ''));
  const proved = await run('sh', ['-ec', proving], { cwd, env: { ...env, HALO_URL: url } });
  t.match(proved.stdout, /decision\.made[\s\S]*verified\nrecords +\d+/);
  t.equal(await stop(server), 0);
});

t.test(
  'the first session and the command line print what the page says',
  unless('curl'),
  async (t) => {
    const cwd = t.testdir({});
    const program = join(COMPILED, 'src/cli/halo-server.js');
    const args = ['node', program, 'serve', '--dev', '--listen', '127.0.0.1:0'];
    const server = await start(t, args, cwd, 'Stop with Ctrl-C');
    const url = /address: +(\S+)/.exec(server.said)?.[1] ?? '';
    const { commands, printed } = blocksOf('A first session');
    t.match(commands[0], /^HALO=http:\/\/127\.0\.0\.1:8080$/m);
    const script = commands.join('').replace('http://127.0.0.1:8080', url);
    const { stdout, stderr } = await run('sh', ['-c', script], { cwd });
    t.equal(stderr, '');
    t.equal(shape(stdout), shape(printed.join('')));
    const env = { ...withNpx(), HALO_URL: url };
    const [lines = ''] = blocksOf('The command line').commands;
    const asked = await run('sh', ['-ec', lines], { cwd, env });
    t.equal(asked.stderr, '');
    t.match(
      asked.stdout,
      /^replica [\s\S]*\nID +USER [\s\S]*revoked\ntoken +halo_enroll_\w+\nexpires/,
    );
    for (const line of asked.stdout.split('\n').slice(0, 12)) t.ok(line.length <= 120, line);
    t.equal(await stop(server), 0);
  },
);

t.test('a kill on one replica of dev:cluster arrives on the other, as the page says', async (t) => {
  const args = ['node', join(COMPILED, 'load/dev-cluster.js')];
  const cluster = await start(t, args, t.testdir({}), 'Ctrl-C ends everything.');
  const [one = '', two = ''] = cluster.said.match(/http:\/\/127\.0\.0\.1:\d+/g) ?? [];
  const files = /\S+halos-dev-cluster-\w+/.exec(cluster.said)?.[0] ?? '';
  const { commands, printed } = blocksOf('The kill list');
  const [, watching = '', killing = ''] = commands.map((command) =>
    command
      .replace(/ONE=\S+/, `ONE=${one}`)
      .replace(/TWO=\S+/, `TWO=${two}`)
      .replace(/FILES=\S+/, `FILES=${files}`),
  );
  const [announced = '', killed = '', heard = ''] = printed;
  t.match(shape(cluster.said), shape(announced));
  const exec = watching.replace(/^npx/m, 'exec npx');
  const watch = await start(t, ['sh', '-ec', exec], t.testdir({}), 'current as of');
  const { stdout, stderr } = await run('sh', ['-ec', killing], { env: withNpx() });
  t.equal(stderr, '');
  t.equal(shape(stdout), shape(killed));
  const events = (text: string): string[] =>
    shape(text)
      .split('\n')
      .filter((line) => /connected|whole list|kill|lift/.test(line));
  await until(() => watch.said.includes('lift agent'), READY_WITHIN_MS);
  t.same(events(watch.said), events(heard));
  await stop(watch);
  await stop(cluster);
  t.notOk(existsSync(files), 'nothing is left');
});

t.test('two replicas on PostgreSQL start as the page says', unless('openssl'), async (t) => {
  const server = await startPostgres({ auth: 'scram' });
  t.teardown(() => server.stop());
  await server.sql(`CREATE ROLE halo_owner LOGIN PASSWORD 'choose-one'`);
  await server.sql(`CREATE ROLE halo_serving LOGIN PASSWORD 'choose-another'`);
  await server.sql('CREATE DATABASE halos OWNER halo_owner');
  await server.sql(
    `ALTER DEFAULT PRIVILEGES FOR ROLE halo_owner
     GRANT SELECT, INSERT, UPDATE, DELETE ON TABLES TO halo_serving`,
    'halos',
  );
  const { host } = new URL(server.url('halo_owner', 'choose-one', 'halos'));
  const cwd = join(t.testdir({}), 'replicas');
  mkdirSync(cwd);
  const [first = '', second = ''] = blocksOf('On PostgreSQL').commands.map((command) =>
    command.replaceAll('127.0.0.1:5432', host).replace(/^npx halo-server serve/m, 'exec $&'),
  );
  t.match(second, '--listen 127.0.0.1:8081 --metrics-listen 127.0.0.1:9465');
  const one = `export HALO_LISTEN=127.0.0.1:0\n${first}`;
  const a = await start(t, ['sh', '-ec', one], cwd, '"Ready."');
  t.match(a.said, 'Migrated from schema version 0');
  for (const name of ['owner.url', 'serving.url', 'signing-key.pem', 'admin-tokens']) {
    t.equal(statSync(join(cwd, name)).mode & 0o077, 0, `${name} is private`);
  }
  const two = second.replaceAll(/127\.0\.0\.1:(8081|9465)/g, '127.0.0.1:0');
  const b = await start(t, ['sh', '-ec', two], cwd, '"Ready."');
  const [url = ''] = /http:\/\/127\.0\.0\.1:\d+/.exec(b.said) ?? [];
  const status = ['-ec', `npx halo status --token-file admin-tokens --url ${url}`];
  const { stdout } = await run('sh', status, { cwd, env: withNpx() });
  t.match(stdout, /\nbackend +postgres\n/);
  t.same([await stop(a), await stop(b)], [0, 0]);
});

t.test('npx in a checkout runs its commands as they are, and does not build first', async (t) => {
  const { scripts } = JSON.parse(readFileSync(join(ROOT, 'package.json'), 'utf8'));
  // npm links the checkout at the first `npx halo`, and runs this script: a build would take half a
  // minute, replace files of a running server, and two at once would break each other.
  const prepare = async (command: string): Promise<string> => {
    const cwd = t.testdir({
      npm: '#!/bin/sh\necho built\n',
      tap: '#!/bin/sh\necho linked\n',
    });
    for (const name of ['npm', 'tap']) chmodSync(join(cwd, name), 0o755);
    const env = { PATH: `${cwd}:${process.env['PATH']}`, npm_command: command };
    return (await run('sh', ['-c', scripts.prepare], { cwd, env })).stdout;
  };
  t.equal(await prepare('exec'), '');
  t.equal(await prepare('ci'), 'built\nlinked\n');
  t.equal(await prepare('install'), 'built\nlinked\n');
});
