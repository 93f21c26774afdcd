/**
 * What streams cost that have nothing to say: the same server without any, and with thousands,
 * which get a heartbeat every five seconds.
 */
import { setTimeout as wait } from 'node:timers/promises';
import { startOnPostgres } from '../halo-on-postgres.js';
import { KillStreamLot } from '../kill-streams.js';
import type { LoadOptions } from '../options.js';
import { machineCpuMs } from '../process-usage.js';
import { type LoadReport, reportOf, verdict } from '../report.js';
import type { RunContext } from '../run-context.js';
import type { ServerProcess } from '../server-process.js';

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
  const { servers, adminToken, databases } = await startOnPostgres(options, context, 1);
  const [server] = servers;
  if (server === undefined) throw new Error('No server was started.');
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
  return reportOf(options, context, databases, {
    facts,
    verdicts,
  });
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
