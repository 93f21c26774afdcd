/**
 * Twice what a server can serve: whoever is served is served in time, the others are refused at
 * once, memory stays bounded, and a revocation gets through.
 *
 * Where there are two cores or more, the server gets one of them for itself and the generators the
 * others: on shared cores the generator would be what limits the load. What the server serves in
 * this run is therefore what one core serves.
 */
import { spawnSync } from 'node:child_process';
import { randomInt } from 'node:crypto';
import { cpus } from 'node:os';
import { setTimeout as wait } from 'node:timers/promises';
import { enrolDevices, type LoadDevice, revokeDevice } from '../devices.js';
import { startHalo } from '../halo-servers.js';
import { makeHaloStorage } from '../halo-store.js';
import { runJob } from '../job-process.js';
import { KindTally } from '../kind-tally.js';
import { nowMs } from '../open-loop.js';
import type { LoadOptions } from '../options.js';
import type { OverloadJob, OverloadResult } from '../overload-process.js';
import { HALOS, type LoadReport, reportOf, type Verdict, verdict } from '../report.js';
import type { RunContext } from '../run-context.js';
import type { ServerProcess } from '../server-process.js';

/** Few enough that nobody waits long, enough that the server's batches are full. */
const CAPACITY_CONNECTIONS = 128;
const CAPACITY_MS = 4_000;
/** What stands in line at the server; with fewer, the generator would be the queue. */
const OVERLOAD_CONNECTIONS = 2_000;
/** How much is offered, of what can be served. */
const FACTOR = 2;
/** More generators than this are not needed to offer twice what one core serves. */
const GENERATORS_MAX = 3;
const REVOCATION_PERIOD_MS = 250;
const JOB_GRACE_MS = 60_000;
const SEED_MAX = 2 ** 31;
/** A generator that lags this much at its p99 did not offer an even rate. */
const LATE_MAX_MS = 20;

export async function runOverload(options: LoadOptions, context: RunContext): Promise<LoadReport> {
  const { servers, adminToken } = await startHalo({
    name: HALOS,
    directory: context.directory,
    storage: await makeHaloStorage(options.backend, HALOS, context.directory, undefined),
    replicas: 1,
    extraArgs: options.serverArgs,
  });
  const [server] = servers;
  if (server === undefined) throw new Error('No server was started.');
  context.onEnd(() => server.stop());
  context.progress(`enrolling ${options.devices} devices`);
  const all = await enrolDevices(server.url, adminToken, options.devices);
  // Some are left to be revoked meanwhile; nobody asks for them.
  const spare = all.slice(0, Math.floor(all.length / 4));
  const cores = shareCores(server);
  const offer = new Offer(server, adminToken, all.slice(spare.length), cores.generators);
  context.progress('warming up');
  await offer.run(CAPACITY_MS / 2, CAPACITY_CONNECTIONS);
  context.progress('measuring what it can serve');
  const capacity = await offer.run(CAPACITY_MS, CAPACITY_CONNECTIONS);
  const capacityPerSecond = (capacity.accepted * 1000) / capacity.elapsedMs;
  const ratePerSecond = options.rate ?? Math.round(FACTOR * capacityPerSecond);
  context.progress(`offering ${ratePerSecond} requests/s for ${options.durationSeconds} s`);
  const before = server.usage();
  const stop = new AbortController();
  const revocations = revokeMeanwhile(server.url, adminToken, spare, stop.signal);
  const durationMs = options.durationSeconds * 1000;
  const offered = await offer.run(durationMs, OVERLOAD_CONNECTIONS, ratePerSecond);
  const after = server.usage();
  stop.abort();
  const revokedMs = await revocations;
  if (offered.firstWrong !== '') context.progress(`first wrong answer: ${offered.firstWrong}`);
  const facts = {
    seed: offer.seed,
    serverCoresGiven: cores.server,
    capacityPerSecond,
    capacityGeneratorCores: capacity.generatorCpuMs / capacity.elapsedMs,
    offeredPerSecond: ((offered.accepted + offered.refused) * 1000) / offered.elapsedMs,
    acceptedPerSecond: (offered.accepted * 1000) / offered.elapsedMs,
    refusedPerSecond: (offered.refused * 1000) / offered.elapsedMs,
    ...offer.percentiles(offered),
    revocations: revokedMs.length,
    revocationMaxMs: Math.max(...revokedMs),
    serverCores: (after.cpuMs - before.cpuMs) / offered.elapsedMs,
    generatorLateP99Ms: offered.lateP99Ms,
    generatorCores: offered.generatorCpuMs / offered.elapsedMs,
    inLineAtTheEnd: offered.inLine,
    rssBeforeMb: before.rssBytes / 1e6,
    rssPeakMb: after.rssPeakBytes / 1e6,
    rssAfterMb: after.rssBytes / 1e6,
  };
  const verdicts = overloadVerdicts(offered, facts);
  const tally = new KindTally();
  tally.merge(offered.kinds);
  return reportOf(options, context, undefined, {
    kinds: tally.rows(),
    facts,
    verdicts,
  });
}

interface Figures {
  readonly capacityPerSecond: number;
  readonly offeredPerSecond: number;
  readonly acceptedP99Ms: number;
  readonly refusedP99Ms: number;
  readonly revocationMaxMs: number;
  readonly generatorLateP99Ms: number;
  readonly rssBeforeMb: number;
  readonly rssPeakMb: number;
}

/** More than this above what it was says that something grows with the load. */
const RSS_GROWTH_MAX_MB = 250;

function overloadVerdicts(offered: OverloadResult, facts: Figures): Verdict[] {
  const factor = facts.offeredPerSecond / facts.capacityPerSecond;
  return [
    verdict('accepted requests', offered.accepted, ['at least', 1, ''], true),
    verdict('wrong answers', offered.wrong, ['at most', 0, ''], true),
    verdict('broken or unanswered', offered.broken, ['at most', 0, ''], true),
    verdict('offered, of what it can serve', factor, ['at least', 0.95 * FACTOR, ' times']),
    verdict('generator lateness p99', facts.generatorLateP99Ms, ['at most', LATE_MAX_MS, ' ms']),
    verdict('accepted p99', facts.acceptedP99Ms, ['below', 50, ' ms']),
    verdict('refused p99', facts.refusedP99Ms, ['below', 50, ' ms']),
    verdict('slowest revocation', facts.revocationMaxMs, ['at most', 250, ' ms']),
    verdict('memory at most beyond what it was', facts.rssPeakMb - facts.rssBeforeMb, [
      'below',
      RSS_GROWTH_MAX_MB,
      ' MB',
    ]),
  ];
}

/** The generators, and what they say together. */
class Offer {
  readonly seed = randomInt(SEED_MAX);
  private readonly generators = Math.min(GENERATORS_MAX, Math.max(1, cpus().length - 1));

  constructor(
    private readonly server: ServerProcess,
    private readonly adminToken: string,
    private readonly devices: readonly LoadDevice[],
    private readonly cores: string | undefined,
  ) {}

  async run(durationMs: number, connections: number, rate?: number): Promise<OverloadResult> {
    const job: OverloadJob = {
      url: this.server.url,
      adminToken: this.adminToken,
      devices: this.devices,
      connections: Math.ceil(connections / this.generators),
      durationMs,
      ...(rate === undefined ? {} : { ratePerSecond: rate / this.generators }),
      seed: this.seed,
    };
    const results = await Promise.all(
      Array.from({ length: this.generators }, (_, index) =>
        runJob<OverloadJob, OverloadResult>({
          script: './overload-process.js',
          job: { ...job, seed: this.seed + index },
          withinMs: durationMs + JOB_GRACE_MS,
          ...(this.cores === undefined ? {} : { cores: this.cores }),
        }),
      ),
    );
    return together(results);
  }

  percentiles({ kinds }: OverloadResult): Record<`${'accepted' | 'refused'}P99Ms`, number> {
    const p99Ms = (isRefused: boolean): number => {
      const tally = new KindTally();
      for (const [kind, samples] of Object.entries(kinds)) {
        if (kind.endsWith(', refused') === isRefused) tally.merge({ together: samples });
      }
      return tally.rows().at(-1)?.p99Ms ?? Number.NaN;
    };
    return { acceptedP99Ms: p99Ms(false), refusedP99Ms: p99Ms(true) };
  }
}

function together(results: readonly OverloadResult[]): OverloadResult {
  const sum = (pick: (result: OverloadResult) => number): number =>
    results.reduce((total, result) => total + pick(result), 0);
  const tally = new KindTally();
  for (const { kinds } of results) tally.merge(kinds);
  return {
    kinds: tally.samples(),
    accepted: sum(({ accepted }) => accepted),
    refused: sum(({ refused }) => refused),
    wrong: sum(({ wrong }) => wrong),
    firstWrong: results.find(({ firstWrong }) => firstWrong !== '')?.firstWrong ?? '',
    broken: sum(({ broken }) => broken),
    lateP99Ms: Math.max(...results.map(({ lateP99Ms }) => lateP99Ms)),
    inLine: sum(({ inLine }) => inLine),
    generatorCpuMs: sum(({ generatorCpuMs }) => generatorCpuMs),
    elapsedMs: Math.max(...results.map(({ elapsedMs }) => elapsedMs)),
  };
}

interface Shares {
  /** How many cores the server may use. */
  readonly server: number;
  /** Those of the generators; undefined: any. */
  readonly generators: string | undefined;
}

/** Gives the server, with all its threads, the first core, and leaves the others. */
function shareCores({ ready }: ServerProcess): Shares {
  const all = cpus().length;
  const args = ['--all-tasks', '--pid', '--cpu-list', '0', String(ready.pid)];
  if (all < 2 || spawnSync('taskset', args).status !== 0) {
    return { server: all, generators: undefined };
  }
  return { server: 1, generators: `1-${all - 1}` };
}

/**
 * Revokes a device now and then until told to stop; returns how long each took, for ever when it
 * was refused.
 */
async function revokeMeanwhile(
  url: string,
  adminToken: string,
  devices: readonly LoadDevice[],
  stop: AbortSignal,
): Promise<number[]> {
  const tookMs: number[] = [];
  for (const { id } of devices) {
    await wait(REVOCATION_PERIOD_MS);
    if (stop.aborted) break;
    const startedMs = nowMs();
    const refused = await revokeDevice(url, adminToken, id).then(
      () => false,
      () => true,
    );
    tookMs.push(refused ? Number.POSITIVE_INFINITY : nowMs() - startedMs);
  }
  return tookMs;
}
