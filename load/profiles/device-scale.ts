/**
 * What very many devices cost: one Halos with few devices beside one with many, on the same
 * backend. An authentication must not cost more, starting must not take long, and a device must be
 * small in memory.
 */

import { LoadDatabases } from '../databases.js';
import { checkedAnswers, DEVICE_AUTH_PATH } from '../devices.js';
import { startHalo } from '../halo-servers.js';
import { makeHaloStorage, seedDevices } from '../halo-store.js';
import { FEW_DEVICES, type LoadOptions } from '../options.js';
import { type LoadReport, mandatoryVerdicts, reportOf, verdict } from '../report.js';
import { cpuRatio, type Measured, measureInTurn, type Target } from '../rounds.js';
import type { RunContext } from '../run-context.js';

/** Ten million devices at a tenth of the promised speed. */
const READY_MS = 1_000_000;

interface Scaled {
  readonly devices: number;
  readonly target: Target;
  readonly seedMs: number;
  readonly startMs: number;
  readonly startCpuMs: number;
}

export async function runDeviceScale(
  options: LoadOptions,
  context: RunContext,
): Promise<LoadReport> {
  const databases =
    options.backend === 'postgres' ? await LoadDatabases.start(context.directory) : undefined;
  if (databases !== undefined) context.onEnd(() => databases.stop());
  const few = await startScaled('few', FEW_DEVICES, options, context, databases);
  const many = await startScaled('many', options.devices, options, context, databases);
  const measured = await measureInTurn([few.target, many.target], context.generator, {
    path: DEVICE_AUTH_PATH,
    connections: options.connections,
    ...(options.rate === undefined ? {} : { ratePerSecond: options.rate }),
    roundMs: (options.durationSeconds * 1000) / options.rounds,
    rounds: options.rounds,
    databaseCpuMs: () => databases?.cpuMs() ?? 0,
    progress: context.progress,
  });
  const facts = scaleFacts(few, many, measured);
  const verdicts = [
    ...mandatoryVerdicts(measured),
    verdict('CPU of an authentication with few', facts.cpuRatio, ['at most', 1.2, ' times']),
    verdict('replayed at start', facts.replayedPerSecond, ['at least', 100_000, ' records/s']),
    verdict('memory per device', facts.bytesPerDevice, ['below', 1024, ' bytes']),
  ];
  return reportOf(options, context, databases, {
    measured,
    facts,
    verdicts,
  });
}

async function startScaled(
  name: string,
  devices: number,
  options: LoadOptions,
  context: RunContext,
  databases: LoadDatabases | undefined,
): Promise<Scaled> {
  const storage = await makeHaloStorage(options.backend, name, context.directory, databases);
  context.progress(`seeding ${devices} devices on ${options.backend}`);
  const startedAt = process.hrtime.bigint();
  const known = await seedDevices(storage, devices);
  const seedMs = Number(process.hrtime.bigint() - startedAt) / 1e6;
  context.progress(`starting halo-server with ${devices} devices`);
  const { servers } = await startHalo({
    name,
    directory: context.directory,
    storage,
    replicas: 1,
    extraArgs: options.serverArgs,
    readyWithinMs: READY_MS,
  });
  for (const server of servers) context.onEnd(() => server.stop());
  const [server] = servers;
  if (server === undefined) throw new Error('No server was started.');
  const answers = await checkedAnswers(server.url, known);
  return {
    devices,
    target: { name: `halos-${devices}`, servers, answers },
    seedMs,
    startMs: server.startMs,
    startCpuMs: server.startCpuMs,
  };
}

/**
 * Starting a server takes the same with few devices and with many but for the replay, so the
 * difference is what the replay took. `startedPerSecond` counts the whole start instead, and stands
 * for both where there are too few devices for a difference to show.
 */
function scaleFacts(
  few: Scaled,
  many: Scaled,
  measured: readonly Measured[],
): Record<ScaleFact, number> {
  const [fewMeasured, manyMeasured] = measured;
  if (fewMeasured === undefined || manyMeasured === undefined) throw new Error('Not measured.');
  const more = many.devices - few.devices;
  const replayMs = many.startMs > few.startMs ? many.startMs - few.startMs : many.startMs;
  return {
    cpuRatio: cpuRatio(manyMeasured, fewMeasured),
    fewStartMs: few.startMs,
    manyStartMs: many.startMs,
    manySeedMs: many.seedMs,
    replayedPerSecond: (more * 1000) / replayMs,
    replayCpuUsPerRecord: ((many.startCpuMs - few.startCpuMs) * 1000) / more,
    startedPerSecond: (many.devices * 1000) / many.startMs,
    bytesPerDevice: (manyMeasured.rssBytes - fewMeasured.rssBytes) / more,
    bytesPerDeviceAtPeak: (manyMeasured.rssPeakBytes - fewMeasured.rssPeakBytes) / more,
  };
}

type ScaleFact =
  | 'cpuRatio'
  | 'fewStartMs'
  | 'manyStartMs'
  | 'manySeedMs'
  | 'replayedPerSecond'
  | 'replayCpuUsPerRecord'
  | 'startedPerSecond'
  | 'bytesPerDevice'
  | 'bytesPerDeviceAtPeak';
