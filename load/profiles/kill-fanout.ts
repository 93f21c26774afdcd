/**
 * What a kill takes to reach everyone: thousands of streams on the replica where it is made, some
 * on another, and bare uWebSockets.js publishing to as many in the same run. Afterwards all streams
 * are idle for a while, for what that costs.
 */
import { setTimeout as wait } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { LoadDatabases } from '../databases.js';
import { startHalo } from '../halo-servers.js';
import { makeHaloStorage } from '../halo-store.js';
import type { LoadOptions } from '../options.js';
import { isOk, type LoadReport, machineFacts, verdict } from '../report.js';
import type { RunContext } from '../run-context.js';
import { ServerProcess } from '../server-process.js';
import { gatewayTokens, STREAM_PATH, StreamClients, timedKill } from '../stream-clients.js';

const BARE = fileURLToPath(new URL('../baselines/bare-publish.js', import.meta.url));
/** What issue 4 asks for. */
const NEAR_STREAMS = 5_000;
const FAR_STREAMS = 500;
/** A hundredth of them may be slow: the slowest one is left out. */
const KILLS = 100;
/** Apart, so that each is a fan-out of its own. */
const PAUSE_MS = 100;
/** Two heartbeats of every stream. */
const IDLE_MS = 10_000;
const READY_WITHIN_MS = 60_000;

export async function runKillFanout(
  options: LoadOptions,
  context: RunContext,
): Promise<LoadReport> {
  const databases = await LoadDatabases.start(context.directory);
  context.onEnd(() => databases.stop());
  const storage = await makeHaloStorage('postgres', 'halo', context.directory, databases);
  const { servers, adminToken } = await startHalo({
    name: 'halos',
    directory: context.directory,
    storage,
    replicas: 2,
    extraArgs: options.serverArgs,
    readyWithinMs: READY_WITHIN_MS,
  });
  for (const server of servers) context.onEnd(() => server.stop());
  const [near, far] = servers;
  if (near === undefined || far === undefined) throw new Error('Two replicas are needed.');
  const bare = await startBare(context);
  const emptyBytes = near.usage().rssBytes;
  const nearClients = await openStreams(context, near.url, adminToken, NEAR_STREAMS);
  const farClients = await openStreams(context, far.url, adminToken, FAR_STREAMS);
  const bareClients = await openStreams(context, bare.url, undefined, NEAR_STREAMS);
  context.progress(`${KILLS} kills`);
  const killed = async (round: number): Promise<Took> => {
    const { version, answeredMs } = await timedKill(near.url, adminToken, `load-${round}`);
    const [one, other] = await Promise.all([
      nearClients.ask({ type: 'version', version }),
      farClients.ask({ type: 'version', version }),
    ]);
    await wait(PAUSE_MS);
    const published = await timedKill(bare.url, '', `load-${round}`);
    const last = await bareClients.ask({ type: 'version', version: published.version });
    await wait(PAUSE_MS);
    return {
      nearMs: one.lastMs - answeredMs,
      farMs: other.lastMs - answeredMs,
      bareMs: last.lastMs - published.answeredMs,
    };
  };
  const took: Took[] = [];
  for (let round = 0; round < KILLS; round += 1) took.push(await killed(round));
  const before = near.usage();
  await wait(IDLE_MS);
  const after = near.usage();
  const facts = {
    ...percentiles(took),
    idleCores: (after.cpuMs - before.cpuMs) / IDLE_MS,
    rssWithoutStreamsMb: emptyBytes / 1e6,
    rssWithStreamsMb: after.rssBytes / 1e6,
  };
  const verdicts = [
    verdict('last frame, same replica, p99', facts.nearP99Ms, ['below', 250, ' ms']),
    verdict('last frame, other replica, p99', facts.farP99Ms, ['below', 500, ' ms']),
  ];
  return {
    profile: options.profile,
    startedAt: context.startedAt,
    options,
    machine: machineFacts(await databases.version()),
    measured: [],
    facts,
    verdicts,
    ok: isOk(verdicts, options.enforce),
  };
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
}

type Percentiles = Record<`${'near' | 'far' | 'bare'}${'P50' | 'P99'}Ms`, number>;

function percentiles(took: readonly Took[]): Percentiles {
  const near = took.map(({ nearMs }) => nearMs);
  const far = took.map(({ farMs }) => farMs);
  const bare = took.map(({ bareMs }) => bareMs);
  return {
    nearP50Ms: percentile(near, 50),
    nearP99Ms: percentile(near, 99),
    farP50Ms: percentile(far, 50),
    farP99Ms: percentile(far, 99),
    bareP50Ms: percentile(bare, 50),
    bareP99Ms: percentile(bare, 99),
  };
}

async function openStreams(
  context: RunContext,
  url: string,
  adminToken: string | undefined,
  count: number,
): Promise<StreamClients> {
  context.progress(`opening ${count} streams on ${url}`);
  const clients = new StreamClients();
  context.onEnd(() => clients.stop());
  const tokens = adminToken === undefined ? ['none'] : await gatewayTokens(url, adminToken, count);
  await clients.ask({ type: 'open', url, path: STREAM_PATH, tokens, count });
  return clients;
}

function percentile(values: readonly number[], percent: number): number {
  const sorted = [...values].sort((left, right) => left - right);
  return sorted[Math.max(0, Math.ceil((sorted.length * percent) / 100) - 1)] ?? Number.NaN;
}
