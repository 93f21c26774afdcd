import { type ChildProcess, spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { linkSync, mkdirSync, mkdtempSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import t from 'tap';
import { systemRandom } from '../src/runtime/random.js';
import { lockDirectory } from '../src/storage/file/directory-lock.js';
import { type FileSystem, systemFileSystem } from '../src/storage/file/file-system.js';
import { startStorageThread } from '../src/storage/file/storage-thread.js';

const CONTENDER = fileURLToPath(new URL('./fixtures/file-lock-contender.js', import.meta.url));
const CONTENDERS = 20;
const RACES = 2;
const seedBase = Number(process.env['SEED'] ?? Math.floor(Math.random() * 1e9));

/** A process beside this one that contends for the directory when told to. */
class Contender {
  readonly child: ChildProcess;
  private readonly lines: AsyncIterableIterator<string>;

  constructor(dataDir: string, seed = '', prefix: readonly string[] = []) {
    const [command = process.execPath, ...rest] = [...prefix, process.execPath];
    this.child = spawn(command, [...rest, CONTENDER, dataDir, seed], {
      stdio: ['pipe', 'pipe', 'inherit'],
    });
    const input = this.child.stdout;
    if (input === null) throw new Error('no standard output');
    this.lines = createInterface({ input })[Symbol.asyncIterator]();
  }

  async line(): Promise<string> {
    const { value } = await this.lines.next();
    return value ?? 'ended';
  }

  async contend(): Promise<string> {
    this.child.stdin?.write('go\n');
    return this.line();
  }

  async end(signal: NodeJS.Signals = 'SIGKILL'): Promise<void> {
    if (this.child.exitCode !== null || this.child.signalCode !== null) return;
    const exited = once(this.child, 'exit');
    this.child.kill(signal);
    await exited;
  }
}

async function outcome(dataDir: string, prefix: readonly string[] = []): Promise<string> {
  const contender = new Contender(dataDir, '', prefix);
  await contender.line();
  const line = await contender.contend();
  await contender.end();
  return line;
}

function lockNames(dataDir: string): string[] {
  return readdirSync(dataDir).filter((name) => name.startsWith('lock-'));
}

t.test('of twenty processes that race over a stale lock exactly one holds it', async (t) => {
  t.comment(`SEED=${seedBase}`);
  const dataDir = t.testdir();
  t.equal(await outcome(dataDir), 'held', 'whose holder was killed and left a stale socket');
  for (let race = 0; race < RACES; race += 1) {
    const contenders = Array.from(
      { length: CONTENDERS },
      (_, i) => new Contender(dataDir, String(seedBase + race * CONTENDERS + i)),
    );
    await Promise.all(contenders.map((contender) => contender.line()));
    const lines = await Promise.all(contenders.map((contender) => contender.contend()));
    t.equal(lines.filter((line) => line === 'held').length, 1, `one holds in race ${race}`);
    t.equal(
      lines.filter((line) => line === 'directory_held').length,
      CONTENDERS - 1,
      'and the others are told so',
    );
    await Promise.all(contenders.map((contender) => contender.end()));
    t.equal(
      lockNames(dataDir).filter((name) => !name.includes('tmp')).length,
      1,
      'what earlier holders left was cleared away',
    );
  }
});

t.test('a directory is free after kill -9 of its holder, and held until then', async (t) => {
  const dataDir = t.testdir();
  const holder = new Contender(dataDir);
  await holder.line();
  t.equal(await holder.contend(), 'held');
  t.equal(await outcome(dataDir), 'directory_held');
  t.equal(await outcome(dataDir), 'directory_held');
  await holder.end();
  t.equal(await outcome(dataDir), 'held');
});

t.test('a stopped holder still holds, however many ask', async (t) => {
  const dataDir = t.testdir();
  const holder = new Contender(dataDir);
  await holder.line();
  t.equal(await holder.contend(), 'held');
  holder.child.kill('SIGSTOP');
  t.teardown(() => holder.end());
  for (let i = 0; i < 3; i += 1) t.equal(await outcome(dataDir), 'directory_held');
  holder.child.kill('SIGCONT');
  t.equal(await outcome(dataDir), 'directory_held');
});

t.test('process ids and network namespaces play no part', async (t) => {
  const unshare = ['unshare', '--pid', '--fork', '--kill-child', '--net'];
  if (spawnSync(unshare[0] ?? '', [...unshare.slice(1), 'true']).status !== 0) {
    t.comment('SKIPPED: unshare --pid --net does not work here');
    return;
  }
  const dataDir = t.testdir();
  const holder = new Contender(dataDir, '', unshare);
  t.teardown(() => holder.end());
  await holder.line();
  t.equal(await holder.contend(), 'held', 'as pid 1 of its namespace');
  t.equal(await outcome(dataDir, unshare), 'directory_held', 'another pid 1');
  t.equal(await outcome(dataDir), 'directory_held', 'and one outside');
  await holder.end();
  t.equal(await outcome(dataDir, unshare), 'held', 'free after kill -9, the same pid again');
});

t.test('a data directory with a path longer than a socket address can be held', async (t) => {
  const dataDir = join(t.testdir(), 'a'.repeat(100), 'b'.repeat(100));
  mkdirSync(dataDir, { recursive: true });
  const environment = { dataDir, fileSystem: systemFileSystem, random: systemRandom };
  const lock = await lockDirectory(environment);
  await t.rejects(lockDirectory(environment), { code: 'directory_held' });
  lock.release();
  lock.release();
  (await lockDirectory(environment)).release();
});

t.test('a number that a slow process takes below a later holder is given back', async (t) => {
  // A short path: this test binds a socket of its own.
  const dataDir = mkdtempSync(join(tmpdir(), 'halos-lock-'));
  t.teardown(() => rmSync(dataDir, { recursive: true }));
  const environment = { dataDir, fileSystem: systemFileSystem, random: systemRandom };
  // While this process looks at number 0, a whole life of number 1 passes and number 2 holds.
  let listings = 0;
  const slow: FileSystem = {
    ...systemFileSystem,
    list: (path) => {
      listings += 1;
      return listings === 1 ? [] : systemFileSystem.list(path);
    },
  };
  const later = createServer();
  t.teardown(() => later.close());
  later.listen(join(dataDir, 'later.sock'));
  await once(later, 'listening');
  linkSync(join(dataDir, 'later.sock'), join(dataDir, 'lock-2.sock'));
  await t.rejects(lockDirectory({ ...environment, fileSystem: slow }), { code: 'directory_held' });
  t.same(lockNames(dataDir), ['lock-2.sock']);
});

t.test('a file that is no socket does not hold the directory', async (t) => {
  const dataDir = t.testdir();
  writeFileSync(join(dataDir, 'lock-7.sock'), '');
  const lock = await lockDirectory({ dataDir, fileSystem: systemFileSystem, random: systemRandom });
  t.same(lockNames(dataDir), ['lock-8.sock']);
  lock.release();
  t.same(lockNames(dataDir), ['lock-8.sock'], 'the highest number never goes down');
});

t.test('the storage thread holds its directory until it is closed', async (t) => {
  const dataDir = t.testdir();
  const first = await startStorageThread({ dataDir });
  await t.rejects(startStorageThread({ dataDir }), { code: 'directory_held' });
  t.equal(await outcome(dataDir), 'directory_held');
  await first.close();
  const second = await startStorageThread({ dataDir });
  await second.close();
  await second.close();
});
