import {
  copyFileSync,
  cpSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  renameSync,
  statSync,
  truncateSync,
  unlinkSync,
  writeFileSync,
} from 'node:fs';
import { join } from 'node:path';
import t, { type Test } from 'tap';
import { encodeLine } from '../src/storage/file/line-format.js';
import { findFault, runWorkload, STREAMS } from './fixtures/file-crash-workload.js';
import { unsyncedFileSystem } from './fixtures/file-faulty-system.js';
import { type InProcess, openInProcess } from './fixtures/file-store-in-process.js';
import { View } from './storage-contract/view.js';

const LINE_FEED = 0x0a;
/** Large enough for the whole workload in one log; small enough for several snapshots. */
const ONE_LOG = 1_000_000;
const MANY_LOGS = 1_000;

function open(dataDir: string, logBytesMin = ONE_LOG): InProcess {
  return openInProcess(dataDir, { fileSystem: unsyncedFileSystem, logBytesMin });
}

/** A directory with the workload in it; returns what was acknowledged. */
async function fill(dataDir: string, logBytesMin = ONE_LOG): Promise<number[]> {
  mkdirSync(dataDir, { recursive: true });
  const opened = open(dataDir, logBytesMin);
  const acknowledged: number[] = [];
  await runWorkload(opened.connect(), (n) => void acknowledged.push(n));
  await opened.close();
  return acknowledged;
}

/** The one file of the directory that the pattern matches, or the last of several. */
function file(dataDir: string, pattern: RegExp): string {
  return join(
    dataDir,
    readdirSync(dataDir)
      .filter((name) => pattern.test(name))
      .sort()
      .at(-1)!,
  );
}

interface Line {
  readonly number: number;
  readonly offset: number;
  readonly end: number;
}

function linesOf(bytes: Buffer): Line[] {
  const lines: Line[] = [];
  for (let offset = 0; offset < bytes.length; ) {
    const end = bytes.indexOf(LINE_FEED, offset) + 1;
    lines.push({ number: lines.length + 1, offset, end });
    offset = end;
  }
  return lines;
}

function failureOf(dataDir: string): { code?: string; message: string } | undefined {
  try {
    void open(dataDir).close();
    return undefined;
  } catch (error) {
    return error as { code?: string; message: string };
  }
}

t.test('a last line that is torn at any byte is cut off and reported', async (t) => {
  const root = t.testdir();
  const whole = join(root, 'whole');
  await fill(whole);
  const log = file(whole, /^log/);
  const bytes = readFileSync(log);
  const last = linesOf(bytes).at(-1)!;
  const previous = open(join(root, 'whole'));
  const expected = await View.replay(previous.connect(), STREAMS);
  await previous.close();
  for (let end = last.offset; end < last.end; end += 1) {
    const torn = join(root, String(end));
    mkdirSync(torn);
    writeFileSync(join(torn, 'log-0000000001.jsonl'), bytes.subarray(0, end));
    const opened = open(torn);
    const reports = opened.events.filter(({ message }) => message.startsWith('Cut off the torn'));
    const fields = reports[0]?.fields ?? {};
    const isReported =
      reports.length === 1 &&
      fields['line'] === last.number &&
      fields['offset'] === last.offset &&
      fields['bytes'] === end - last.offset &&
      fields['file'] === join(torn, 'log-0000000001.jsonl');
    // Nothing was cut off where nothing is left of the line.
    if (!(end === last.offset ? reports.length === 0 : isReported)) {
      t.fail(`torn at byte ${end}: ${JSON.stringify(opened.events)}`);
    }
    await runWorkload(opened.connect(), () => undefined, 101);
    const fault = await findFault(opened.connect(), []);
    if (fault !== undefined) t.fail(`torn at byte ${end}: ${fault}`);
    await opened.close();
  }
  t.ok(expected.bodies('b').length > 0);
  t.comment(`${last.end - last.offset} bytes`);
});

t.test('a last write of which whole sectors never reached the disk is cut off', async (t) => {
  const dataDir = t.testdir();
  const acknowledged = await fill(dataDir);
  const log = file(dataDir, /^log/);
  const sectorBytes = 512;
  const bytes = readFileSync(log);
  const lost = Buffer.from(`${'00000000'} ["${'x'.repeat(3 * sectorBytes)}"]\n`);
  const whole = Buffer.concat([bytes, lost]);
  const sector = Math.ceil(bytes.length / sectorBytes) * sectorBytes;
  whole.fill(0, sector, sector + sectorBytes);
  writeFileSync(log, whole);
  const opened = open(dataDir);
  t.equal(opened.events.length, 1);
  t.equal(await findFault(opened.connect(), acknowledged), undefined);
  await opened.close();
  t.equal(statSync(log).size, bytes.length);
});

/** Flips a bit of every byte in turn, and expects to be told where. */
async function flipEveryByte(t: Test, dataDir: string, path: string): Promise<void> {
  const bytes = readFileSync(path);
  for (const { number, offset, end } of linesOf(bytes)) {
    for (let at = offset; at < end; at += 1) {
      const flipped = Buffer.from(bytes);
      flipped[at] = (bytes[at] ?? 0) ^ (1 << (at % 8));
      writeFileSync(path, flipped);
      const failure = failureOf(dataDir);
      // A line feed that is none joins two lines: the damage is said to begin at the first.
      const where = `${path}, line ${number}, byte offset ${offset}: `;
      if (failure?.code !== 'damaged' || !failure.message.startsWith(where)) {
        t.fail(`byte ${at} of line ${number}: ${failure?.code} ${failure?.message}`);
        return;
      }
    }
  }
  writeFileSync(path, bytes);
  t.equal(failureOf(dataDir), undefined, `${bytes.length} bytes of ${path.slice(-24)}`);
}

t.test('a flipped bit anywhere in the log is refused with file, line and offset', async (t) => {
  const dataDir = t.testdir();
  await fill(dataDir);
  await flipEveryByte(t, dataDir, file(dataDir, /^log/));
});

t.test('a flipped bit anywhere in a snapshot or a closed log is refused likewise', async (t) => {
  const dataDir = t.testdir();
  await fill(dataDir, MANY_LOGS);
  await flipEveryByte(t, dataDir, file(dataDir, /^snapshot/));
  // As after a crash between a new log and its snapshot.
  const log = file(dataDir, /^log/);
  const generation = Number(/\d+/.exec(log.slice(-16))?.[0]);
  const next = log.replace(/\d{10}/, String(generation + 1).padStart(10, '0'));
  writeFileSync(next, encodeLine({ halos: 'commit-log', version: 1, generation: generation + 1 }));
  await flipEveryByte(t, dataDir, log);
});

t.test('a closed log or a snapshot that ends early is refused', async (t) => {
  const root = t.testdir();
  const whole = join(root, 'whole');
  await fill(whole, MANY_LOGS);
  for (const pattern of [/^log/, /^snapshot/]) {
    const dataDir = join(root, String(pattern).replaceAll(/\W/g, ''));
    cpSync(whole, dataDir, { recursive: true });
    const path = file(dataDir, pattern);
    if (path.includes('log-')) {
      const next = path.replace(/\d{10}/, (digits) => String(Number(digits) + 1).padStart(10, '0'));
      copyFileSync(path, next);
    }
    const bytes = readFileSync(path);
    for (const end of [bytes.length - 1, linesOf(bytes).at(-1)!.offset, 5, 0]) {
      if (path.includes('log-') && end === linesOf(bytes).at(-1)!.offset) continue;
      writeFileSync(path, bytes.subarray(0, end));
      t.equal(failureOf(dataDir)?.code, 'damaged', `${path.slice(-24)} of ${end} bytes`);
    }
  }
});

t.test('a snapshot with anything behind its end is refused', async (t) => {
  const dataDir = t.testdir();
  await fill(dataDir, MANY_LOGS);
  const path = file(dataDir, /^snapshot/);
  const bytes = readFileSync(path);
  for (const more of ['x', '\n', encodeLine([['kd', 'k']]), '\0']) {
    writeFileSync(path, Buffer.concat([bytes, Buffer.from(more)]));
    t.equal(failureOf(dataDir)?.code, 'damaged', JSON.stringify(more));
  }
});

t.test('a missing log is refused, and named', async (t) => {
  const dataDir = t.testdir();
  await fill(dataDir, MANY_LOGS);
  const log = file(dataDir, /^log/);
  renameSync(log, `${log}.away`);
  const failure = failureOf(dataDir);
  t.equal(failure?.code, 'damaged');
  t.match(failure?.message, log);
  renameSync(`${log}.away`, log.replace(/\d{10}/, '0000000099'));
  t.equal(failureOf(dataDir)?.code, 'damaged', 'a later log does not stand in for it');
});

t.test('a file of another layout, or of another generation, is not misread', async (t) => {
  const dataDir = t.testdir();
  await fill(dataDir);
  const log = file(dataDir, /^log/);
  const bytes = readFileSync(log);
  const [header] = linesOf(bytes);
  const withHeader = (value: unknown): void =>
    writeFileSync(
      log,
      Buffer.concat([Buffer.from(encodeLine(value)), bytes.subarray(header!.end)]),
    );
  withHeader({ halos: 'commit-log', version: 2, generation: 1 });
  t.equal(failureOf(dataDir)?.code, 'incompatible');
  withHeader({ halos: 'commit-log', version: 1, generation: 2 });
  t.equal(failureOf(dataDir)?.code, 'damaged');
  withHeader({ halos: 'snapshot', version: 1, generation: 1 });
  t.equal(failureOf(dataDir)?.code, 'damaged');
});

t.test('what a crash left over is removed, and nothing else', async (t) => {
  const dataDir = t.testdir();
  const acknowledged = await fill(dataDir, MANY_LOGS);
  const kept = ['token', 'log-1.txt', 'chain/notes'];
  writeFileSync(join(dataDir, 'snapshot-0000000099.jsonl.tmp'), 'half');
  writeFileSync(join(dataDir, 'log-0000000099.jsonl.tmp'), 'half');
  writeFileSync(join(dataDir, 'log-0000000001.jsonl'), 'replaced by the snapshot');
  for (const name of kept) writeFileSync(join(dataDir, name), 'mine');
  const opened = open(dataDir, ONE_LOG);
  t.equal(await findFault(opened.connect(), acknowledged), undefined);
  await opened.close();
  t.same(
    [...readdirSync(dataDir), 'chain/notes']
      .filter((name) => name !== 'chain')
      .filter((name) => !/^(log|snapshot)-\d{10}\.jsonl$/.test(name))
      .sort(),
    kept.toSorted(),
  );
  t.notOk(readdirSync(dataDir).includes('log-0000000001.jsonl'));
});

t.test('an empty log is not a new store', async (t) => {
  const dataDir = t.testdir();
  await fill(dataDir);
  truncateSync(file(dataDir, /^log/), 0);
  t.equal(failureOf(dataDir)?.code, 'damaged');
  unlinkSync(file(dataDir, /^log/));
  t.equal(failureOf(dataDir), undefined, 'an empty directory is');
});
