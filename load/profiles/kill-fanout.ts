/**
 * What a kill takes to reach everyone: thousands of streams on the replica where it is made, some
 * on another, and bare uWebSockets.js publishing to as many in the same run. The clients share the
 * machine, so what they take of the time is measured, too.
 */
import { setTimeout as wait } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { startOnPostgres } from '../halo-on-postgres.js';
import { READY_WITHIN_MS } from '../halo-servers.js';
import { KillStreamLot } from '../kill-streams.js';
import type { LoadOptions } from '../options.js';
import { type LoadReport, reportOf, verdict } from '../report.js';
import type { RunContext } from '../run-context.js';
import { ServerProcess } from '../server-process.js';
import { percentileOf } from '../statistics.js';
import { timedKill } from '../stream-clients.js';

const BARE = fileURLToPath(new URL('../baselines/bare-publish.js', import.meta.url));
/** What issue 4 asks for on another replica, beside 5,000 on the same one. */
const FAR_STREAMS = 500;
/** A hundredth of them may be slow: the slowest one is left out. */
const KILLS = 100;
/** Apart, so that each is a fan-out of its own. */
const PAUSE_MS = 100;

export async function runKillFanout(
  options: LoadOptions,
  context: RunContext,
): Promise<LoadReport> {
  const { servers, adminToken, databases } = await startOnPostgres(options, context, 2);
  const [near, far] = servers;
  if (near === undefined || far === undefined) throw new Error('Two replicas are needed.');
  const bare = await startBare(context);
  const count = options.streams ?? 0;
  const emptyBytes = near.usage().rssBytes;
  const fanout = {
    near,
    bare,
    adminToken,
    nearLot: await KillStreamLot.open(context, near.url, adminToken, count),
    farLot: await KillStreamLot.open(context, far.url, adminToken, FAR_STREAMS),
    bareLot: await KillStreamLot.open(context, bare.url, undefined, count),
  };
  context.progress(`${KILLS} kills`);
  const took: Took[] = [];
  for (let round = 0; round < KILLS; round += 1) took.push(await timeKill(fanout, `load-${round}`));
  const facts = {
    ...percentiles(took),
    serverCpuMsPerKill: mean(took.map(({ serverCpuMs }) => serverCpuMs)),
    clientCpuMsPerKill: mean(took.map(({ clientCpuMs }) => clientCpuMs)),
    rssWithoutStreamsMb: emptyBytes / 1e6,
    rssWithStreamsMb: near.usage().rssBytes / 1e6,
  };
  const verdicts = [
    verdict('last frame, same replica, p99', facts.nearP99Ms, ['below', 250, ' ms']),
    verdict('last frame, other replica, p99', facts.farP99Ms, ['below', 500, ' ms']),
  ];
  return reportOf(options, context, databases, {
    facts,
    verdicts,
  });
}

async function startBare(context: RunContext): Promise<ServerProcess> {
  const bare = await ServerProcess.start({
    name: 'bare-publish',
    script: BARE,
    args: [],
    directory: context.directory,
    readyWithinMs: READY_WITHIN_MS,
  });
  context.onEnd(() => bare.stop());
  return bare;
}

/** From the 200 of one kill to the last frame. */
interface Took {
  readonly nearMs: number;
  readonly farMs: number;
  readonly bareMs: number;
  /** Of the near replica, and of its clients' process, until the last frame. */
  readonly serverCpuMs: number;
  readonly clientCpuMs: number;
}

interface Fanout {
  readonly near: ServerProcess;
  readonly bare: ServerProcess;
  readonly adminToken: string;
  readonly nearLot: KillStreamLot;
  readonly farLot: KillStreamLot;
  readonly bareLot: KillStreamLot;
}

async function timeKill(fanout: Fanout, name: string): Promise<Took> {
  const { near, bare, adminToken, nearLot, farLot, bareLot } = fanout;
  const serverBefore = near.usage().cpuMs;
  const { cpuMs: clientBefore } = await nearLot.count();
  const { version, answeredMs } = await timedKill(near.url, adminToken, name);
  const [one, other] = await Promise.all([nearLot.reached(version), farLot.reached(version)]);
  const serverCpuMs = near.usage().cpuMs - serverBefore;
  await wait(PAUSE_MS);
  const published = await timedKill(bare.url, '', name);
  const last = await bareLot.reached(published.version);
  await wait(PAUSE_MS);
  return {
    nearMs: one.lastMs - answeredMs,
    farMs: other.lastMs - answeredMs,
    bareMs: last.lastMs - published.answeredMs,
    serverCpuMs,
    clientCpuMs: one.cpuMs - clientBefore,
  };
}

type Percentiles = Record<`${'near' | 'far' | 'bare'}${'P50' | 'P99'}Ms`, number>;

function percentiles(took: readonly Took[]): Percentiles {
  const near = took.map(({ nearMs }) => nearMs);
  const far = took.map(({ farMs }) => farMs);
  const bare = took.map(({ bareMs }) => bareMs);
  return {
    nearP50Ms: percentileOf(near, 50),
    nearP99Ms: percentileOf(near, 99),
    farP50Ms: percentileOf(far, 50),
    farP99Ms: percentileOf(far, 99),
    bareP50Ms: percentileOf(bare, 50),
    bareP99Ms: percentileOf(bare, 99),
  };
}

function mean(values: readonly number[]): number {
  return values.reduce((sum, value) => sum + value, 0) / values.length;
}
