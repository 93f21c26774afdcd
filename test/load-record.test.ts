import { readFileSync } from 'node:fs';
import t from 'tap';
import { PROFILES } from '../load/profile-list.js';
import { RECORD_FILE, withRun } from '../load/record.js';
import type { LoadReport } from '../load/report.js';

const BEFORE = [
  '# Performance',
  '',
  '<!-- runs: written by `npm run load -- … --record` -->',
  '',
  '<!-- end of runs -->',
  '',
  'After.',
  '',
].join('\n');

function report(profile: LoadReport['options']['profile'], streams: number): LoadReport {
  return {
    profile,
    startedAt: '2026-01-02T03:04:05.678Z',
    options: {
      profile,
      backend: 'file',
      replicas: 1,
      connections: 64,
      durationSeconds: 1,
      rounds: 1,
      devices: 1,
      generator: 'autocannon',
      record: true,
      enforce: false,
      serverArgs: [],
    },
    machine: {
      cores: 2,
      processor: 'Some CPU',
      architecture: 'x64',
      memoryBytes: 1,
      kernel: '6.1',
      node: 'v20.1.0',
      postgres: '18.4',
      loadAverage: 0.5,
      fsync: { p50Ms: 1, p99Ms: 2 },
      postgresFsync: { p50Ms: 3, p99Ms: 4 },
    },
    measured: [],
    facts: { streams, coresWithout: 0.0125, seed: 1 },
    verdicts: [
      {
        what: 'one',
        measured: 1,
        bound: 'below',
        limit: 1,
        unit: '',
        met: false,
        mandatory: false,
      },
      { what: 'two', measured: 0, bound: 'below', limit: 1, unit: '', met: true, mandatory: false },
    ],
    ok: true,
  };
}

t.test('each profile has a table of its own, and each run a row at its end', async (t) => {
  const first = withRun(BEFORE, report('idle-streams', 1), ['idle-streams', '--record']);
  const other = withRun(first, report('overload', 2), ['overload', '--record', '--rate', '5']);
  const third = withRun(other, report('idle-streams', 3), ['idle-streams', '--record']);
  const lines = third.split('\n');
  t.same(
    lines.filter((line) => line.startsWith('#')),
    ['# Performance', '### idle-streams', '### overload'],
  );
  const rows = lines.filter((line) => line.startsWith('| 2026-01-02 03:04 |'));
  t.equal(rows.length, 3);
  t.match(rows[0], '| 1 | 0.013 |');
  t.match(rows[1], '| 3 | 0.013 |', 'the second run of a profile stands below its first');
  t.match(rows[2], '| `--rate 5` |');
  t.match(rows[0], 'missed: one |');
  t.match(rows[0], '2 × Some CPU, Node 20.1.0, PostgreSQL 18.4, fsync 3 ms, p99 4');
  const columns = (line: string | undefined): number => (line ?? '').split(' | ').length;
  const head = lines.findIndex((line) => line.startsWith('| date'));
  t.equal(columns(lines[head]), columns(rows[0]));
  t.ok(third.startsWith('# Performance\n') && third.endsWith('\nAfter.\n'), 'the rest is kept');
});

t.test('a file without the markers is left alone', async (t) => {
  t.throws(() => withRun('# Performance\n', report('overload', 1), []), /lacks the markers/);
});

t.test('the page that runs are recorded in has the markers', async (t) => {
  const text = readFileSync(RECORD_FILE, 'utf8');
  for (const { name } of PROFILES) withRun(text, report(name, 1), [name]);
  t.pass('a row fits for every profile');
});
