/** The container image, as far as it can be tried without a container engine. */
import { type ChildProcess, spawn, spawnSync } from 'node:child_process';
import { generateKeyPairSync, sign } from 'node:crypto';
import { once } from 'node:events';
import {
  chmodSync,
  chownSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import t from 'tap';
import {
  buildFirstStage,
  copied,
  copyable,
  dockerfileStages,
  INSTALLED,
} from './fixtures/deploy-image.js';
import { eventually } from './fixtures/halo-server.js';
import { call } from './fixtures/http-client.js';
import { freePort } from './fixtures/postgres-server.js';

/** More than this in the folder is something that a server does not need. */
const FOLDER_BYTES_MAX = 30e6;
const isRoot = process.getuid?.() === 0;
const nobody = isRoot ? { uid: 65_534, gid: 65_534 } : {};

const installed = buildFirstStage();
t.teardown(() => rmSync(dirname(installed), { recursive: true, force: true }));
chmodSync(dirname(installed), 0o755);

function listFiles(folder: string): string[] {
  return readdirSync(folder, { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile())
    .map((entry) => join(entry.parentPath, entry.name))
    .sort();
}

function instructions(name: string): string[] {
  return (dockerfileStages().at(-1) ?? [])
    .filter((instruction) => instruction.name === name)
    .map(({ text }) => text);
}

/** The environment that the image sets, without that of the test. */
function environment(port: number): Record<string, string> {
  return { PATH: process.env.PATH ?? '', NODE_ENV: 'production', HALO_LISTEN: `127.0.0.1:${port}` };
}

function newDataFolder(): string {
  const folder = mkdtempSync(join(tmpdir(), 'halo-data-'));
  t.teardown(() => rmSync(folder, { recursive: true, force: true }));
  if (isRoot) chownSync(folder, 65_534, 65_534);
  return folder;
}

/**
 * Node without what the test runner hands to every child: a module in this checkout, which nobody
 * cannot read where the checkout is below a folder of its owner's own.
 */
const PLAIN_NODE = ['-u', 'NODE_OPTIONS', process.execPath];

function isHealthy(port: number): boolean {
  const script = join(installed, 'is-healthy.mjs');
  const run = spawnSync('env', [...PLAIN_NODE, script], { ...nobody, env: environment(port) });
  return run.status === 0;
}

const served = (data: string): string[] => [
  join(installed, 'dist/src/cli/halo-server.js'),
  ...['serve', '--data-dir', data, '--metrics-listen', '127.0.0.1:0'],
];

t.test('the image is made of Node 20 by tag, and runs as nobody in particular', async (t) => {
  const [build = [], final = []] = dockerfileStages();
  t.equal(dockerfileStages().length, 2);
  t.match(build[0], { name: 'FROM', text: 'node:20-bookworm-slim AS build' });
  t.match(final[0], { name: 'FROM', text: 'node:20-bookworm-slim' });
  t.match(instructions('USER'), [/^[1-9]\d*:[1-9]\d*$/], 'a number that is not root');
  t.same(instructions('STOPSIGNAL'), ['SIGTERM']);
  t.same(instructions('COPY'), [`--from=build ${INSTALLED} ${INSTALLED}`], 'and nothing else');
  t.equal(instructions('RUN').length, 1, 'nothing is installed into it');
  const health = /^(?:--\S+ )*CMD (\[.*\])$/.exec(instructions('HEALTHCHECK')[0] ?? '')?.[1];
  const forms = [health, ...instructions('ENTRYPOINT'), ...instructions('CMD')];
  for (const form of forms) {
    const words: string[] = JSON.parse(form ?? '');
    const files = words.filter((word) => word.startsWith(INSTALLED));
    for (const file of files) t.ok(existsSync(file.replace(INSTALLED, installed)), file);
  }
  t.equal(forms.length, 3);
});

t.test('everything that the image copies is let through to the builder', async (t) => {
  const copies = dockerfileStages()[0]?.filter(({ name }) => name === 'COPY') ?? [];
  const sources = copies.flatMap(({ text }) => copied(text).sources);
  t.same(sources.map((source) => source.replace(/^\.\//, '')).sort(), copyable().sort());
});

t.test('the folder has what a server needs, one native HTTP file, and no tools', async (t) => {
  const files = listFiles(installed).map((file) => file.slice(installed.length + 1));
  const native = files.filter((file) => /^node_modules\/uWebSockets\.js\/.*\.node$/.test(file));
  const { platform, arch, versions } = process;
  const expected = `uws_${platform}_${arch}_${versions.modules}.node`;
  t.same(native, [`node_modules/uWebSockets.js/${expected}`]);
  const bytes = files.reduce((sum, file) => sum + statSync(join(installed, file)).size, 0);
  t.ok(bytes < FOLDER_BYTES_MAX, `${Math.round(bytes / 1e6)} MB`);
  t.comment(`${Math.round(bytes / 1e6)} MB in ${files.length} files`);
  const own = JSON.parse(readFileSync(join(installed, 'package.json'), 'utf8'));
  for (const name of Object.keys(own.dependencies)) {
    t.ok(existsSync(join(installed, 'node_modules', name)), name);
  }
  for (const name of Object.keys(own.devDependencies)) {
    t.notOk(existsSync(join(installed, 'node_modules', name)), `without ${name}`);
  }
  for (const name of ['LICENSE', 'docs/errors.md', 'migrations/0001_init.sql']) {
    t.ok(files.includes(name), name);
  }
  t.ok(files.includes('node_modules/uWebSockets.js/LICENSE'), 'licences go with what they are for');
  t.same(
    files.filter((file) => /^dist\/(?!src\/)|^(src|test|load)\//.test(file)),
    [],
  );
});

t.test('a server runs from the folder with nothing to write to but its data', async (t) => {
  const port = await freePort();
  const data = newDataFolder();
  const before = listFiles(installed).map((file) => [file, statSync(file).mtimeMs]);
  t.notOk(isHealthy(port), 'nobody answers yet');
  const child = spawn('env', [...PLAIN_NODE, ...served(data)], {
    ...nobody,
    cwd: '/',
    env: { ...environment(port), HOME: '/nonexistent', TMPDIR: '/nonexistent' },
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  t.teardown(() => child.kill('SIGKILL'));
  const said = outputOf(child);
  const url = `http://127.0.0.1:${port}`;
  const isReady = async (): Promise<boolean> => {
    if (child.exitCode !== null) throw new Error(`The server ended: ${said()}`);
    return (await call(url, 'GET', '/readyz').catch(() => ({ status: 0 }))).status === 200;
  };
  await eventually(isReady, 30_000, 'readiness');
  t.ok(isHealthy(port));
  const enrolled = await enrolWithProof(url, readFileSync(join(data, 'admin-token'), 'utf8'));
  t.equal(enrolled.status, 201, 'a proof is verified, in a thread of the pool');
  const bearer: string = enrolled.json.credential;
  t.equal((await call(url, 'GET', '/api/v1/auth/device', { bearer })).status, 200);
  const ended = once(child, 'exit');
  child.kill('SIGTERM');
  t.same(await ended, [0, null]);
  t.notOk(isHealthy(port));
  t.same(
    listFiles(installed).map((file) => [file, statSync(file).mtimeMs]),
    before,
    'nothing was written beside the program',
  );
});

t.test(
  'as process 1 it ends when it is told to',
  { skip: isRoot ? false : 'needs root' },
  async (t) => {
    const port = await freePort();
    const data = newDataFolder();
    mkdirSync(join(data, 'store'), { mode: 0o700 });
    const child = spawn(
      'unshare',
      ['--pid', '--fork', 'env', ...PLAIN_NODE, ...served(join(data, 'store'))],
      {
        cwd: '/',
        env: environment(port),
        stdio: ['ignore', 'pipe', 'pipe'],
      },
    );
    const said = outputOf(child);
    await eventually(() => said().includes('"Ready."'), 30_000, 'readiness');
    const [first = ''] = readFileSync(
      `/proc/${child.pid}/task/${child.pid}/children`,
      'utf8',
    ).split(' ');
    t.teardown(() => child.kill('SIGKILL'));
    t.match(readFileSync(`/proc/${first}/status`, 'utf8'), /^NSpid:\s+\d+\s+1$/m);
    const ended = once(child, 'exit');
    process.kill(Number(first), 'SIGTERM');
    t.same(await ended, [0, null]);
    t.match(said(), 'Stopped.');
  },
);

function outputOf(child: ChildProcess): () => string {
  let said = '';
  for (const stream of [child.stdout, child.stderr]) {
    stream?.on('data', (chunk: Buffer) => {
      said += chunk.toString();
    });
  }
  return () => said;
}

async function enrolWithProof(url: string, adminToken: string): ReturnType<typeof call> {
  const minted = await call(url, 'POST', '/api/v1/enrollment-tokens', {
    bearer: adminToken.trim(),
    body: { user: 'ann' },
  });
  const { publicKey, privateKey } = generateKeyPairSync('ed25519');
  const deviceKey = publicKey.export({ format: 'jwk' }).x;
  const { token } = minted.json;
  const proof = sign(null, Buffer.from(`halo-enroll-v1\n${token}`), privateKey).toString(
    'base64url',
  );
  return call(url, 'POST', '/api/v1/enroll', {
    body: { token, name: 'laptop', platform: 'linux', deviceKey, proof },
  });
}
