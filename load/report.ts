/** What a load run says in the end: a table for people, and the same as JSON. */
import { arch, cpus, loadavg, release, totalmem } from 'node:os';
import type { LoadDatabases } from './databases.js';
import { type FsyncTimes, fsyncTimes } from './disk.js';
import { figure, table } from './figures.js';
import type { LoadOptions } from './options.js';
import type { Measured } from './rounds.js';
import type { RunContext } from './run-context.js';

/** Something that was wanted of a figure, and whether it held. */
export interface Verdict {
  readonly what: string;
  readonly measured: number;
  /** 'below' excludes the limit itself. */
  readonly bound: 'at most' | 'at least' | 'below';
  readonly limit: number;
  readonly unit: string;
  readonly met: boolean;
  /** A miss fails the run even without `--enforce`. */
  readonly mandatory: boolean;
}

export interface Machine {
  readonly cores: number;
  readonly processor: string;
  readonly architecture: string;
  readonly memoryBytes: number;
  readonly kernel: string;
  readonly node: string;
  /** '' in a run without a database. */
  readonly postgres: string;
  /** Processes that wanted a core in the last minute, those of the run and all others. */
  readonly loadAverage: number;
  /** Of the disk on which Halos would keep its files. */
  readonly fsync: FsyncTimes;
  /** Of the disk with PostgreSQL's; absent without a database. */
  readonly postgresFsync?: FsyncTimes;
}

/** Answers of one kind in an open loop: latencies count from when the request was due. */
export interface KindMeasured {
  readonly kind: string;
  readonly answered: number;
  readonly p50Ms: number;
  readonly p95Ms: number;
  readonly p99Ms: number;
  readonly maxMs: number;
}

export interface LoadReport {
  readonly profile: string;
  readonly startedAt: string;
  readonly options: LoadOptions;
  readonly machine: Machine;
  readonly measured: readonly Measured[];
  /** By kind of request, in profiles that send several. */
  readonly kinds?: readonly KindMeasured[];
  /** Figures that belong to no single server, by name with the unit last. */
  readonly facts: Readonly<Record<string, number>>;
  readonly verdicts: readonly Verdict[];
  /** Every mandatory verdict was met, and with `--enforce` every other one. */
  readonly ok: boolean;
}

export function verdict(
  what: string,
  measured: number,
  [bound, limit, unit]: readonly [Verdict['bound'], number, string],
  mandatory = false,
): Verdict {
  const met =
    bound === 'at most'
      ? measured <= limit
      : bound === 'at least'
        ? measured >= limit
        : measured < limit;
  return { what, measured, bound, limit, unit, met, mandatory };
}

/** What fails every run: an answer that is wrong or missing, an error, Halos too slow. */
export function mandatoryVerdicts(measured: readonly Measured[]): Verdict[] {
  return measured.flatMap(({ name, answered, wrong, errors, p95Ms }) => [
    verdict(`${name} answers`, answered, ['at least', 1, ''], true),
    verdict(`${name} wrong answers`, wrong, ['at most', 0, ''], true),
    verdict(`${name} errors`, errors, ['at most', 0, ''], true),
    ...(name.startsWith(HALOS)
      ? [verdict(`${name} p95`, p95Ms, ['below', P95_LIMIT_MS, ' ms'], true)]
      : []),
  ]);
}

/** How the names of what is under test begin; the baselines may be as slow as they are. */
export const HALOS = 'halos';
/** The slowest p95 with which a gateway still asks for every request that it lets through. */
const P95_LIMIT_MS = 50;

/** What a profile found out, made whole with the facts of its run. */
export async function reportOf(
  options: LoadOptions,
  context: Pick<RunContext, 'directory' | 'startedAt'>,
  databases: LoadDatabases | undefined,
  found: Pick<LoadReport, 'facts' | 'verdicts'> & Partial<Pick<LoadReport, 'measured' | 'kinds'>>,
): Promise<LoadReport> {
  return {
    profile: options.profile,
    startedAt: context.startedAt,
    options,
    machine: await machineFacts(context.directory, databases),
    measured: [],
    ...found,
    ok: isOk(found.verdicts, options.enforce),
  };
}

/**
 * The facts of the machine that figures depend on; nothing that would name it. Appends to a file in
 * `directory` and in the database's, so it is for the time when nothing is measured.
 */
export async function machineFacts(directory: string, databases?: LoadDatabases): Promise<Machine> {
  const all = cpus();
  return {
    cores: all.length,
    processor: all[0]?.model.trim() ?? 'unknown',
    architecture: arch(),
    memoryBytes: totalmem(),
    kernel: release().split('-')[0] ?? '',
    node: process.version,
    postgres: (await databases?.version()) ?? '',
    loadAverage: loadavg()[0] ?? Number.NaN,
    fsync: fsyncTimes(directory),
    ...(databases === undefined ? {} : { postgresFsync: fsyncTimes(databases.dataDirectory) }),
  };
}

export function isOk(verdicts: readonly Verdict[], enforce: boolean): boolean {
  return verdicts.every(({ met, mandatory }) => met || !(mandatory || enforce));
}

/** The report as lines of at most 100 columns. */
export function reportText(report: LoadReport): string {
  return [
    ...settingLines(report),
    ...machineLines(report.machine),
    '',
    ...serverTable(report.measured),
    ...kindTable(report.kinds ?? []),
    '',
    ...Object.entries(report.facts).map(([name, value]) => `${name}: ${figure(value)}`),
    ...report.verdicts.map(verdictLine),
    ...report.measured
      .filter(({ firstWrong }) => firstWrong !== '')
      .map(({ name, firstWrong }) => `first wrong answer of ${name}: ${firstWrong}`),
    report.ok ? 'ok' : 'FAILED',
  ].join('\n');
}

function settingLines(report: LoadReport): string[] {
  const { profile, options, startedAt } = report;
  const rate = options.rate === undefined ? 'as fast as answered' : `${options.rate} requests/s`;
  const replicas = options.replicas === 1 ? '' : `, ${options.replicas} replicas`;
  const begin = `${profile} on ${options.backend}${replicas}`;
  if (options.streams !== undefined) return [`${begin}, ${options.streams} streams`, startedAt];
  if (options.devices === 0) {
    const clients = `${options.connections} clients, ${options.rounds} rounds`;
    return [`${begin}, ${clients}, ${options.durationSeconds} s each`, startedAt];
  }
  if (report.measured.length === 0) {
    return [`${begin}, ${options.devices} devices, ${options.durationSeconds} s`, startedAt];
  }
  return [
    `${begin}, ${options.devices} devices, ${options.connections} connections, ${rate}`,
    `${options.rounds} rounds, ${options.durationSeconds} s for each server; ` +
      `${options.generator}; ${startedAt}`,
  ];
}

function machineLines(machine: Machine): string[] {
  const postgres = machine.postgres === '' ? '' : `, PostgreSQL ${machine.postgres}`;
  const disk = ({ p50Ms, p99Ms }: FsyncTimes): string =>
    `${figure(p50Ms)} ms, p99 ${figure(p99Ms)}`;
  const other = machine.postgresFsync;
  return [
    `${machine.cores} cores (${machine.processor}), Node ${machine.node}${postgres}`,
    `load average ${figure(machine.loadAverage)}; fsync of 4 KiB ${disk(machine.fsync)}` +
      (other === undefined ? '' : `; PostgreSQL’s ${disk(other)}`),
  ];
}

const SERVER_COLUMNS = [
  ['server', ({ name }) => name],
  ['req/s', ({ requestsPerSecond }) => requestsPerSecond.toFixed(0)],
  ['p50 ms', ({ p50Ms }) => p50Ms.toFixed(2)],
  ['p95 ms', ({ p95Ms }) => p95Ms.toFixed(2)],
  ['p99 ms', ({ p99Ms }) => p99Ms.toFixed(2)],
  ['max ms', ({ maxMs }) => maxMs.toFixed(1)],
  ['err', ({ errors }) => String(errors)],
  ['wrong', ({ wrong }) => String(wrong)],
  ['CPU µs', ({ serverCpuUs }) => serverCpuUs.toFixed(2)],
  ['db µs', ({ databaseCpuUs }) => databaseCpuUs.toFixed(2)],
  ['cores', ({ serverCores }) => serverCores.toFixed(2)],
  ['gen.', ({ generatorCores }) => generatorCores.toFixed(2)],
  ['RSS MB', ({ rssBytes }) => (rssBytes / 1e6).toFixed(0)],
] as const satisfies readonly (readonly [title: string, cell: (row: Measured) => string])[];

function serverTable(rows: readonly Measured[]): string[] {
  if (rows.length === 0) return [];
  const others = Math.max(...rows.map(({ otherCores }) => otherCores));
  return [
    ...table(rows, SERVER_COLUMNS),
    'CPU and db: of the server and of PostgreSQL per request; cores and gen.: how many cores the',
    `server and the generator kept busy. Others kept ${others.toFixed(2)} cores busy meanwhile.`,
  ];
}

function kindTable(rows: readonly KindMeasured[]): string[] {
  return rows.length === 0
    ? []
    : table(rows, [
        ['requests', ({ kind }) => kind],
        ['answered', ({ answered }) => String(answered)],
        ['p50 ms', ({ p50Ms }) => p50Ms.toFixed(2)],
        ['p95 ms', ({ p95Ms }) => p95Ms.toFixed(2)],
        ['p99 ms', ({ p99Ms }) => p99Ms.toFixed(2)],
        ['max ms', ({ maxMs }) => maxMs.toFixed(1)],
      ]);
}

function verdictLine({ what, measured, bound, limit, unit, met, mandatory }: Verdict): string {
  const mark = met ? 'met   ' : mandatory ? 'FAILED' : 'missed';
  return `${mark}  ${what}: ${figure(measured)}${unit}, wanted ${bound} ${figure(limit)}${unit}`;
}
