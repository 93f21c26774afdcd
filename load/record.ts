/**
 * Appends the result of a run to the table of its profile in `docs/performance.md`, so that no
 * figure there is typed by hand. Everything between the two markers is generated.
 */
import { readFileSync, writeFileSync } from 'node:fs';
import { figure } from './figures.js';
import type { Profile } from './profile-list.js';
import type { LoadReport, Machine } from './report.js';

/** Below the folder that `npm run` starts everything in. */
export const RECORD_FILE = 'docs/performance.md';
const BEGIN = '<!-- runs: written by `npm run load -- … --record` -->';
const END = '<!-- end of runs -->';

/** A column of a profile's table: its title, and where its figure is. */
type RecordColumn = readonly [title: string, of: (report: LoadReport) => number | undefined];

const fact =
  (name: string): RecordColumn[1] =>
  ({ facts }) =>
    facts[name];
const halos =
  (name: 'requestsPerSecond' | 'p95Ms' | 'p99Ms' | 'serverCpuUs'): RecordColumn[1] =>
  ({ measured }) =>
    measured[0]?.[name];
const kind =
  (name: string, figureName: 'p50Ms' | 'p95Ms' | 'p99Ms'): RecordColumn[1] =>
  ({ kinds }) =>
    kinds?.find((row) => row.kind === name)?.[figureName];
const otherCores: RecordColumn = [
  'others, cores',
  ({ measured }) => Math.max(...measured.map((row) => row.otherCores)),
];

const COLUMNS: Readonly<Record<Profile, readonly RecordColumn[]>> = {
  'device-auth': [
    ['requests/s', halos('requestsPerSecond')],
    ['p95 ms', halos('p95Ms')],
    ['p99 ms', halos('p99Ms')],
    ['CPU µs', halos('serverCpuUs')],
    ['of bare', fact('cpuOfBare')],
    ['of look-up', fact('cpuOfLookUp')],
    ['hop and catch-up µs', fact('hopAndCatchUpUs')],
    ['Fastify, of Halos', fact('fastifyCpuOfHalos')],
    otherCores,
  ],
  'device-scale': [
    ['CPU of many, of few', fact('cpuRatio')],
    ['replayed/s', fact('replayedPerSecond')],
    ['bytes per device', fact('bytesPerDevice')],
    otherCores,
  ],
  'device-auth-churn': [
    ['sent/s', fact('sentPerSecond')],
    ['p50 ms', kind('all', 'p50Ms')],
    ['p95 ms', kind('all', 'p95Ms')],
    ['p99 ms', kind('all', 'p99Ms')],
    ['authenticate p99 ms', kind('authenticate', 'p99Ms')],
    ['enrol p99 ms', kind('enrol', 'p99Ms')],
    ['revoke p99 ms', kind('revoke', 'p99Ms')],
    ['late p99 ms', fact('generatorLateP99Ms')],
  ],
  overload: [
    ['serves/s', fact('capacityPerSecond')],
    ['offered/s', fact('offeredPerSecond')],
    ['accepted/s', fact('acceptedPerSecond')],
    ['accepted p99 ms', fact('acceptedP99Ms')],
    ['refused p99 ms', fact('refusedP99Ms')],
    ['revocation max ms', fact('revocationMaxMs')],
    ['RSS before MB', fact('rssBeforeMb')],
    ['RSS peak MB', fact('rssPeakMb')],
    ['late p99 ms', fact('generatorLateP99Ms')],
  ],
  'kill-fanout': [
    ['same p50 ms', fact('nearP50Ms')],
    ['same p99 ms', fact('nearP99Ms')],
    ['other p99 ms', fact('farP99Ms')],
    ['bare p50 ms', fact('bareP50Ms')],
    ['bare p99 ms', fact('bareP99Ms')],
    ['server CPU ms per kill', fact('serverCpuMsPerKill')],
    ['clients’ CPU ms per kill', fact('clientCpuMsPerKill')],
  ],
  'reconnect-storm': [
    ['cut, back ms', fact('cutBackMs')],
    ['queries per socket', fact('cutQueriesPerSocket')],
    ['server CPU ms', fact('cutServerCpuMs')],
    ['clients’ CPU ms', fact('cutClientCpuMs')],
    ['restart, down ms', fact('restartDownMs')],
    ['restart, back ms', fact('restartBackMs')],
  ],
  'idle-streams': [
    ['streams', fact('streams')],
    ['cores without', fact('coresWithout')],
    ['cores with', fact('coresWith')],
    ['cores more', fact('coresMore')],
    ['MB without', fact('rssWithoutMb')],
    ['MB more', fact('rssMoreMb')],
    ['machine’s cores', fact('machineCoresWith')],
  ],
  decisions: [
    ['p50 ms', kind('all', 'p50Ms')],
    ['p95 ms', kind('all', 'p95Ms')],
    ['p99 ms', kind('all', 'p99Ms')],
    ['saturated/s', fact('saturatedPerSecond')],
    ['its p99 ms', fact('saturatedP99Ms')],
    ['CPU µs', fact('serverCpuUs')],
    ['db µs', fact('databaseCpuUs')],
    ['chained after ms', fact('chainedAfterMs')],
  ],
  enqueue: [
    ['durable/s', fact('lanePerSecond')],
    ['p50 ms', fact('laneP50Ms')],
    ['p95 ms', fact('laneP95Ms')],
    ['p99 ms', fact('laneP99Ms')],
    ['INSERT/s', fact('baselinePerSecond')],
    ['its p95 ms', fact('baselineP95Ms')],
    ['of INSERT', fact('ofBaseline')],
  ],
  verify: [
    ['records', fact('records')],
    ['verified/s', fact('verifiedPerSecond')],
    ['raw/s', fact('rawPerSecond')],
    ['of raw', fact('ofRaw')],
    ['CPU µs', fact('cpuUs')],
    ['MB', fact('rssMb')],
  ],
  'chain-drain': [
    ['drained/s', fact('drainedPerSecond')],
    ['CPU µs', fact('drainCpuUs')],
    ['db µs', fact('databaseCpuUs')],
    ['head lock/s', fact('headLockPerSecond')],
    ['of head lock', fact('ofHeadLock')],
    ['burst ms', fact('burstMs')],
    ['lag at its end', fact('lagMax')],
    ['lag gone ms', fact('lagGoneMs')],
  ],
};

/** Appends to the file; throws when it lacks the markers. */
export function recordRun(report: LoadReport, argv: readonly string[]): void {
  writeFileSync(RECORD_FILE, withRun(readFileSync(RECORD_FILE, 'utf8'), report, argv));
}

/** The text with one row more. */
export function withRun(text: string, report: LoadReport, argv: readonly string[]): string {
  const [begin, end] = [text.indexOf(BEGIN), text.indexOf(END)];
  if (begin < 0 || end < begin) throw new Error(`${RECORD_FILE} lacks the markers of its runs.`);
  const runs = text.slice(begin + BEGIN.length, end);
  const heading = `### ${report.profile}\n`;
  const row = `${rowOf(report, argv)}\n`;
  const at = runs.indexOf(heading);
  let after: string;
  if (at < 0) {
    after = `${runs.trimEnd()}\n\n${heading}\n${headOf(report)}\n${row}\n`;
  } else {
    const next = runs.indexOf('\n### ', at);
    const section = runs.slice(at, next < 0 ? runs.length : next).trimEnd();
    const rest = next < 0 ? '\n' : runs.slice(next);
    after = `${runs.slice(0, at)}${section}\n${row}${rest}`;
  }
  return text.slice(0, begin + BEGIN.length) + after + text.slice(end);
}

function headOf({ profile }: LoadReport): string {
  const titles = ['date', 'options', ...titlesOf(profile), 'result', 'load', 'machine'];
  return `| ${titles.join(' | ')} |\n|${'---|'.repeat(titles.length)}`;
}

function titlesOf(profile: string): string[] {
  return columnsOf(profile).map(([title]) => title);
}

function columnsOf(profile: string): readonly RecordColumn[] {
  return (COLUMNS as Readonly<Record<string, readonly RecordColumn[]>>)[profile] ?? [];
}

function rowOf(report: LoadReport, argv: readonly string[]): string {
  const given = argv.filter((argument) => argument !== '--record' && argument !== report.profile);
  const missed = report.verdicts.filter(({ met }) => !met).map(({ what }) => what);
  const cells = [
    report.startedAt.slice(0, 16).replace('T', ' '),
    given.length === 0 ? '' : `\`${given.join(' ')}\``,
    ...columnsOf(report.profile).map(([, of]) => figure(of(report) ?? Number.NaN)),
    missed.length === 0 ? 'met' : `missed: ${missed.join(', ')}`,
    figure(report.machine.loadAverage),
    machineText(report.machine),
  ];
  return `| ${cells.join(' | ')} |`;
}

function machineText(machine: Machine): string {
  const { cores, processor, node, postgres, fsync, postgresFsync } = machine;
  const disk = postgresFsync ?? fsync;
  return [
    `${cores} × ${processor}`,
    `Node ${node.slice(1)}`,
    ...(postgres === '' ? [] : [`PostgreSQL ${postgres}`]),
    `fsync ${figure(disk.p50Ms)} ms, p99 ${figure(disk.p99Ms)}`,
  ].join(', ');
}
