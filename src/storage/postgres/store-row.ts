/** The one row that is the store's identity, and the sweep of what has expired. */
import type { Random } from '../../runtime/random.js';
import type { Connections, Statement } from './connections.js';
import { integer, text } from './row.js';

const REPLACE_EPOCH: Statement = {
  name: 'halo_store_replace_epoch',
  text: 'UPDATE halo_store SET epoch = $2 WHERE epoch = $1',
};

/**
 * A statement of its own, so that it sees what another replica replaced while the one before it
 * waited. (Tried in one statement: the one that came second was told the old epoch.)
 */
const EPOCH: Statement = { name: 'halo_store_epoch', text: 'SELECT epoch FROM halo_store' };

const EPOCH_BYTES = 8;

/** Compare-and-set: of the replicas that notice the same restore, one replaces the epoch. */
export async function replaceEpoch(
  connections: Connections,
  random: Random,
  seenEpoch: string,
): Promise<string> {
  const next = Buffer.from(random.bytes(EPOCH_BYTES)).toString('hex');
  await connections.write(REPLACE_EPOCH, [seenEpoch, next]);
  const [row] = await connections.read(EPOCH, []);
  return text(row ?? [], 0);
}

/**
 * Small and off the request path. Rows that somebody holds are left for the next time, so that it
 * never waits. Indexes: the partial ones on expires_at; the statement's time, since a clock that
 * moves within the statement could not use them. Acknowledgements have none: they are few.
 */
const SWEEP: Statement = {
  name: 'halo_sweep',
  text: `
    WITH kv AS (
      DELETE FROM halo_kv WHERE key IN (
        SELECT key FROM halo_kv WHERE expires_at <= statement_timestamp()
        ORDER BY expires_at LIMIT $1 FOR UPDATE SKIP LOCKED)
      RETURNING 1
    ), documents AS (
      DELETE FROM halo_documents WHERE (kind, id) IN (
        SELECT kind, id FROM halo_documents WHERE expires_at <= statement_timestamp()
        ORDER BY expires_at LIMIT $1 FOR UPDATE SKIP LOCKED)
      RETURNING 1
    ), counters AS (
      DELETE FROM halo_counters WHERE key IN (
        SELECT key FROM halo_counters WHERE expires_at <= statement_timestamp()
        ORDER BY expires_at LIMIT $1 FOR UPDATE SKIP LOCKED)
      RETURNING 1
    ), acks AS (
      DELETE FROM halo_gateway_acks WHERE (replica_start, gateway) IN (
        SELECT replica_start, gateway FROM halo_gateway_acks
        WHERE expires_at <= statement_timestamp() LIMIT $1 FOR UPDATE SKIP LOCKED)
      RETURNING 1
    )
    SELECT (SELECT count(*) FROM kv) + (SELECT count(*) FROM documents)
      + (SELECT count(*) FROM counters) + (SELECT count(*) FROM acks)`,
};

/** Removes at most `limit` expired values, documents and counters each; says how many. */
export async function sweep(connections: Connections, limit: number): Promise<number> {
  const [row] = await connections.write(SWEEP, [limit]);
  return integer(row ?? [], 0);
}
