/**
 * Proves that the store can be written, the way a client would: a connection of its own, made anew
 * each time, so that a full server, a changed password, a standby or a hung network all fail it.
 * The write is the replica's row, by which `migrate --finish` knows who is alive. A ping costs
 * about 1 ms of CPU here (2.7 with SCRAM) and 3 to 4 ms at the server, which starts a process.
 */
import pg from 'pg';
import type { Clock } from '../../runtime/clock.js';
import { FORMAT_NEWEST } from '../envelope.js';
import { StoreError } from '../store-error.js';
import { clientConfig, type DatabaseAccess } from './connection.js';
import { toStoreError } from './database-error.js';
import type { Row } from './row.js';

/** Readiness says so within three seconds of a fault: one of these after one a second. */
export const PING_MAX_MS = 2_000;
/** A replica that was not heard of for fifteen pings does not run any more. */
const REPLICA_TTL_SECONDS = 15;

const RENEW = `
  INSERT INTO halo_replicas (replica, reads_format, expires_at)
  VALUES ($1, $2, clock_timestamp() + interval '${REPLICA_TTL_SECONDS} seconds')
  ON CONFLICT (replica) DO UPDATE
  SET reads_format = excluded.reads_format, expires_at = excluded.expires_at
  RETURNING current_setting('synchronous_commit')`;
/** Those that died long ago; skipped where another replica does the same. */
const FORGET = `
  DELETE FROM halo_replicas WHERE replica = $1
  OR replica IN (SELECT replica FROM halo_replicas
    WHERE expires_at < clock_timestamp() - interval '1 hour' FOR UPDATE SKIP LOCKED)`;

/** Whom the probe speaks for. It has no connection between two pings. */
export interface ProbeOptions extends DatabaseAccess {
  /** Names this process among the replicas, the same for its whole life. */
  readonly replica: string;
  readonly clock: Clock;
}

/** Made to be called once a second, by the thread that answers for readiness. */
export class PostgresProbe {
  readonly #config: pg.ClientConfig;

  constructor(private readonly options: ProbeOptions) {
    this.#config = clientConfig(options);
  }

  /**
   * Rejects with `store_unavailable` within `PING_MAX_MS` when the store cannot be written, or when
   * it says that something is written before it is: what the start refuses may come later.
   */
  async ping(): Promise<void> {
    const [row] = await this.#run(RENEW, [this.options.replica, FORMAT_NEWEST]);
    if (row?.[0] !== 'off') return;
    throw new StoreError('store_unavailable', 'synchronous_commit is off for this role.');
  }

  /** At shutdown: this replica no longer holds up an upgrade. */
  async remove(): Promise<void> {
    await this.#run(FORGET, [this.options.replica]);
  }

  async #run(text: string, values: readonly unknown[]): Promise<Row[]> {
    const client = new pg.Client(this.#config);
    const { stream } = client.connection;
    client.on('error', () => undefined);
    let isLate = false;
    const timer = this.options.clock.schedule(() => {
      isLate = true;
      stream.destroy();
    }, PING_MAX_MS);
    try {
      await client.connect();
      const query = { text, values: values as unknown[], rowMode: 'array' as const };
      return (await client.query<(string | null)[]>(query)).rows;
    } catch (error) {
      const late = `The database did not answer within ${PING_MAX_MS} ms.`;
      throw isLate ? new StoreError('store_unavailable', late) : toStoreError(error);
    } finally {
      timer.cancel();
      client.end().catch(() => undefined);
    }
  }
}
