/** What a newcomer sees after `npm start`: the commands of the welcome work as they are pasted. */
import { type ChildProcess, execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, mkdirSync, readdirSync, readFileSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import t, { type Test } from 'tap';

const run = promisify(execFile);
const PROGRAM = fileURLToPath(new URL('../src/cli/halo-server.js', import.meta.url));
const HALO = fileURLToPath(new URL('../src/cli/halo.js', import.meta.url));
/** A cold start on a busy machine takes a second or two. */
const READY_WITHIN_MS = 60_000;
/** Longer than the shutdown's own bound. */
const STOP_WITHIN_MS = 20_000;

interface Server {
  readonly folder: string;
  readonly output: string;
  stop(): Promise<number | null>;
}

/** `serve --dev` in a folder whose name a shell has to be told about, until it said its welcome. */
async function startDev(t: Test): Promise<Server> {
  const folder = join(t.testdir({}), "it's a folder");
  mkdirSync(folder);
  const environment = Object.entries(process.env).filter(([name]) => !name.startsWith('HALO_'));
  const args = ['serve', '--dev', '--listen', '127.0.0.1:0', '--ready-file', 'ready'];
  const child: ChildProcess = spawn(process.execPath, [PROGRAM, ...args], {
    cwd: folder,
    env: Object.fromEntries(environment),
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  t.teardown(() => child.kill('SIGKILL'));
  let output = '';
  const collect = (chunk: Buffer): void => {
    output += chunk.toString();
  };
  child.stdout?.on('data', collect);
  child.stderr?.on('data', collect);
  const deadlineMs = Date.now() + READY_WITHIN_MS;
  while (!output.includes('Stop with Ctrl-C.\n')) {
    if (child.exitCode !== null || Date.now() > deadlineMs)
      throw new Error(`no welcome: ${output}`);
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
  return {
    folder,
    output,
    stop: async () => {
      const exit = once(child, 'exit', { signal: AbortSignal.timeout(STOP_WITHIN_MS) });
      child.kill('SIGTERM');
      await exit;
      return child.exitCode;
    },
  };
}

/** The blocks that a person would copy: lines set in by four spaces. */
function pastedBlocks(welcome: string): string {
  return welcome
    .split('\n')
    .filter((line) => line.startsWith('    '))
    .join('\n');
}

const hasCurl = await run('curl', ['--version']).then(
  () => true,
  () => false,
);
const withoutCurl = hasCurl || process.env['CI'] === 'true' ? {} : { skip: 'curl is missing' };

t.test(
  'the pasted commands enrol, authenticate, revoke and see it refused',
  withoutCurl,
  async (t) => {
    const server = await startDev(t);
    const script = pastedBlocks(server.output);
    const tokenFile = join(server.folder, '.halos', 'admin-token');
    for (const shell of ['sh', 'bash'].filter((name) => existsSync(`/bin/${name}`))) {
      const { stdout, stderr } = await run(shell, ['-c', script], { cwd: '/' });
      t.equal(stderr, '', `${shell} complains of nothing`);
      const answers = stdout.split(/\r?\n/);
      const statuses = answers.filter((line) => line.startsWith('HTTP/1.1 '));
      t.match(statuses, [/^HTTP\/1.1 200/, /^HTTP\/1.1 403/], shell);
      t.match(stdout, /"credential":"halo_device_\w+"/);
      t.match(stdout, /x-halo-user: ann/i);
      t.match(stdout, /"revokedAt":"2/);
      t.match(stdout, /"code":"device_revoked"/);
      // The commands also work once somebody has given the token a name.
      writeFileSync(tokenFile, `ops:${readFileSync(tokenFile, 'utf8').replace(/^.*:/, '')}`);
    }
    t.equal(await server.stop(), 0);
  },
);

t.test('files of --dev are for their owner only, and halo finds them by itself', async (t) => {
  const previous = process.umask(0);
  t.teardown(() => process.umask(previous));
  const server = await startDev(t);
  const data = join(server.folder, '.halos');
  t.equal(statSync(data).mode & 0o777, 0o700);
  for (const name of readdirSync(data)) {
    t.equal(statSync(join(data, name)).mode & 0o077, 0, `${name} is private`);
  }
  const token = readFileSync(join(data, 'admin-token'), 'utf8').trim();
  t.notMatch(server.output, token, 'the token itself is not said');

  const { url } = JSON.parse(readFileSync(join(server.folder, 'ready'), 'utf8')) as { url: string };
  const halo = async (...args: string[]): Promise<string> => {
    const words = [HALO, ...args, '--url', url];
    return (await run(process.execPath, words, { cwd: server.folder })).stdout;
  };
  t.match(await halo('enroll-token', 'ann'), /^token {4}halo_enroll_\w+\nexpires {2}2/);
  t.equal(await halo('devices'), 'No devices.\n');
  t.equal(await halo('devices', '--limit', '5000'), 'No devices.\n', 'more than one page');
  t.match(await halo('status'), /backend +file\n/);
  t.equal(await server.stop(), 0);
});
