/** Measures servers in turn, in short rounds, so that noise meets all of them alike. */
import type { ExpectedAnswer, Generator, LoadJob, LoadResult } from './generator.js';
import { machineCpuMs } from './process-usage.js';
import type { ServerProcess } from './server-process.js';
import { LatencyHistogram, median } from './statistics.js';

/** What is measured under one name: a server, or the replicas of one. */
export interface Target {
  readonly name: string;
  readonly servers: readonly ServerProcess[];
  readonly answers: readonly ExpectedAnswer[];
}

export interface RoundPlan {
  readonly path: string;
  readonly connections: number;
  readonly ratePerSecond?: number;
  readonly roundMs: number;
  readonly rounds: number;
  /** CPU time that a database server has used so far; 0 where there is none. */
  readonly databaseCpuMs: () => number;
  readonly progress: (line: string) => void;
}

/**
 * Long enough for the JIT compilers of a server and a generator to settle; a run with shorter
 * rounds is a trial, whose figures say little anyway.
 */
export const WARM_UP_MS = 1_500;

interface Round {
  readonly result: LoadResult;
  readonly serverCpuMs: number;
  readonly databaseCpuMs: number;
  /** Of every process that is not part of the run. */
  readonly otherCpuMs: number;
  readonly rssBytes: number;
  readonly rssPeakBytes: number;
}

/** What the rounds of one target come to. Times in ms unless named µs. */
export interface Measured {
  readonly name: string;
  readonly answered: number;
  readonly errors: number;
  readonly wrong: number;
  readonly firstWrong: string;
  /** Median of the rounds, as are the CPU figures. */
  readonly requestsPerSecond: number;
  /** Over all answers of all rounds. */
  readonly p50Ms: number;
  readonly p95Ms: number;
  readonly p99Ms: number;
  readonly maxMs: number;
  readonly serverCpuUs: number;
  readonly databaseCpuUs: number;
  readonly generatorCpuUs: number;
  /** CPU time per time that passed: 1 is one core. */
  readonly serverCores: number;
  readonly generatorCores: number;
  /** By processes that are not part of the run: how far these figures can be trusted. */
  readonly otherCores: number;
  /** All processes of the target together, after the last round. */
  readonly rssBytes: number;
  readonly rssPeakBytes: number;
  /** Server CPU per request of each round, for ratios within a round. */
  readonly roundsCpuUs: readonly number[];
}

/**
 * Warms up each target, then measures them `rounds` times in turn. The window of a CPU figure is
 * exactly the generator's run: the servers are idle before and after it.
 */
export async function measureInTurn(
  targets: readonly Target[],
  generator: Generator,
  plan: RoundPlan,
): Promise<Measured[]> {
  for (const target of targets) {
    plan.progress(`warming up ${target.name}`);
    await generator.run({
      ...jobFor(target, plan),
      durationMs: Math.min(WARM_UP_MS, plan.roundMs),
    });
  }
  const rounds = new Map<string, Round[]>(targets.map(({ name }) => [name, []]));
  for (let round = 0; round < plan.rounds; round += 1) {
    // Another target begins each round, so that none always follows the same one.
    for (let index = 0; index < targets.length; index += 1) {
      const target = targets[(round + index) % targets.length];
      if (target === undefined) continue;
      plan.progress(`round ${round + 1} of ${plan.rounds}: ${target.name}`);
      rounds.get(target.name)?.push(await measureOnce(target, generator, plan));
    }
  }
  return targets.map(({ name }) => summarise(name, rounds.get(name) ?? []));
}

/** The median over the rounds of what `measured` costs, in units of what `baseline` costs. */
export function cpuRatio(measured: Measured, baseline: Measured): number {
  return median(
    measured.roundsCpuUs.map((cpuUs, round) => cpuUs / (baseline.roundsCpuUs[round] ?? Number.NaN)),
  );
}

function jobFor(target: Target, plan: RoundPlan): LoadJob {
  return {
    urls: target.servers.map(({ url }) => url),
    path: plan.path,
    connections: plan.connections,
    durationMs: plan.roundMs,
    ...(plan.ratePerSecond === undefined ? {} : { ratePerSecond: plan.ratePerSecond }),
    answers: target.answers,
  };
}

async function measureOnce(target: Target, generator: Generator, plan: RoundPlan): Promise<Round> {
  const cpuMs = (): number =>
    target.servers.reduce((total, server) => total + server.usage().cpuMs, 0);
  const machineBefore = machineCpuMs();
  const databaseBefore = plan.databaseCpuMs();
  const serverBefore = cpuMs();
  const result = await generator.run(jobFor(target, plan));
  const usages = target.servers.map((server) => server.usage());
  const serverCpuMs = cpuMs() - serverBefore;
  const databaseCpuMs = plan.databaseCpuMs() - databaseBefore;
  const ownCpuMs = serverCpuMs + databaseCpuMs + result.generatorCpuMs;
  return {
    result,
    serverCpuMs,
    databaseCpuMs,
    otherCpuMs: Math.max(0, machineCpuMs() - machineBefore - ownCpuMs),
    rssBytes: usages.reduce((total, usage) => total + usage.rssBytes, 0),
    rssPeakBytes: usages.reduce((total, usage) => total + usage.rssPeakBytes, 0),
  };
}

function summarise(name: string, rounds: readonly Round[]): Measured {
  const latency = new LatencyHistogram();
  for (const { result } of rounds) latency.merge(result.latency);
  const total = (pick: (result: LoadResult) => number): number =>
    rounds.reduce((sum, { result }) => sum + pick(result), 0);
  const middle = (pick: (round: Round) => number): number => median(rounds.map(pick));
  const perRequestUs = (cpuMs: number, { answered }: LoadResult): number =>
    answered === 0 ? Number.NaN : (cpuMs * 1000) / answered;
  const roundsCpuUs = rounds.map((round) => perRequestUs(round.serverCpuMs, round.result));
  const last = rounds.at(-1);
  return {
    name,
    answered: total(({ answered }) => answered),
    errors: total(({ errors }) => errors),
    wrong: total(({ wrong }) => wrong),
    firstWrong: rounds.find(({ result }) => result.firstWrong !== '')?.result.firstWrong ?? '',
    requestsPerSecond: middle(({ result }) => (result.answered * 1000) / result.elapsedMs),
    p50Ms: latency.percentile(50) / 1000,
    p95Ms: latency.percentile(95) / 1000,
    p99Ms: latency.percentile(99) / 1000,
    maxMs: latency.max / 1000,
    serverCpuUs: median(roundsCpuUs),
    databaseCpuUs: middle((round) => perRequestUs(round.databaseCpuMs, round.result)),
    generatorCpuUs: middle(({ result }) => perRequestUs(result.generatorCpuMs, result)),
    serverCores: middle(({ serverCpuMs, result }) => serverCpuMs / result.elapsedMs),
    generatorCores: middle(({ result }) => result.generatorCpuMs / result.elapsedMs),
    otherCores: middle(({ otherCpuMs, result }) => otherCpuMs / result.elapsedMs),
    rssBytes: last?.rssBytes ?? 0,
    rssPeakBytes: last?.rssPeakBytes ?? 0,
    roundsCpuUs,
  };
}
