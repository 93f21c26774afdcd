/** The PostgreSQL of a load run: one server, a database for Halos and one for the baseline. */
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import pg from 'pg';
import { digestOf } from '../src/actors/secrets.js';
import { type PostgresServer, startPostgres } from '../test/fixtures/postgres-server.js';
import type { LoadDevice } from './devices.js';
import { treeCpuMs } from './process-usage.js';

/** Two pools of 16 for each of 8 replicas, the baseline's 16, and the superuser's. */
const CONNECTIONS_MAX = 300;
/** Rows per INSERT: a few hundred kilobytes of parameters. */
const ROWS_PER_INSERT = 5_000;

export class LoadDatabases {
  private constructor(
    private readonly server: PostgresServer,
    private readonly directory: string,
  ) {}

  /** With fsync on, since nobody would run it without. */
  static async start(directory: string): Promise<LoadDatabases> {
    const server = await startPostgres({ fsync: true, maxConnections: CONNECTIONS_MAX });
    return new LoadDatabases(server, directory);
  }

  /** What the report names: "18.0" and the like. */
  async version(): Promise<string> {
    const rows = await this.server.sql("SELECT current_setting('server_version') AS version");
    return String(rows[0]?.['version']);
  }

  /** Where its files are: for what its disk takes. */
  get dataDirectory(): string {
    return this.server.dataDir;
  }

  /**
   * Transactions that ended in a database so far, each statement outside of one included. Backends
   * report within a second after they did something.
   */
  async transactions(database: string): Promise<number> {
    const rows = await this.server.sql(
      `SELECT xact_commit + xact_rollback AS ended FROM pg_stat_database
       WHERE datname = '${database}'`,
    );
    return Number(rows[0]?.['ended']);
  }

  /** Makes a role and a database of its own with that name; returns the file with its URL. */
  async create(name: string): Promise<string> {
    await this.server.sql(`CREATE ROLE ${name} LOGIN PASSWORD '${name}'`);
    await this.server.sql(`CREATE DATABASE ${name} OWNER ${name}`);
    const file = join(this.directory, `${name}.url`);
    writeFileSync(file, `${this.server.url(name, name, name)}\n`, { mode: 0o600 });
    return file;
  }

  /** The baseline's table, with the same devices as Halos has. */
  async fillBaseline(name: string, devices: readonly LoadDevice[]): Promise<void> {
    const client = new pg.Client({ connectionString: this.server.url(name, name, name) });
    await client.connect();
    try {
      await client.query(
        'CREATE TABLE devices (digest text PRIMARY KEY, id text NOT NULL, "user" text NOT NULL)',
      );
      for (let start = 0; start < devices.length; start += ROWS_PER_INSERT) {
        const page = devices.slice(start, start + ROWS_PER_INSERT);
        await client.query(
          'INSERT INTO devices SELECT * FROM unnest($1::text[], $2::text[], $3::text[])',
          [
            page.map(({ credential }) => digestOf(credential)),
            page.map(({ id }) => id),
            page.map(({ user }) => user),
          ],
        );
      }
      await client.query('ANALYZE devices');
    } finally {
      await client.end();
    }
  }

  cpuMs(): number {
    return treeCpuMs(this.server.pid);
  }

  async stop(): Promise<void> {
    await this.server.stop('fast');
  }
}
