/** The storage of a whole server: opened and checked once, handed to threads, probed, closed. */
import type { TransferListItem } from 'node:worker_threads';
import type { Clock } from '../runtime/clock.js';
import { divideConnections } from '../runtime/connection-budget.js';
import { describe } from '../runtime/failure.js';
import type { LeaseStore } from '../runtime/lease.js';
import type { Log } from '../runtime/log.js';
import type { Random } from '../runtime/random.js';
import { startStorageThread } from '../storage/file/storage-thread.js';
import type { StoreSource } from '../storage/open-store.js';
import { PostgresLeases } from '../storage/postgres/leases.js';
import { check, migrate } from '../storage/postgres/migrate.js';
import { PostgresProbe } from '../storage/postgres/probe.js';
import { readDatabaseUrl } from './private-file.js';
import type { FileBackendOptions, PostgresBackendOptions, ServeOptions } from './serve-options.js';

/** Held by the main thread; the other threads open their own stores from `storeSource`. */
export interface ServerStorage {
  /** For one thread; called again each time that thread starts. */
  storeSource(): { source: StoreSource; transferList: readonly TransferListItem[] };
  /** For the elector: on PostgreSQL it has a connection of its own. */
  readonly leases: LeaseStore;
  /** Resolves when the store was written, rejects within its own bound when it cannot be. */
  probe(): Promise<void>;
  /** After every thread's store was closed. */
  close(): Promise<void>;
}

/** What the storage is told about its server. */
export interface ServerStorageEnvironment {
  readonly replica: string;
  readonly actorThreads: number;
  readonly clock: Clock;
  readonly random: Random;
  readonly log: Log;
  /** The text of the file of signing keys: on files, the storage itself chains. */
  readonly signingKeyPem: string;
  /** The storage cannot be had back in this process. */
  readonly onDeath: (reason: string) => void;
}

/** The probe's connection, which is made anew each time, and the elector's; then the listener's. */
const CONNECTIONS_RESERVED = 2;
const CONNECTIONS_LISTENING = 1;

/** Throws a `CodedError` whose message says what to do. */
export function openServerStorage(
  options: ServeOptions['backend'],
  environment: ServerStorageEnvironment,
): Promise<ServerStorage> {
  return options.kind === 'file'
    ? openFiles(options, environment)
    : openPostgres(options, environment);
}

async function openFiles(
  { dataDir }: FileBackendOptions,
  { log, signingKeyPem, onDeath }: ServerStorageEnvironment,
): Promise<ServerStorage> {
  const thread = await startStorageThread({ dataDir, log, signingKeyPem });
  thread.onDeath((cause) => {
    onDeath(`the storage thread ended: ${cause === undefined ? 'no reason' : describe(cause)}`);
  });
  return {
    storeSource: () => {
      const connection = thread.connect();
      return { source: { backend: 'file', connection }, transferList: [connection.port] };
    },
    leases: thread.leases,
    probe: () => thread.probe(),
    close: () => thread.close(),
  };
}

async function openPostgres(
  options: PostgresBackendOptions,
  { replica, actorThreads, clock, random, log }: ServerStorageEnvironment,
): Promise<ServerStorage> {
  const { insecureTls, pooled, directUrlFile } = options;
  const access = { url: await readDatabaseUrl(options.urlFile), insecureTls };
  const direct = directUrlFile === null ? undefined : await readDatabaseUrl(directUrlFile);
  if (options.autoMigrate) {
    const { from, to } = await migrate({ ...access, url: direct ?? access.url });
    if (to > from) log.info({ from, to }, 'The database was migrated.');
  }
  const { hazards } = await check(access);
  for (const setting of hazards) {
    log.warn({ setting }, 'A setting of the database is off: a crash of its machine loses data.');
  }
  // Said at start rather than at the first catch-up: a wrong direct URL is a mistake to mend.
  if (direct !== undefined) await check({ url: direct, insecureTls });
  const listening = direct !== undefined || !pooled ? CONNECTIONS_LISTENING : 0;
  const reserved = CONNECTIONS_RESERVED + listening;
  const connectionsMax = divideConnections(options.connectionsMax, actorThreads, reserved);
  const source: StoreSource = {
    backend: 'postgres',
    ...access,
    ...(direct === undefined ? {} : { directUrl: direct }),
    pooled,
    connectionsMax,
  };
  const url = direct ?? access.url;
  const isPooled = pooled && direct === undefined;
  const leases = new PostgresLeases({ url, insecureTls, pooled: isPooled, clock, random });
  const probe = new PostgresProbe({ ...access, replica, clock });
  return {
    storeSource: () => ({ source, transferList: [] }),
    leases,
    probe: () => probe.ping(),
    close: () =>
      probe.remove().catch((error: unknown) => {
        log.warn({ error: describe(error) }, 'This replica could not be signed off.');
      }),
  };
}
