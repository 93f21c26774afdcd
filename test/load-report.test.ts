import { readdirSync } from 'node:fs';
import t from 'tap';
import { deviceAuthRatios, deviceAuthVerdicts } from '../load/device-auth-targets.js';
import { fsyncTimes } from '../load/disk.js';
import type { LoadOptions } from '../load/options.js';
import { isOk, type LoadReport, machineFacts, reportText, verdict } from '../load/report.js';
import { cpuRatio, type Measured } from '../load/rounds.js';

const options: LoadOptions = {
  profile: 'device-auth',
  backend: 'file',
  replicas: 1,
  connections: 64,
  durationSeconds: 9,
  rounds: 3,
  devices: 1000,
  generator: 'autocannon',
  record: false,
  enforce: false,
  serverArgs: [],
};

function measured(name: string, cpuUs: number, changes: Partial<Measured> = {}): Measured {
  return {
    name,
    answered: 300_000,
    errors: 0,
    wrong: 0,
    firstWrong: '',
    requestsPerSecond: 100_000,
    p50Ms: 1,
    p95Ms: 2,
    p99Ms: 3,
    maxMs: 20,
    serverCpuUs: cpuUs,
    databaseCpuUs: 0,
    generatorCpuUs: 10,
    serverCores: 1,
    generatorCores: 1,
    otherCores: 0.25,
    rssBytes: 100e6,
    rssPeakBytes: 120e6,
    roundsCpuUs: [cpuUs, cpuUs, cpuUs],
    ...changes,
  };
}

function verdictsFor(halos: Partial<Measured>, changes: Partial<LoadOptions> = {}): string[] {
  const all = [
    measured('halos', 10, halos),
    measured('bare-uws', 6),
    measured('bare-look-up', 7),
    measured('fastify-pg', 60),
  ];
  return deviceAuthVerdicts(all, { ...options, ...changes })
    .filter(({ met }) => !met)
    .map(({ what, mandatory }) => `${mandatory ? 'mandatory' : 'target'}: ${what}`);
}

t.test('a run as wanted meets every verdict', async (t) => {
  t.same(verdictsFor({}), []);
});

t.test('a p95 of 50 ms, a wrong answer and an error each fail the run', async (t) => {
  t.same(verdictsFor({ p95Ms: 50, p99Ms: 9 }), ['mandatory: halos p95']);
  t.same(verdictsFor({ p95Ms: 49.99, p99Ms: 9 }), []);
  t.same(verdictsFor({ wrong: 1 }), ['mandatory: halos wrong answers']);
  t.same(verdictsFor({ errors: 1 }), ['mandatory: halos errors']);
  const all = [
    measured('halos', 10),
    measured('bare-uws', 6, { wrong: 1 }),
    measured('bare-look-up', 7),
    measured('fastify-pg', 60),
  ];
  t.notOk(isOk(deviceAuthVerdicts(all, options), false), 'a wrong baseline compares nothing');
});

t.test('nothing answered is no success', async (t) => {
  const nan = [Number.NaN, Number.NaN, Number.NaN];
  t.not(verdictsFor({ answered: 0, roundsCpuUs: nan }).length, 0);
  const all = [
    measured('halos', 10, { answered: 0 }),
    measured('bare-uws', 6),
    measured('bare-look-up', 7),
    measured('fastify-pg', 60),
  ];
  t.notOk(isOk(deviceAuthVerdicts(all, options), false));
});

t.test('the ratio to the limit depends on backend and connections', async (t) => {
  const misses = (ratio: number, changes: Partial<LoadOptions>): boolean => {
    const cpuUs = 6 * ratio;
    const halos = { serverCpuUs: cpuUs, roundsCpuUs: [cpuUs, cpuUs, cpuUs] };
    return verdictsFor(halos, changes).includes('target: CPU of bare uWebSockets.js');
  };
  const cases: readonly (readonly [limit: number, changes: Partial<LoadOptions>])[] = [
    [2.1, { backend: 'file' }],
    [2.5, { backend: 'postgres' }],
    [2.0, { backend: 'postgres', connections: 256 }],
  ];
  for (const [limit, changes] of cases) {
    t.notOk(misses(limit - 0.01, changes), `${limit} is met`);
    t.ok(misses(limit + 0.01, changes), `${limit} is missed`);
  }
});

t.test('the targets are for one saturated server with 64 or 256 connections', async (t) => {
  const bad = { p99Ms: 20, roundsCpuUs: [100, 100, 100], serverCpuUs: 100 };
  t.equal(verdictsFor(bad).length, 3);
  t.same(verdictsFor(bad, { connections: 63 }), []);
  t.same(verdictsFor(bad, { connections: 256 }), [], 'none for files');
  t.same(verdictsFor(bad, { rate: 1000 }), []);
  t.same(verdictsFor(bad, { backend: 'postgres', replicas: 2 }), []);
});

t.test('a missed target fails a run only when it is enforced', async (t) => {
  const verdicts = [verdict('a', 3, ['at most', 2, '']), verdict('b', 1, ['at most', 2, ''], true)];
  t.ok(isOk(verdicts, false));
  t.notOk(isOk(verdicts, true));
  t.notOk(isOk([verdict('b', 3, ['at most', 2, ''], true)], false));
  t.notOk(isOk([verdict('b', Number.NaN, ['at least', 2, ''], true)], false), 'no figure, no pass');
});

t.test('a ratio is the median of the rounds’ ratios, so that drift cancels out', async (t) => {
  const slowing = measured('halos', 0, { roundsCpuUs: [10, 20, 40] });
  const baseline = measured('bare-uws', 0, { roundsCpuUs: [5, 10, 20] });
  t.equal(cpuRatio(slowing, baseline), 2);
});

t.test(
  'the report names what people need in lines that fit, and nothing of the machine’s name',
  async (t) => {
    const all = [
      measured('halos', 10, { wrong: 2, firstWrong: 'status 500' }),
      measured('bare-uws', 6),
      measured('bare-look-up', 7),
      measured('fastify-pg', 60),
    ];
    const verdicts = deviceAuthVerdicts(all, options);
    const report: LoadReport = {
      profile: 'device-auth',
      startedAt: '2026-01-01T00:00:00.000Z',
      options,
      machine: await machineFacts(t.testdir({})),
      kinds: [{ kind: 'enrol', answered: 5, p50Ms: 1, p95Ms: 2, p99Ms: 3, maxMs: 4.5 }],
      measured: all,
      facts: { somethingPerSecond: 123_456 },
      verdicts,
      ok: isOk(verdicts, false),
    };
    const text = reportText(report);
    for (const line of text.split('\n'))
      t.ok(line.length <= 100, `${line.length} columns: ${line}`);
    for (const wanted of [
      'req/s',
      'p95',
      'halos',
      'fastify-pg',
      '1.67 times',
      '0.25 cores',
      'load average',
      'fsync of 4 KiB',
      'enrol',
      'FAILED',
    ]) {
      t.match(text, wanted);
    }
    t.match(text, 'first wrong answer of halos: status 500');
    t.match(text, 'somethingPerSecond: 123456');
    t.same(Object.keys(report.machine).sort(), [
      'architecture',
      'cores',
      'fsync',
      'kernel',
      'loadAverage',
      'memoryBytes',
      'node',
      'postgres',
      'processor',
    ]);
  },
);

t.test('what the hop and the catch-up cost is what Halos costs beyond the look-up', async (t) => {
  const all = [
    measured('halos', 10),
    measured('bare-uws', 5),
    measured('bare-look-up', 8),
    measured('fastify-pg', 60),
  ];
  const ratios = deviceAuthRatios(all);
  t.match(ratios, { cpuOfBare: 2, cpuOfLookUp: 1.25, hopAndCatchUpUs: 2 });
});

t.test('the time of an fsync is measured on a file that is gone afterwards', async (t) => {
  const directory = t.testdir({});
  const { p50Ms, p99Ms } = fsyncTimes(directory);
  t.ok(p50Ms > 0 && p99Ms >= p50Ms && p99Ms < 60_000, `${p50Ms} ms, p99 ${p99Ms} ms`);
  t.same(readdirSync(directory), []);
  t.throws(() => fsyncTimes(`${directory}/absent`), { code: 'ENOENT' });
});
