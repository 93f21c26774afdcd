/**
 * The rows of leases, on a connection of its own: neither traffic nor a pool that is in use up to
 * its last connection keeps a leader from renewing, nor a candidate from asking. The database's
 * clock judges. Index: the primary key.
 *
 * A connection that does not answer within `boundMs` is given up, and another made for the next
 * claim. What the server does with a claim after that is harmless: a holder that does not know that
 * it was granted lets it run out.
 */
import pg from 'pg';
import type { Clock, Timer } from '../../runtime/clock.js';
import type { ClaimedLease, Fence, LeaseClaim, LeaseRow, LeaseStore } from '../../runtime/lease.js';
import type { Random } from '../../runtime/random.js';
import { STEP_DOWN_PREFIX } from '../lease-table.js';
import { StoreError } from '../store-error.js';
import { clientConfig, type DatabaseAccess, directConfig } from './connection.js';
import { type Connections, rawText, type Statement } from './connections.js';
import { toStoreError } from './database-error.js';
import { LEASES_CHANGED, LEASES_CHANNEL } from './listener.js';
import { flag, integer, integerOrNull, type Row, text } from './row.js';

/**
 * A new lease's token is the time, and a later one greater than the time as well: so a token never
 * comes twice, not even when a failover lost the row or a restore brought an old one back.
 * The times are taken in `SET`, after any wait for a fenced write that holds the row.
 */
const CLAIM = `
  WITH asked AS (
    SELECT name, holder FROM unnest($1::text[], $2::text[]) AS a (name, holder) ORDER BY name
  ), claimed AS (
    INSERT INTO halo_leases AS l (name, holder, token, expires_at)
    SELECT name, holder, (date_part('epoch', clock_timestamp()) * 1000)::int8,
      clock_timestamp() + $3::float8 * interval '1 millisecond'
    FROM asked ORDER BY name
    ON CONFLICT (name) DO UPDATE SET
      holder = excluded.holder,
      token = CASE WHEN l.holder = excluded.holder AND l.expires_at > clock_timestamp()
        THEN l.token
        ELSE greatest(l.token + 1, (date_part('epoch', clock_timestamp()) * 1000)::int8) END,
      expires_at = clock_timestamp() + $3::float8 * interval '1 millisecond'
    WHERE l.holder = excluded.holder OR l.expires_at <= clock_timestamp()
    RETURNING l.name, l.holder, l.token, l.expires_at
  )
  SELECT a.name, c.name IS NOT NULL, coalesce(c.holder, l.holder, ''),
    coalesce(c.token, l.token, 0),
    coalesce(ceil(date_part('epoch',
      coalesce(c.expires_at, l.expires_at) - clock_timestamp()) * 1000)::int8, 0),
    s.value::int8
  FROM asked a
  LEFT JOIN claimed c ON c.name = a.name
  LEFT JOIN halo_leases l ON l.name = a.name
  LEFT JOIN halo_kv s ON s.key = '${STEP_DOWN_PREFIX}' || a.name
    AND (s.expires_at IS NULL OR s.expires_at > clock_timestamp())`;

/** The row stays, and with it the token that the next one must be above. */
const RELEASE = `
  WITH released AS (
    UPDATE halo_leases l SET expires_at = clock_timestamp()
    FROM unnest($1::text[], $2::text[], $3::int8[]) AS f (name, holder, token)
    WHERE l.name = f.name AND l.holder = f.holder AND l.token = f.token
    RETURNING 1)
  SELECT pg_notify('${LEASES_CHANNEL}', '${LEASES_CHANGED}') FROM released LIMIT 1`;

/**
 * The row stays locked until the end: a takeover waits for it. A term that was taken over while
 * this waited is not found any more, since the row is then read again. Index: the primary key.
 */
export const LOCK_TERM: Statement = {
  name: 'halo_leases_lock_term',
  text: `
    SELECT 1 FROM halo_leases
    WHERE name = $1 AND holder = $2 AND token = $3 AND expires_at > clock_timestamp() FOR SHARE`,
};

const LIST: Statement = {
  name: 'halo_leases_list',
  text: `
    SELECT name, holder, token,
      ceil(date_part('epoch', expires_at - clock_timestamp()) * 1000)::int8
    FROM halo_leases ORDER BY name`,
};

/** The server gives up a little before the client does. */
const SETTINGS = ['lock_timeout=1500', 'statement_timeout=1800'];
const BOUND_MAX_MS = 2_000;
/** A connection is made within this on the same network, whatever the lease's life is. */
const BOUND_MIN_MS = 300;

/** How to reach the database, and whether the way leads through a pooler. */
export interface LeasesOptions extends DatabaseAccess {
  /** Then hints cannot be heard. */
  readonly pooled: boolean;
  readonly clock: Clock;
  readonly random: Random;
}

/** Every lease that there is, expired ones included. */
export async function listLeases(connections: Connections): Promise<LeaseRow[]> {
  const rows = await connections.read(LIST, []);
  return rows.map((row) => ({
    lease: text(row, 0),
    holder: text(row, 1),
    token: integer(row, 2),
    remainingMs: integer(row, 3),
  }));
}

/** For the elector alone; connects when it is first asked. */
export class PostgresLeases implements LeaseStore {
  readonly #config: pg.ClientConfig;
  readonly #beat: string;
  #client: Promise<pg.Client> | undefined;
  #hinted = false;
  #closed = false;
  #onHint: () => void = () => undefined;
  /** Failures of the database, for `halo_db_errors_total`. */
  errors = 0;

  constructor(private readonly options: LeasesOptions) {
    const config = clientConfig(options);
    this.#config = options.pooled ? config : directConfig(config, SETTINGS);
    this.#beat = `beat ${Buffer.from(options.random.bytes(8)).toString('hex')}`;
  }

  get isHinted(): boolean {
    return this.#hinted;
  }

  onHint(callback: () => void): void {
    this.#onHint = callback;
  }

  async claim(claims: readonly LeaseClaim[], ttlMs: number): Promise<ClaimedLease[]> {
    const names = claims.map(({ lease }) => lease);
    const holders = claims.map(({ holder }) => holder);
    const rows = await this.#run(CLAIM, [names, holders, ttlMs], boundOf(ttlMs));
    const byName = new Map(rows.map((row) => [text(row, 0), row]));
    return names.map((lease) => {
      const row = byName.get(lease) ?? [];
      return {
        lease,
        granted: flag(row, 1),
        holder: text(row, 2),
        token: integer(row, 3),
        remainingMs: integer(row, 4),
        stepDownToken: integerOrNull(row, 5),
      };
    });
  }

  async release(fences: readonly Fence[]): Promise<void> {
    const columns = [
      fences.map(({ lease }) => lease),
      fences.map(({ holder }) => holder),
      fences.map(({ token }) => token),
    ];
    await this.#run(RELEASE, columns, BOUND_MAX_MS);
  }

  async close(): Promise<void> {
    this.#closed = true;
    const client = await this.#client?.catch(() => undefined);
    this.#client = undefined;
    await client?.end().catch(() => undefined);
  }

  async #run(query: string, values: readonly unknown[], boundMs: number): Promise<Row[]> {
    if (this.#closed) throw new StoreError('store_unavailable', 'The store is closed.');
    let isLate = false;
    let connected: pg.Client | undefined;
    const connecting = this.#client ?? this.#connect();
    this.#client = connecting;
    let timer: Timer | undefined;
    const giveUp = new Promise<never>((_, reject) => {
      timer = this.options.clock.schedule(() => {
        isLate = true;
        connected?.connection.stream.destroy();
        reject(new StoreError('store_unavailable', `No answer within ${Math.round(boundMs)} ms.`));
      }, boundMs);
    });
    const asked = connecting.then((client) => {
      connected = client;
      const config = { text: query, values: values as unknown[], rowMode: 'array' as const };
      return client.query<(string | null)[]>({ ...config, types: rawText });
    });
    asked.catch(() => undefined);
    try {
      return (await Promise.race([asked, giveUp])).rows;
    } catch (error) {
      this.errors += 1;
      this.#drop(connecting);
      throw isLate ? error : toStoreError(error);
    } finally {
      timer?.cancel();
    }
  }

  async #connect(): Promise<pg.Client> {
    const client = new pg.Client(this.#config);
    client.on('error', () => undefined);
    client.on('notification', ({ payload }) => {
      if (payload === this.#beat) this.#hinted = true;
      else if (payload === LEASES_CHANGED) this.#onHint();
    });
    await client.connect();
    if (this.options.pooled) return client;
    // Hints count only once one of our own has come back: nobody says that this is no pooler.
    const beat = `SELECT pg_notify('${LEASES_CHANNEL}', '${this.#beat}')`;
    await client.query(`LISTEN ${LEASES_CHANNEL}; ${beat}`);
    return client;
  }

  /** What failed once is not asked again, whatever it failed of. */
  #drop(connecting: Promise<pg.Client>): void {
    if (this.#client !== connecting) return;
    this.#client = undefined;
    this.#hinted = false;
    void connecting.then(
      (client) => client.connection.stream.destroy(),
      () => undefined,
    );
  }
}

/** A renewal that is not answered in a third of the lease's life is worth another attempt. */
function boundOf(ttlMs: number): number {
  return Math.min(BOUND_MAX_MS, Math.max(BOUND_MIN_MS, ttlMs / 3));
}
