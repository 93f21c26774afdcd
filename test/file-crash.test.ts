import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdirSync } from 'node:fs';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { fileURLToPath } from 'node:url';
import t, { type Test } from 'tap';
import { seededRandom } from '../src/runtime/random.js';
import { findFault, runWorkload } from './fixtures/file-crash-workload.js';
import { FaultyFileSystem, type Harm, unsyncedFileSystem } from './fixtures/file-faulty-system.js';
import { type InProcess, openInProcess } from './fixtures/file-store-in-process.js';

/** Small, so that the workload goes through several logs and snapshots. */
const LOG_BYTES_MIN = 1_000;
const WRITER = fileURLToPath(new URL('./fixtures/file-killed-writer.js', import.meta.url));
// Hundreds of short lives of a store; a loaded machine needs some seconds for each test.
t.setTimeout(180_000);

const seed = Number(process.env['SEED'] ?? Math.floor(Math.random() * 1e9));

interface Run {
  readonly calls: readonly string[];
  readonly harmed: boolean;
  readonly acknowledged: number[];
}

/** The workload on a fresh directory up to the harm, or to its end. */
async function run(dataDir: string, harm: Harm | undefined): Promise<Run> {
  mkdirSync(dataDir, { recursive: true });
  const fileSystem = new FaultyFileSystem(dataDir, harm, seededRandom(seed + (harm?.atCall ?? 0)));
  const acknowledged: number[] = [];
  let opened: InProcess | undefined;
  try {
    opened = openInProcess(dataDir, { fileSystem, logBytesMin: LOG_BYTES_MIN });
    // A process that is gone has acknowledged nothing more.
    const note = (n: number): void => void (fileSystem.dead || acknowledged.push(n));
    await runWorkload(opened.connect(), note);
  } catch {
    // The harm; what it must leave behind is looked at by the caller.
  }
  await opened?.close();
  return { calls: fileSystem.calls, harmed: fileSystem.harmed, acknowledged };
}

/** Opens the directory again, looks for faults, writes on, and looks again after another open. */
async function faultAfter(dataDir: string, acknowledged: readonly number[]): Promise<unknown> {
  const expected = [...acknowledged];
  for (const first of [1_001, 2_001]) {
    const opened = openInProcess(dataDir, {
      fileSystem: unsyncedFileSystem,
      logBytesMin: LOG_BYTES_MIN,
    });
    const store = opened.connect();
    const fault = await findFault(store, expected);
    if (fault !== undefined) return fault;
    const strange = opened.events.filter(
      ({ level, message }) =>
        level === 'error' || (level === 'warn' && !message.startsWith('Cut off the torn end')),
    );
    if (strange.length > 0) return strange;
    await runWorkload(store, (n) => void expected.push(n), first);
    await opened.close();
  }
  return undefined;
}

async function sweep(
  t: Test,
  harmAt: (atCall: number) => Harm,
  check: (dataDir: string, run: Run) => Promise<unknown>,
): Promise<string[]> {
  t.comment(`SEED=${seed}`);
  const root = t.testdir();
  const harmedCalls: string[] = [];
  for (let atCall = 1; ; atCall += 1) {
    const dataDir = join(root, String(atCall));
    const result = await run(dataDir, harmAt(atCall));
    if (!result.harmed) break;
    const call = result.calls[atCall - 1] ?? '';
    harmedCalls.push(call);
    const fault = await check(dataDir, result);
    if (fault !== undefined) t.fail(`at call ${atCall}, ${call}: ${JSON.stringify(fault)}`);
  }
  t.comment(`${harmedCalls.length} calls: ${[...new Set(harmedCalls)].join(', ')}`);
  for (const call of [
    'create',
    'write',
    'sync',
    'syncLater',
    'rename',
    'syncDirectory',
    'unlink',
  ]) {
    t.ok(harmedCalls.includes(call), `${call} was among the calls`);
  }
  return harmedCalls;
}

const checkAfterDeath = (dataDir: string, { acknowledged }: Run): Promise<unknown> =>
  faultAfter(dataDir, acknowledged);

t.test('a crash before any system call loses nothing that was acknowledged', async (t) => {
  await sweep(t, (atCall) => ({ kind: 'die', atCall }), checkAfterDeath);
});

for (const partOfWrite of [0.5, 0.99]) {
  t.test(`a crash after ${partOfWrite} of any write leaves no commit half there`, async (t) => {
    await sweep(t, (atCall) => ({ kind: 'die', atCall, partOfWrite }), checkAfterDeath);
  });
}

t.test('a power cut at any system call loses nothing that was acknowledged', async (t) => {
  await sweep(t, (atCall) => ({ kind: 'power-cut', atCall, partOfWrite: 1 }), checkAfterDeath);
});

t.test('kill -9 of a real process at any system call loses nothing acknowledged', async (t) => {
  const root = t.testdir();
  const total = (await run(join(root, 'count'), undefined)).calls.length;
  let killed = 0;
  const kill = async (atCall: number): Promise<void> => {
    const dataDir = join(root, String(atCall));
    mkdirSync(dataDir);
    const part = atCall % 2 === 0 ? '0.5' : '0';
    const child = spawn(process.execPath, [WRITER, dataDir, String(atCall), part], {
      stdio: ['ignore', 'pipe', 'inherit'],
    });
    const [output, [, signal]] = await Promise.all([text(child.stdout), once(child, 'exit')]);
    if (signal === 'SIGKILL') killed += 1;
    const acknowledged = output
      .split('\n')
      .filter((line) => /^\d+$/.test(line))
      .map(Number);
    const fault = await faultAfter(dataDir, acknowledged);
    if (fault !== undefined) t.fail(`at call ${atCall}: ${JSON.stringify(fault)}`);
  };
  for (let atCall = 1; atCall <= total; atCall += 2) {
    await Promise.all([kill(atCall), kill(atCall + 1)]);
  }
  t.ok(killed >= total - 3, `${killed} of ${total} were killed`);
});

t.test('a system call that fails once costs at most its own commits', async (t) => {
  for (const errorCode of ['EIO', 'ENOSPC']) {
    await sweep(
      t,
      (atCall) => ({ kind: 'fail', atCall, errorCode, partOfWrite: 0.5 }),
      checkAfterDeath,
    );
  }
});
