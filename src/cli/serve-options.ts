/**
 * The options of `halo-server serve`: from what was given to one value that is complete and free of
 * contradictions, or a `UsageError`. Pure: files are read later.
 */
import { join } from 'node:path';
import { LEASE_TTL_MAX_MS, LEASE_TTL_MIN_MS } from '../runtime/lease.js';
import { UsageError } from './exit-codes.js';
import type { GivenOptions, OptionSpec } from './option-table.js';
import {
  type ListenAddress,
  parseChoice,
  parseDurationMs,
  parseListenAddress,
  parseNetworks,
  parsePath,
  parseWholeNumber,
} from './option-values.js';

/** As pino names them; `silent` for tests. */
export const LOG_LEVELS = ['trace', 'debug', 'info', 'warn', 'error', 'fatal', 'silent'] as const;
/** One of `LOG_LEVELS`. */
export type LogLevel = (typeof LOG_LEVELS)[number];

/** The embedded default: one process owns a directory. */
export interface FileBackendOptions {
  readonly kind: 'file';
  readonly dataDir: string;
}

/** Any number of replicas on one database. The URLs stand in the files, never in an option. */
export interface PostgresBackendOptions {
  readonly kind: 'postgres';
  readonly urlFile: string;
  /** A connection past the pooler, for LISTEN; null: poll. */
  readonly directUrlFile: string | null;
  /** Behind a transaction pooler: no named prepared statements. */
  readonly pooled: boolean;
  /** The whole process's, the elector's and the listener's included. */
  readonly connectionsMax: number;
  /** Lets a URL to a host that is not loopback do without `sslmode=verify-full`. */
  readonly insecureTls: boolean;
  /** Migrates at start instead of refusing a database that is behind. */
  readonly autoMigrate: boolean;
}

/** Everything that `serve` needs to know, complete and checked. */
export interface ServeOptions {
  /** Prints the welcome with commands to paste. */
  readonly dev: boolean;
  readonly listen: ListenAddress;
  readonly metricsListen: ListenAddress;
  readonly backend: FileBackendOptions | PostgresBackendOptions;
  /** Made with a fresh token if it does not exist. */
  readonly adminTokenFile: string;
  readonly signingKeyFile: string;
  /** Whether a missing signing key may be made: only where no other replica needs the same one. */
  readonly makeSigningKey: boolean;
  /** Where this replica keeps the checkpoints of the evidence chain that it has given out. */
  readonly checkpointFile: string;
  /** null: every decision is `deny`. */
  readonly policyDir: string | null;
  /** Where the evidence chain is forwarded to; null: nowhere. */
  readonly auditSinksFile: string | null;
  /** null: as the machine's cores suggest. */
  readonly frontThreads: number | null;
  readonly actorThreads: number | null;
  /** Networks in CIDR form whose forwarded addresses are believed. */
  readonly trustedProxies: readonly string[];
  /** How long a lease outlives its holder. */
  readonly leaseTtlMs: number;
  readonly shutdownGraceMs: number;
  readonly logLevel: LogLevel;
  /** Written once `/readyz` is 200; null: not wanted. */
  readonly readyFile: string | null;
}

const DEV_DATA_DIR = './.halos';
const DEFAULT_LISTEN = '127.0.0.1:8080';
/** The port that Prometheus exporters of the OpenTelemetry family use. */
const DEFAULT_METRICS_LISTEN = '127.0.0.1:9464';
const FREE_METRICS_LISTEN = '127.0.0.1:0';
/** Names of what `serve` makes by itself inside a data directory. */
export const ADMIN_TOKEN_NAME = 'admin-token';
/** Beside the admin token. */
export const SIGNING_KEY_NAME = 'signing-key.pem';
/** In the data directory, or behind the name of the signing key's file. */
export const CHECKPOINTS_NAME = 'published-checkpoints.json';

/** Orchestrators kill after 30 s by default and 5 minutes at the most that anyone waits. */
const SHUTDOWN_GRACE_BOUNDS = { minMs: 0, maxMs: 300_000 };
/** The bounds of the elector itself (`leaseTiming`). */
const LEASE_TTL_BOUNDS = { minMs: LEASE_TTL_MIN_MS, maxMs: LEASE_TTL_MAX_MS };
/** More threads than any machine's cores would only switch. */
const THREAD_BOUNDS = { min: 1, max: 64 };
/** One each for elector, listener, reads and writes; above, a database has better uses. */
const CONNECTION_BOUNDS = { min: 4, max: 1_000 };

const LISTENING = 'Where it listens:';
const DATA = 'Where it keeps its data:';
const SECRETS = 'Secrets and policy:';
const RUNNING = 'How it runs:';

/** The table behind help, command line and environment. */
export const SERVE_OPTIONS = [
  {
    name: 'dev',
    group: LISTENING,
    help: 'all that is needed to try it: files in ./.halos, keys and an admin token made there',
  },
  {
    name: 'listen',
    value: 'HOST:PORT',
    group: LISTENING,
    help: `where clients are served (default ${DEFAULT_LISTEN}; port 0 picks a free one)`,
  },
  {
    name: 'metrics-listen',
    value: 'HOST:PORT',
    group: LISTENING,
    help: `where /metrics is served (default ${DEFAULT_METRICS_LISTEN}; free if --listen is)`,
  },
  {
    name: 'trusted-proxies',
    value: 'CIDR,…',
    group: LISTENING,
    help: 'networks whose Forwarded and X-Forwarded-For are believed (default none)',
  },
  {
    name: 'ready-file',
    value: 'FILE',
    group: LISTENING,
    help: 'written, as JSON with pid and addresses, once the server is ready; removed at exit',
  },
  {
    name: 'data-dir',
    value: 'DIR',
    group: DATA,
    help: 'files, for one process; made if missing',
  },
  {
    name: 'database-url-file',
    value: 'FILE',
    group: DATA,
    help: 'a file that holds the URL of a PostgreSQL database, for any number of replicas',
  },
  {
    name: 'auto-migrate',
    group: DATA,
    help: 'migrate the database at start (needs a role that may create tables)',
  },
  {
    name: 'database-direct-url-file',
    value: 'FILE',
    group: DATA,
    help: 'the same database past the pooler, for LISTEN (default: poll)',
  },
  {
    name: 'database-pooled',
    group: DATA,
    help: 'the URL goes through a transaction pooler: no named prepared statements',
  },
  {
    name: 'database-max-conns',
    value: 'N',
    group: DATA,
    help: 'connections of the whole process (default 16)',
  },
  {
    name: 'database-insecure-tls',
    group: DATA,
    help: 'let a database on another host be reached without sslmode=verify-full',
  },
  {
    name: 'admin-token-file',
    value: 'FILE',
    group: SECRETS,
    help: `lines of token or name:token; made if missing (default DIR/${ADMIN_TOKEN_NAME})`,
  },
  {
    name: 'signing-key-file',
    value: 'FILE',
    group: SECRETS,
    help: `Ed25519 as PKCS 8 PEM; required with a database (default DIR/${SIGNING_KEY_NAME})`,
  },
  {
    name: 'checkpoint-file',
    value: 'FILE',
    group: SECRETS,
    help: `what this replica has published of the chain (default DIR/${CHECKPOINTS_NAME})`,
  },
  {
    name: 'policy-dir',
    value: 'DIR',
    group: SECRETS,
    help: '*.cedar, schema.cedarschema and halos.yaml; without it every decision is deny',
  },
  {
    name: 'audit-sinks-file',
    value: 'FILE',
    group: SECRETS,
    help: 'YAML or JSON: where the evidence chain is forwarded to (default nowhere)',
  },
  {
    name: 'front-threads',
    value: 'N',
    group: RUNNING,
    help: 'threads that serve HTTP (default from the cores)',
  },
  {
    name: 'actor-threads',
    value: 'N',
    group: RUNNING,
    help: 'threads that hold the actors (default from the cores)',
  },
  {
    name: 'lease-ttl',
    value: 'DURATION',
    group: RUNNING,
    help: 'how long leadership outlives a dead leader, 1s to 5m (default 15s)',
  },
  {
    name: 'shutdown-grace',
    value: 'DURATION',
    group: RUNNING,
    help: 'the most that a shutdown waits for requests in flight (default 10s)',
  },
  {
    name: 'log-level',
    value: 'LEVEL',
    group: RUNNING,
    help: `${LOG_LEVELS.join(', ')} (default info)`,
  },
] as const satisfies ReadonlyArray<OptionSpec<string>>;

/** The name of an option of `serve`. */
export type ServeOptionName = (typeof SERVE_OPTIONS)[number]['name'];

type Given = GivenOptions<ServeOptionName>;

/** Reads and checks what was given. Throws `UsageError`. */
export function readServeOptions(given: Given): ServeOptions {
  const backend = readBackend(given);
  const listen = parseListenAddress(given.origin('listen'), given.text('listen') ?? DEFAULT_LISTEN);
  const metricsDefault = listen.port === 0 ? FREE_METRICS_LISTEN : DEFAULT_METRICS_LISTEN;
  return {
    dev: given.on('dev'),
    listen,
    metricsListen: parseListenAddress(
      given.origin('metrics-listen'),
      given.text('metrics-listen') ?? metricsDefault,
    ),
    backend,
    ...readSecrets(given, backend),
    policyDir: readPath(given, 'policy-dir') ?? null,
    auditSinksFile: readPath(given, 'audit-sinks-file') ?? null,
    frontThreads: readThreads(given, 'front-threads'),
    actorThreads: readThreads(given, 'actor-threads'),
    trustedProxies: readNetworks(given),
    leaseTtlMs: readDuration(given, 'lease-ttl', '15s', LEASE_TTL_BOUNDS),
    shutdownGraceMs: readDuration(given, 'shutdown-grace', '10s', SHUTDOWN_GRACE_BOUNDS),
    logLevel: parseChoice(given.origin('log-level'), given.text('log-level') ?? 'info', LOG_LEVELS),
    readyFile: readPath(given, 'ready-file') ?? null,
  };
}

const DATABASE_ONLY = [
  'auto-migrate',
  'database-direct-url-file',
  'database-pooled',
  'database-max-conns',
  'database-insecure-tls',
] as const satisfies readonly ServeOptionName[];

function readBackend(given: Given): ServeOptions['backend'] {
  const urlFile = readPath(given, 'database-url-file');
  const dataDir = readPath(given, 'data-dir');
  if (urlFile === undefined) {
    const stray = DATABASE_ONLY.find((name) => given.on(name) || given.text(name) !== undefined);
    if (stray !== undefined) {
      throw new UsageError(`${given.origin(stray)} needs --database-url-file`);
    }
    if (dataDir === undefined && !given.on('dev')) {
      throw new UsageError(
        'say where the data lives: --data-dir DIR, --database-url-file FILE, or --dev to try it',
      );
    }
    return { kind: 'file', dataDir: dataDir ?? DEV_DATA_DIR };
  }
  const other = dataDir !== undefined ? 'data-dir' : 'dev';
  if (dataDir !== undefined || given.on('dev')) {
    const names = `${given.origin(other)} and ${given.origin('database-url-file')}`;
    throw new UsageError(`${names} exclude each other: the data lives in one place`);
  }
  return {
    kind: 'postgres',
    urlFile,
    directUrlFile: readPath(given, 'database-direct-url-file') ?? null,
    pooled: given.on('database-pooled'),
    connectionsMax: parseWholeNumber(
      given.origin('database-max-conns'),
      given.text('database-max-conns') ?? '16',
      CONNECTION_BOUNDS,
    ),
    insecureTls: given.on('database-insecure-tls'),
    autoMigrate: given.on('auto-migrate'),
  };
}

function readSecrets(
  given: Given,
  backend: ServeOptions['backend'],
): Pick<ServeOptions, 'adminTokenFile' | 'signingKeyFile' | 'makeSigningKey' | 'checkpointFile'> {
  const adminTokenFile = readPath(given, 'admin-token-file');
  const signingKeyFile = readPath(given, 'signing-key-file');
  const checkpointFile = readPath(given, 'checkpoint-file');
  if (backend.kind === 'file') {
    return {
      adminTokenFile: adminTokenFile ?? join(backend.dataDir, ADMIN_TOKEN_NAME),
      signingKeyFile: signingKeyFile ?? join(backend.dataDir, SIGNING_KEY_NAME),
      makeSigningKey: true,
      checkpointFile: checkpointFile ?? join(backend.dataDir, CHECKPOINTS_NAME),
    };
  }
  if (signingKeyFile === undefined) {
    throw new UsageError(
      'a PostgreSQL database needs --signing-key-file: all replicas sign with the same key',
    );
  }
  if (adminTokenFile === undefined) {
    throw new UsageError(
      'a PostgreSQL database needs --admin-token-file: all replicas know the same tokens',
    );
  }
  return {
    adminTokenFile,
    signingKeyFile,
    makeSigningKey: false,
    checkpointFile: checkpointFile ?? `${signingKeyFile}.${CHECKPOINTS_NAME}`,
  };
}

function readPath(given: Given, name: ServeOptionName): string | undefined {
  const text = given.text(name);
  return text === undefined ? undefined : parsePath(given.origin(name), text);
}

function readThreads(given: Given, name: ServeOptionName): number | null {
  const text = given.text(name);
  return text === undefined ? null : parseWholeNumber(given.origin(name), text, THREAD_BOUNDS);
}

function readNetworks(given: Given): readonly string[] {
  const text = given.text('trusted-proxies');
  return text === undefined ? [] : parseNetworks(given.origin('trusted-proxies'), text);
}

function readDuration(
  given: Given,
  name: ServeOptionName,
  otherwise: string,
  bounds: { readonly minMs: number; readonly maxMs: number },
): number {
  return parseDurationMs(given.origin(name), given.text(name) ?? otherwise, bounds);
}
