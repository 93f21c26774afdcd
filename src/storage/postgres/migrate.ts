/**
 * Brings a database to the schema of this binary, and says whether it is there. Everything is one
 * transaction under a lock, so that of replicas that start together on an empty database one
 * applies each migration and the others find it done. DESIGN §3, "Migrations".
 */
import pg from 'pg';
import { FORMAT_NEWEST } from '../envelope.js';
import { clientConfig, type DatabaseAccess } from './connection.js';
import { DatabaseError, serverError, toStoreError } from './database-error.js';
import { type Migration, readMigrations } from './migrations.js';

/** Where the database is, by a role that may change its tables (`check` and `plan` only read). */
export interface MigrationOptions extends DatabaseAccess {
  /** The files of this binary unless given, as a test does. */
  readonly migrations?: readonly Migration[];
}

/** How far database and binary are apart, for `halo-server migrate --plan` and `--check`. */
export interface MigrationPlan {
  /** Of the database; 0 when it is empty. */
  readonly version: number;
  /** Of this binary. */
  readonly target: number;
  readonly pending: readonly { readonly version: number; readonly name: string }[];
  /** Settings that are off, so that a crash of the database's machine can lose what is written. */
  readonly hazards: readonly string[];
}

/** What one call of `migrate` did; `applied` is empty where another process had done it all. */
export interface MigrationResult {
  /** Before this call. */
  readonly from: number;
  readonly to: number;
  readonly applied: readonly { readonly version: number; readonly name: string }[];
}

/** 64 bits that nothing else in this database locks: "halomigr" in ASCII. */
const MIGRATION_LOCK = '7521983763894560626';
/** Who waits longer for another's migration gives up, and its orchestrator tries again. */
const LOCK_WAIT_MS = 300_000;
/** The process stopped in the middle of a migration: free the others. */
const IDLE_IN_TRANSACTION_MS = 60_000;
const OLDEST_SERVER = 140_000;

/** What `migrate` would do. Changes nothing, and does not wait for another's migration. */
export function plan(options: MigrationOptions): Promise<MigrationPlan> {
  return connected(options, async (client) => {
    const migrations = options.migrations ?? readMigrations();
    const applied = await readApplied(client);
    const version = applied.at(-1)?.version ?? 0;
    const pending = migrations.filter((migration) => migration.version > version).map(summary);
    return { version, target: migrations.length, pending, hazards: await readHazards(client) };
  });
}

/**
 * Applies what is missing. Throws `schema_ahead` as `check` does, `database_unsuitable` for a
 * server or an encoding that does not fit.
 */
export function migrate(options: MigrationOptions): Promise<MigrationResult> {
  return connected(options, async (client) => {
    const migrations = options.migrations ?? readMigrations();
    await requireSuitable(client);
    return locked(client, async () => {
      await client.query(MIGRATIONS_TABLE);
      const applied = await readApplied(client);
      requireNotAhead(applied, migrations.length);
      const from = applied.at(-1)?.version ?? 0;
      const pending = migrations.slice(from);
      for (const migration of pending) await apply(client, migration);
      // Nobody older can be on a database that was empty a moment ago.
      if (from === 0) await client.query(RAISE_WRITE_FORMAT, [FORMAT_NEWEST]);
      return { from, to: Math.max(from, migrations.length), applied: pending.map(summary) };
    });
  });
}

/**
 * Whether this binary can run on the database. Throws `schema_behind`, `schema_ahead` unless every
 * newer migration still accepts this binary, and `database_unsuitable`. Needs no right but SELECT.
 */
export function check(options: MigrationOptions): Promise<MigrationPlan> {
  return connected(options, async (client) => {
    await requireSuitable(client);
    const migrations = options.migrations ?? readMigrations();
    const applied = await readApplied(client);
    const version = applied.at(-1)?.version ?? 0;
    if (version < migrations.length) {
      throw new DatabaseError(
        'schema_behind',
        `The database is at schema version ${version} and this binary needs ` +
          `${migrations.length}: run halo-server migrate.`,
      );
    }
    requireNotAhead(applied, migrations.length);
    const hazards = await readHazards(client);
    return { version, target: migrations.length, pending: [], hazards };
  });
}

/** What `finish` came to; both are equal when the newest format was written already. */
export interface FinishResult {
  /** The envelope format that was written before, and the one that is written now. */
  readonly from: number;
  readonly to: number;
}

/**
 * Ends a rolling upgrade: new records are written in the newest format from now on. Throws
 * `replica_too_old`, naming the replica, while one that is alive reads only older ones.
 */
export function finish(options: MigrationOptions): Promise<FinishResult> {
  return connected(options, (client) =>
    locked(client, async () => {
      const old = await client.query<{ replica: string; reads_format: number }>(OLD_REPLICAS, [
        FORMAT_NEWEST,
      ]);
      const [replica] = old.rows;
      if (replica !== undefined) {
        throw new DatabaseError(
          'replica_too_old',
          `Replica ${replica.replica} reads envelope formats up to ${replica.reads_format} only: ` +
            `replace it before format ${FORMAT_NEWEST} is written.`,
        );
      }
      const before = await client.query<{ write_format: number }>(WRITE_FORMAT);
      const from = before.rows[0]?.write_format ?? 0;
      if (from > FORMAT_NEWEST) {
        throw new DatabaseError(
          'schema_ahead',
          `The database writes envelope format ${from}; this binary knows ${FORMAT_NEWEST}.`,
        );
      }
      await client.query(RAISE_WRITE_FORMAT, [FORMAT_NEWEST]);
      return { from, to: FORMAT_NEWEST };
    }),
  );
}

const MIGRATIONS_TABLE = `
  CREATE TABLE IF NOT EXISTS halo_schema_migrations (
    version integer PRIMARY KEY CHECK (version >= 1),
    min_binary integer NOT NULL CHECK (min_binary >= 1),
    name text NOT NULL,
    applied_at timestamptz NOT NULL DEFAULT clock_timestamp()
  )`;
const HAS_MIGRATIONS_TABLE = "SELECT to_regclass('halo_schema_migrations') IS NOT NULL AS found";
const APPLIED = 'SELECT version, min_binary, name FROM halo_schema_migrations ORDER BY version';
const RECORD_APPLIED =
  'INSERT INTO halo_schema_migrations (version, min_binary, name) VALUES ($1, $2, $3)';
const OLD_REPLICAS = `
  SELECT replica, reads_format FROM halo_replicas
  WHERE reads_format < $1 AND expires_at > clock_timestamp() ORDER BY replica LIMIT 1`;
const WRITE_FORMAT = 'SELECT write_format FROM halo_store FOR UPDATE';
const RAISE_WRITE_FORMAT = 'UPDATE halo_store SET write_format = $1 WHERE write_format < $1';
/** A bound meant for queries of people must end no migration. The second is PostgreSQL 17's. */
const UNBOUNDED = `
  SELECT set_config(name, '0', true) FROM pg_settings
  WHERE name IN ('statement_timeout', 'transaction_timeout')`;
const SUITABILITY = `
  SELECT current_setting('server_version_num')::integer AS version,
    current_setting('server_encoding') AS encoding,
    current_setting('synchronous_commit') AS commits`;
/** Made for throw-away databases, so no reason to refuse; each is lost data on a bad day. */
const HAZARDS = `
  SELECT name FROM pg_settings WHERE name IN ('fsync', 'full_page_writes') AND setting = 'off'
  ORDER BY name`;

interface Applied {
  readonly version: number;
  readonly min_binary: number;
  readonly name: string;
}

async function readApplied(client: pg.Client): Promise<readonly Applied[]> {
  const { rows } = await client.query<{ found: boolean }>(HAS_MIGRATIONS_TABLE);
  if (rows[0]?.found !== true) return [];
  return (await client.query<Applied>(APPLIED)).rows;
}

async function readHazards(client: pg.Client): Promise<string[]> {
  const { rows } = await client.query<{ name: string }>(HAZARDS);
  return rows.map(({ name }) => name);
}

async function apply(client: pg.Client, migration: Migration): Promise<void> {
  try {
    await client.query(migration.sql);
  } catch (error) {
    const said = serverError(error);
    if (said === undefined) throw error;
    throw new DatabaseError(
      'migration_invalid',
      `Migration ${migration.version} (${migration.name}) failed with ${said.code}; ` +
        'nothing was changed.',
      { cause: error },
    );
  }
  await client.query(RECORD_APPLIED, [migration.version, migration.minBinary, migration.name]);
}

function requireNotAhead(applied: readonly Applied[], target: number): void {
  const refusing = applied.find((row) => row.version > target && row.min_binary > target);
  if (refusing === undefined) return;
  throw new DatabaseError(
    'schema_ahead',
    `The database has migration ${refusing.version} (${refusing.name}), which accepts binaries ` +
      `from schema version ${refusing.min_binary} on; this one is ${target}: use a newer binary.`,
  );
}

/**
 * A commit that is answered before it is durable can be lost by a crash that the server survives
 * without a restart, which nobody would notice.
 */
async function requireSuitable(client: pg.Client): Promise<void> {
  const { rows } = await client.query<{ version: number; encoding: string; commits: string }>(
    SUITABILITY,
  );
  const { version = 0, encoding = '', commits = '' } = rows[0] ?? {};
  if (version < OLDEST_SERVER || encoding !== 'UTF8') {
    throw new DatabaseError(
      'database_unsuitable',
      `Halos needs PostgreSQL 14 or newer with a database in UTF8; ` +
        `this is ${Math.floor(version / 10_000)} with ${encoding}.`,
    );
  }
  if (commits === 'off') {
    throw new DatabaseError(
      'database_unsuitable',
      'The database answers before a commit is durable: synchronous_commit must not be off.',
    );
  }
}

function summary({ version, name }: Migration): { version: number; name: string } {
  return { version, name };
}

/** Everything or nothing, one migrator at a time. The lock ends with the transaction. */
async function locked<T>(client: pg.Client, work: () => Promise<T>): Promise<T> {
  await client.query('BEGIN ISOLATION LEVEL READ COMMITTED');
  try {
    await client.query(UNBOUNDED);
    await client.query(`SET LOCAL lock_timeout = ${LOCK_WAIT_MS}`);
    await client.query(`SET LOCAL idle_in_transaction_session_timeout = ${IDLE_IN_TRANSACTION_MS}`);
    await client.query(`SELECT pg_advisory_xact_lock(${MIGRATION_LOCK})`);
    const result = await work();
    const { command } = await client.query('COMMIT');
    if (command !== 'COMMIT') throw new Error(`COMMIT was answered with ${command}.`);
    return result;
  } catch (error) {
    await client.query('ROLLBACK').catch(() => undefined);
    throw error;
  }
}

/** A connection of its own, ended whatever happens. */
async function connected<T>(
  access: DatabaseAccess,
  work: (client: pg.Client) => Promise<T>,
): Promise<T> {
  const client = new pg.Client(clientConfig(access));
  // A connection that breaks fails the query that runs; the event must only not be unheard.
  client.on('error', () => undefined);
  try {
    await client.connect();
    return await work(client);
  } catch (error) {
    throw error instanceof DatabaseError ? error : toStoreError(error);
  } finally {
    await client.end().catch(() => undefined);
  }
}
