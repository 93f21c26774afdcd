import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { chmodSync, mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import t, { type Test } from 'tap';
import type { LoadReport } from '../load/report.js';

// Each run starts several servers, on a machine that may run other tests.
t.setTimeout(180_000);

interface Ended {
  readonly code: number;
  readonly stdout: string;
  readonly stderr: string;
}

/** A folder for everything that a run writes; PostgreSQL's user must be able to enter it. */
function folder(t: Test): string {
  const made = mkdtempSync(join(tmpdir(), 'halos-load-test-'));
  chmodSync(made, 0o755);
  t.teardown(() => rmSync(made, { recursive: true, force: true }));
  return made;
}

async function run(directory: string, ...args: string[]): Promise<Ended> {
  const script = fileURLToPath(new URL('../load/run.js', import.meta.url));
  const child = spawn(process.execPath, [script, ...args], {
    // The run's own directory is made below this one, so that what it leaves can be seen.
    env: { ...process.env, TMPDIR: directory },
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  const output = { stdout: '', stderr: '' };
  child.stdout.on('data', (chunk) => (output.stdout += String(chunk)));
  child.stderr.on('data', (chunk) => (output.stderr += String(chunk)));
  const [code] = (await once(child, 'close')) as [number];
  return { code, ...output };
}

function reportOf(file: string): LoadReport {
  return JSON.parse(readFileSync(file, 'utf8')) as LoadReport;
}

t.test('wrong usage exits with 2 and starts nothing', async (t) => {
  const { code, stderr } = await run(folder(t), 'device-auth', '--replicas', '2');
  t.equal(code, 2);
  t.match(stderr, /several replicas need --backend postgres/);
});

t.test('a short run on files measures all four servers and leaves nothing behind', async (t) => {
  const directory = folder(t);
  const json = join(directory, 'report.json');
  const { code, stdout, stderr } = await run(
    directory,
    ...['device-auth', '--duration', '1', '--rounds', '1', '--devices', '50'],
    ...['--connections', '8', '--json', json],
  );
  t.equal(code, 0, stdout + stderr);
  const report = reportOf(json);
  t.ok(report.ok);
  t.same(
    report.measured.map(({ name, wrong, errors }) => ({ name, wrong, errors })),
    ['halos', 'bare-uws', 'bare-look-up', 'fastify-pg'].map((name) => ({
      name,
      wrong: 0,
      errors: 0,
    })),
  );
  for (const { name, answered, serverCpuUs, p95Ms, rssBytes } of report.measured) {
    t.ok(answered > 100 && serverCpuUs > 1 && p95Ms > 0 && rssBytes > 1e6, `${name} was measured`);
    t.match(stdout, name);
  }
  t.ok(report.facts['requestsPerBatch']! >= 1, 'the server said how large its batches were');
  t.ok(report.machine.fsync.p99Ms > 0 && report.machine.postgresFsync!.p99Ms > 0);
  t.same(
    readdirSync(directory).filter((name) => name.startsWith('halos-load')),
    [],
  );
});

t.test('two replicas on one database answer each other’s devices', async (t) => {
  const directory = folder(t);
  const json = join(directory, 'report.json');
  const { code, stdout, stderr } = await run(
    directory,
    ...['device-auth', '--backend', 'postgres', '--replicas', '2', '--duration', '1'],
    ...['--rounds', '1', '--devices', '50', '--connections', '8', '--json', json],
  );
  t.equal(code, 0, stdout + stderr);
  t.ok(reportOf(json).measured.every(({ answered }) => answered > 100));
});

t.test('devices written into the store directly are what a server serves', async (t) => {
  for (const backend of ['file', 'postgres']) {
    const directory = folder(t);
    const json = join(directory, 'report.json');
    const { code, stdout, stderr } = await run(
      directory,
      ...['device-scale', '--backend', backend, '--duration', '1', '--rounds', '1'],
      ...['--devices', '12345', '--connections', '8', '--json', json],
    );
    t.equal(code, 0, stdout + stderr);
    const { measured, facts } = reportOf(json);
    t.ok(measured.every(({ answered, wrong }) => answered > 100 && wrong === 0));
    const { replayedPerSecond, startedPerSecond, cpuRatio } = facts;
    // With so few devices the difference of two starts may come out either way.
    t.ok(replayedPerSecond !== undefined && startedPerSecond! > 0 && cpuRatio! > 0);
  }
});

t.test('devices come and go on two replicas without a wrong answer', async (t) => {
  const directory = folder(t);
  const json = join(directory, 'report.json');
  const { code, stdout, stderr } = await run(
    directory,
    ...['device-auth-churn', '--rate', '300', '--duration', '2', '--devices', '40'],
    ...['--json', json],
  );
  t.equal(code, 0, stdout + stderr);
  const { kinds, facts } = reportOf(json);
  t.ok(facts['sent']! >= 600 && kinds!.some(({ kind }) => kind === 'enrol'));
  t.match(stderr, /seed \d+/);
});

t.test('an overload is offered, and what came of it is reported', async (t) => {
  const directory = folder(t);
  const json = join(directory, 'report.json');
  const { code, stdout, stderr } = await run(
    directory,
    ...['overload', '--duration', '1', '--devices', '40', '--json', json],
  );
  t.equal(code, 0, stdout + stderr);
  const { facts } = reportOf(json);
  t.ok(facts['capacityPerSecond']! > 100 && facts['acceptedPerSecond']! > 100);
  t.ok(facts['revocations']! > 0 && facts['rssPeakMb']! >= facts['rssBeforeMb']!);
});

t.test('evidence is enqueued and chained, and the chain verifies', async (t) => {
  const directory = folder(t);
  const json = join(directory, 'report.json');
  const enqueued = await run(directory, 'enqueue', '--duration', '1', '--json', json);
  t.equal(enqueued.code, 0, enqueued.stdout + enqueued.stderr);
  t.ok(reportOf(json).facts['lanePerSecond']! > 100);
  const drained = await run(directory, 'chain-drain', '--duration', '1', '--json', json);
  t.equal(drained.code, 0, drained.stdout + drained.stderr);
  const { facts, verdicts } = reportOf(json);
  t.ok(facts['drainedPerSecond']! > 100 && facts['headLockPerSecond']! > 10);
  t.ok(verdicts.some(({ what, met }) => what === 'chains that do not verify' && met));
});

t.test('streams that are idle, and streams that come back, are measured', async (t) => {
  const directory = folder(t);
  const json = join(directory, 'report.json');
  const idle = await run(
    directory,
    ...['idle-streams', '--streams', '60', '--duration', '1', '--json', json],
  );
  t.equal(idle.code, 0, idle.stdout + idle.stderr);
  t.match(reportOf(json).facts, { streams: 60 });
  const storm = await run(directory, 'reconnect-storm', '--streams', '60', '--json', json);
  t.equal(storm.code, 0, storm.stdout + storm.stderr);
  const { facts } = reportOf(json);
  t.ok(facts['cutBackMs']! > 0 && facts['restartDownMs']! > 0 && facts['restartBackMs']! > 0);
});
