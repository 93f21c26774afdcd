/**
 * Devices authenticate, as fast as the connections carry it: Halos beside the limit (bare
 * uWebSockets.js), beside the same with a look-up in its own thread, and beside what people would
 * write (Fastify and one query per request).
 */
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { digestOf } from '../../src/actors/secrets.js';
import { LoadDatabases } from '../databases.js';
import { deviceAuthRatios, deviceAuthVerdicts } from '../device-auth-targets.js';
import {
  answerHeaders,
  checkedAnswers,
  checkRefusals,
  DEVICE_AUTH_PATH,
  enrolDevices,
  type LoadDevice,
  refusals,
  revokeDevice,
} from '../devices.js';
import type { ExpectedAnswer } from '../generator.js';
import { type HaloServers, startHalo } from '../halo-servers.js';
import { makeHaloStorage, seedDevices } from '../halo-store.js';
import type { LoadOptions } from '../options.js';
import { HALOS, type LoadReport, reportOf } from '../report.js';
import { measureInTurn, type Target } from '../rounds.js';
import type { RunContext } from '../run-context.js';
import { meanBatch, type ReadBatches, readBatches } from '../server-metrics.js';
import { ServerProcess } from '../server-process.js';

/** A baseline starts in a tenth of a second; the bound is for a busy machine. */
const BASELINE_READY_MS = 15_000;
/** An empty store's server, migrations included; each device may add a millisecond. */
const HALO_READY_MS = 30_000;
/** As many devices are enrolled over the API; more are written into the store directly. */
const ENROLLED_MAX = 10_000;

export async function runDeviceAuth(
  options: LoadOptions,
  context: RunContext,
): Promise<LoadReport> {
  const databases = await LoadDatabases.start(context.directory);
  context.onEnd(() => databases.stop());
  const storage = await makeHaloStorage(options.backend, HALOS, context.directory, databases);
  // Above this, enrolling over the API would take longer than what is measured.
  const seeded = options.devices > ENROLLED_MAX;
  if (seeded) context.progress(`seeding ${options.devices} devices`);
  const known = seeded ? await seedDevices(storage, options.devices) : [];
  context.progress(`starting halo-server on ${options.backend}`);
  const halo = await startHalo({
    name: HALOS,
    directory: context.directory,
    storage,
    replicas: options.replicas,
    extraArgs: options.serverArgs,
    readyWithinMs: HALO_READY_MS + options.devices,
  });
  for (const server of halo.servers) context.onEnd(() => server.stop());
  if (!seeded) context.progress(`enrolling ${options.devices} devices`);
  const devices = await enrolOnHalo(halo, known, seeded ? 0 : options.devices);
  const targets = await startTargets(halo, devices, databases, context);

  const batchesBefore = await batchesOf(halo);
  const measured = await measureInTurn(targets, context.generator, {
    path: DEVICE_AUTH_PATH,
    connections: options.connections,
    ...(options.rate === undefined ? {} : { ratePerSecond: options.rate }),
    roundMs: (options.durationSeconds * 1000) / options.rounds,
    rounds: options.rounds,
    databaseCpuMs: () => databases.cpuMs(),
    progress: context.progress,
  });
  const batchesAfter = await batchesOf(halo);
  context.progress('checking each credential again');
  await checkHalo(halo, devices, lastOf(halo.servers));
  const verdicts = deviceAuthVerdicts(measured, options);
  return reportOf(options, context, databases, {
    measured,
    facts: {
      ...deviceAuthRatios(measured),
      requestsPerBatch: meanBatch(batchesBefore, batchesAfter),
    },
    verdicts,
  });
}

function batchesOf({ servers }: HaloServers): Promise<ReadBatches[]> {
  return Promise.all(servers.map(({ ready }) => readBatches(ready.metricsUrl ?? '')));
}

interface EnrolledDevices {
  readonly valid: readonly LoadDevice[];
  readonly revoked: LoadDevice;
}

/** Enrols `count` devices over the API beside those `known`, and one more that it revokes. */
async function enrolOnHalo(
  halo: HaloServers,
  known: readonly LoadDevice[],
  count: number,
): Promise<EnrolledDevices> {
  const url = firstOf(halo.servers).url;
  const [revoked, ...enrolled] = await enrolDevices(url, halo.adminToken, count + 1);
  if (revoked === undefined) throw new Error('No device was enrolled.');
  await revokeDevice(url, halo.adminToken, revoked.id);
  return { valid: [...known, ...enrolled], revoked };
}

/**
 * Every replica must know every device, refuse what is bad, and say the same, byte for byte. Only
 * one is asked with guesses, which all replicas count together and soon answer with 429.
 */
async function checkHalo(
  halo: HaloServers,
  { valid, revoked }: EnrolledDevices,
  guessAt: ServerProcess,
): Promise<ExpectedAnswer[]> {
  const bad = refusals(firstOf(valid), revoked);
  let answers: ExpectedAnswer[] = [];
  for (const server of halo.servers) {
    const own = await checkedAnswers(server.url, valid);
    if (answers.length > 0 && JSON.stringify(own) !== JSON.stringify(answers)) {
      throw new Error('Two replicas gave different answers to the same credentials.');
    }
    answers = own;
    const asked = bad.filter(({ isGuess }) => server === guessAt || !isGuess);
    await checkRefusals(server.url, asked);
  }
  return answers;
}

async function startTargets(
  halo: HaloServers,
  devices: EnrolledDevices,
  databases: LoadDatabases,
  context: RunContext,
): Promise<Target[]> {
  context.progress('checking each credential');
  const answers = await checkHalo(halo, devices, firstOf(halo.servers));
  context.progress('starting the baselines');
  const constant = firstOf(answers);
  const answerFile = join(context.directory, 'answer.json');
  const headers = await answerHeaders(firstOf(halo.servers).url, firstOf(devices.valid));
  writeFileSync(answerFile, JSON.stringify({ headers, body: constant.body }));
  const bare = await startBaseline('bare-uws', ['--answer', answerFile], context);
  const lookUp = await startLookUp(devices.valid, context);
  const urlFile = await databases.create('baseline');
  await databases.fillBaseline('baseline', devices.valid);
  const fastify = await startBaseline('fastify-pg', ['--database-url-file', urlFile], context);
  return [
    { name: HALOS, servers: halo.servers, answers },
    {
      name: 'bare-uws',
      servers: [bare],
      answers: answers.map(({ credential }) => ({ ...constant, credential })),
    },
    {
      name: 'bare-look-up',
      servers: [lookUp],
      answers: await checkedAnswers(lookUp.url, devices.valid),
    },
    {
      name: 'fastify-pg',
      servers: [fastify],
      answers: await checkedAnswers(fastify.url, devices.valid),
    },
  ];
}

function startLookUp(devices: readonly LoadDevice[], context: RunContext): Promise<ServerProcess> {
  const devicesFile = join(context.directory, 'devices.json');
  const known = devices.map(({ id, user, credential }) => ({
    id,
    user,
    digest: digestOf(credential),
  }));
  writeFileSync(devicesFile, JSON.stringify(known), { mode: 0o600 });
  return startBaseline('bare-look-up', ['--devices', devicesFile], context);
}

async function startBaseline(
  name: string,
  args: readonly string[],
  context: RunContext,
): Promise<ServerProcess> {
  const server = await ServerProcess.start({
    name,
    script: fileURLToPath(new URL(`../baselines/${name}.js`, import.meta.url)),
    args,
    directory: context.directory,
    readyWithinMs: BASELINE_READY_MS,
  });
  context.onEnd(() => server.stop());
  return server;
}

function firstOf<Item>(items: readonly Item[]): Item {
  const first = items[0];
  if (first === undefined) throw new Error('There is nothing to measure.');
  return first;
}

function lastOf<Item>(items: readonly Item[]): Item {
  return firstOf(items.slice(-1));
}
