/**
 * Where the Halos under test keeps its data, and how very many devices come into it: as journal
 * records through the backend's own commit path, with no server running.
 */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { DEVICES_STREAM, type Device, toAppend } from '../src/actors/devices/state.js';
import { digestOf, mintSecret } from '../src/actors/secrets.js';
import { systemClock } from '../src/runtime/clock.js';
import { silentLog } from '../src/runtime/log.js';
import { systemRandom, uuidV7 } from '../src/runtime/random.js';
import type { Format } from '../src/storage/envelope.js';
import { startStorageThread } from '../src/storage/file/storage-thread.js';
import { openStore } from '../src/storage/open-store.js';
import { migrate } from '../src/storage/postgres/migrate.js';
import type { Store } from '../src/storage/store.js';
import type { LoadDatabases } from './databases.js';
import { DEVICES_PER_USER, type LoadDevice } from './devices.js';
import type { HaloStorage } from './halo-servers.js';

/** Devices per unit of work: a few megabytes of records, so that the units cost, not the turns. */
const DEVICES_PER_UNIT = 10_000;
/** Devices whose credentials are kept, spread evenly over all: what the generators ask with. */
const KEPT_MAX = 1_000;
/** Connections of the seeding store: one for reading and one for writing is all it uses. */
const SEED_CONNECTIONS = 2;

/** Makes an empty place for the data of one Halos. */
export async function makeHaloStorage(
  backend: HaloStorage['backend'],
  name: string,
  directory: string,
  databases: LoadDatabases | undefined,
): Promise<HaloStorage> {
  if (backend === 'file') return { backend, dataDir: join(directory, `${name}-data`) };
  if (databases === undefined) throw new Error('There is no PostgreSQL in this run.');
  return { backend, databaseUrlFile: await databases.create(name) };
}

/** Fills the empty storage with `count` devices and returns those whose credentials it kept. */
export async function seedDevices(storage: HaloStorage, count: number): Promise<LoadDevice[]> {
  if (storage.backend === 'file') {
    const thread = await startStorageThread({ dataDir: storage.dataDir });
    const store = openStore({ backend: 'file', connection: thread.connect() }, environment);
    try {
      return await commitDevices(store, count);
    } finally {
      await store.close();
      await thread.close();
    }
  }
  const url = readFileSync(storage.databaseUrlFile, 'utf8').trim();
  const access = { url, insecureTls: false };
  await migrate(access);
  const options = { pooled: false, connectionsMax: SEED_CONNECTIONS };
  const store = openStore({ backend: 'postgres', ...access, ...options }, environment);
  try {
    return await commitDevices(store, count);
  } finally {
    await store.close();
  }
}

const environment = { clock: systemClock, random: systemRandom, log: silentLog };

async function commitDevices(store: Store, count: number): Promise<LoadDevice[]> {
  const kept: LoadDevice[] = [];
  const keepEvery = Math.ceil(count / KEPT_MAX);
  let position = await store.replay([DEVICES_STREAM], () => undefined);
  for (let first = 1; first <= count; first += DEVICES_PER_UNIT) {
    const devices: Device[] = [];
    for (let ordinal = first; ordinal < first + DEVICES_PER_UNIT && ordinal <= count; ordinal++) {
      const credential = ordinal % keepEvery === 0 ? mintSecret('device', systemRandom) : undefined;
      const device = makeDevice(ordinal, digestOf(credential ?? `no credential ${ordinal}`));
      devices.push(device);
      if (credential !== undefined) kept.push({ ...pick(device), credential });
    }
    const unit = { streams: [DEVICES_STREAM], position };
    const committed = await store.commit(unit, ({ writeFormat }) => ({
      appends: devices.map((device) => toAppend({ type: 'device', device }, writeFormat as Format)),
    }));
    position = committed.position;
  }
  return kept;
}

function makeDevice(ordinal: number, digest: string): Device {
  const enrolledAtMs = systemClock.wallMs();
  return {
    ordinal,
    id: `dev_${uuidV7(systemRandom, enrolledAtMs)}`,
    user: `load-user-${Math.floor(ordinal / DEVICES_PER_USER)}@example.com`,
    name: `load-device-${ordinal}`,
    platform: 'linux',
    enrolledAtMs,
    digest,
    previousDigest: undefined,
    previousUntilMs: 0,
    unconfirmed: false,
  };
}

function pick({ id, user }: Device): Pick<LoadDevice, 'id' | 'user'> {
  return { id, user };
}
