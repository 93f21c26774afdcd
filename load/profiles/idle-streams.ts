/**
 * What streams cost that have nothing to say: the same server without any, and with thousands,
 * which get a heartbeat every five seconds.
 */
import { setTimeout as wait } from 'node:timers/promises';
import { LoadDatabases } from '../databases.js';
import { startHalo } from '../halo-servers.js';
import { makeHaloStorage } from '../halo-store.js';
import { KillStreamLot } from '../kill-streams.js';
import type { LoadOptions } from '../options.js';
import { machineCpuMs } from '../process-usage.js';
import { HALOS, isOk, type LoadReport, machineFacts, verdict } from '../report.js';
import type { RunContext } from '../run-context.js';
import type { ServerProcess } from '../server-process.js';

const READY_WITHIN_MS = 60_000;
/** Until the compilers and the collector of a server that was just busy have settled. */
const SETTLE_MS = 5_000;
/** What ten thousand may cost (issue 4), and in proportion any other number. */
const MEMORY_PER_STREAM_BYTES = 10_000;
const CORES_PER_STREAM = 0.03 / 10_000;

export async function runIdleStreams(
  options: LoadOptions,
  context: RunContext,
): Promise<LoadReport> {
  const count = options.streams ?? 0;
  const databases = await LoadDatabases.start(context.directory);
  context.onEnd(() => databases.stop());
  const { servers, adminToken } = await startHalo({
    name: HALOS,
    directory: context.directory,
    storage: await makeHaloStorage('postgres', HALOS, context.directory, databases),
    replicas: 1,
    extraArgs: options.serverArgs,
    readyWithinMs: READY_WITHIN_MS,
  });
  const [server] = servers;
  if (server === undefined) throw new Error('No server was started.');
  context.onEnd(() => server.stop());
  const windowMs = options.durationSeconds * 1000;
  context.progress(`${options.durationSeconds} s without streams`);
  const without = await idle(server, windowMs);
  const streams = await KillStreamLot.open(context, server.url, adminToken, count);
  context.progress(`${options.durationSeconds} s with ${count} streams`);
  const withStreams = await idle(server, windowMs);
  const { streams: left } = await streams.count();
  const facts = {
    streams: left,
    coresWithout: without.cores,
    coresWith: withStreams.cores,
    coresMore: withStreams.cores - without.cores,
    rssWithoutMb: without.rssBytes / 1e6,
    rssWithMb: withStreams.rssBytes / 1e6,
    rssMoreMb: (withStreams.rssBytes - without.rssBytes) / 1e6,
    machineCoresWithout: without.machineCores,
    machineCoresWith: withStreams.machineCores,
  };
  const verdicts = [
    verdict('streams still open', left, ['at least', count, ''], true),
    verdict('memory more than without', facts.rssMoreMb, [
      'below',
      (MEMORY_PER_STREAM_BYTES * count) / 1e6,
      ' MB',
    ]),
    verdict('cores more than without', facts.coresMore, ['below', CORES_PER_STREAM * count, '']),
  ];
  return {
    profile: options.profile,
    startedAt: context.startedAt,
    options,
    machine: await machineFacts(context.directory, databases),
    measured: [],
    facts,
    verdicts,
    ok: isOk(verdicts, options.enforce),
  };
}

interface Idle {
  readonly cores: number;
  readonly rssBytes: number;
  /** Of the whole machine: how far the others disturbed. */
  readonly machineCores: number;
}

async function idle(server: ServerProcess, windowMs: number): Promise<Idle> {
  await wait(SETTLE_MS);
  const [before, machineBefore] = [server.usage(), machineCpuMs()];
  await wait(windowMs);
  const [after, machineAfter] = [server.usage(), machineCpuMs()];
  return {
    cores: (after.cpuMs - before.cpuMs) / windowMs,
    rssBytes: after.rssBytes,
    machineCores: (machineAfter - machineBefore) / windowMs,
  };
}
