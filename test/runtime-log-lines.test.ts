import { execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import { closeSync, constants, openSync, readSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import t from 'tap';
import { systemClock } from '../src/runtime/clock.js';
import { LogLines } from '../src/runtime/log-lines.js';
import { keepAlive } from './fixtures/keep-alive.js';
import { until } from './fixtures/toy-actor.js';

keepAlive(t);

/** A reader that takes as many bytes as the test gives it room for. */
class Reader {
  room = 0;
  text = '';
  error: string | undefined;

  readonly writeNow = (bytes: Uint8Array): number => {
    if (this.error !== undefined) throw Object.assign(new Error('no'), { code: this.error });
    if (this.room === 0) throw Object.assign(new Error('full'), { code: 'EAGAIN' });
    const taken = bytes.subarray(0, this.room);
    this.room -= taken.length;
    this.text += Buffer.from(taken).toString();
    return taken.length;
  };
}

function open(reader: Reader): { lines: LogLines; counts: { dropped: number; told: number[] } } {
  const counts = { dropped: 0, told: [] as number[] };
  const count = (): void => {
    counts.dropped += 1;
  };
  const lines = new LogLines(systemClock, count, (n) => counts.told.push(n), reader.writeNow);
  return { lines, counts };
}

t.test('lines wait for a reader that stopped, whole and in order', async (t) => {
  const reader = new Reader();
  const { lines, counts } = open(reader);
  reader.room = 4;
  for (const line of ['first\n', 'second\n', 'third\n']) lines.write(line);
  t.equal(reader.text, 'firs', 'what there was room for');
  reader.room = 5;
  await until(() => reader.room === 0);
  reader.room = 100;
  await until(() => reader.text.endsWith('third\n'));
  t.equal(reader.text, 'first\nsecond\nthird\n');
  t.same(counts, { dropped: 0, told: [] });
});

t.test('beyond a mebibyte lines are dropped, counted and told of', async (t) => {
  const reader = new Reader();
  const { lines, counts } = open(reader);
  const line = `${'x'.repeat(1_023)}\n`;
  for (let count = 0; count < 1_030; count += 1) lines.write(line);
  t.same(counts, { dropped: 6, told: [] });
  reader.room = Number.MAX_SAFE_INTEGER;
  await until(() => counts.told.length > 0);
  t.same(counts, { dropped: 6, told: [6] });
  t.equal(reader.text.length, 1_048_576);
  lines.write('again\n');
  t.match(reader.text, /again\n$/, 'and there is room again');
});

t.test('a reader that is gone costs each line and nothing else', async (t) => {
  const reader = new Reader();
  const { lines, counts } = open(reader);
  reader.error = 'EPIPE';
  for (let count = 0; count < 3; count += 1) lines.write('lost\n');
  t.same(counts, { dropped: 3, told: [] });
});

t.test('a flush waits for a reader that reads, and not long for one that does not', async (t) => {
  const reader = new Reader();
  const { lines } = open(reader);
  lines.write('last words\n');
  const beganMs = systemClock.monotonicMs();
  lines.flush();
  const tookMs = systemClock.monotonicMs() - beganMs;
  t.ok(tookMs >= 450 && tookMs < 3_000, `given up after ${tookMs} ms`);
  reader.room = 100;
  lines.flush();
  t.equal(reader.text, 'last words\n');
});

t.test(
  'a process whose pipe nobody reads goes on, ends, and its first lines are whole',
  async (t) => {
    const path = join(t.testdir(), 'pipe');
    execFileSync('mkfifo', [path]);
    // Read and write: a pipe opens at once then, and stays open without any reader.
    const pipe = openSync(path, constants.O_RDWR);
    t.teardown(() => closeSync(pipe));
    const program = fileURLToPath(new URL('./fixtures/log-writer.js', import.meta.url));
    const child = spawn(process.execPath, [program], { stdio: ['ignore', pipe, 'pipe'] });
    t.teardown(() => child.kill('SIGKILL'));
    let said = '';
    child.stderr?.on('data', (chunk: Buffer) => {
      said += chunk.toString();
    });
    const [code] = await once(child, 'exit');
    t.equal(code, 5);
    const dropped = Number(/^dropped (\d+) of 8000\n$/.exec(said)?.[1]);
    t.ok(dropped > 5_000 && dropped < 8_000, `${dropped} of two threads, counted together`);
    const bytes = Buffer.alloc(4_096);
    const first = bytes.subarray(0, readSync(pipe, bytes)).toString();
    t.match(JSON.parse(first.slice(0, first.indexOf('\n'))), { msg: 'A line.' });
  },
);
