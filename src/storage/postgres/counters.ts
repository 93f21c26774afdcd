/** Counters and sightings: rows that are only ever added to. Index: the primary keys. */
import type { CounterChange } from '../store.js';
import type { Connections, Statement, Write } from './connections.js';
import { integer, text } from './row.js';

const ADD_ALL: Statement = {
  name: 'halo_counters_add_all',
  text: `
    INSERT INTO halo_counters AS c (key, count, expires_at)
    SELECT key, delta, to_timestamp(expires_ms / 1000)
    FROM unnest($1::text[], $2::int8[], $3::float8[]) AS i (key, delta, expires_ms)
    ORDER BY key
    ON CONFLICT (key) DO UPDATE SET
      count = excluded.count
        + CASE WHEN c.expires_at <= clock_timestamp() THEN 0 ELSE c.count END,
      expires_at = CASE WHEN c.expires_at <= clock_timestamp()
        THEN excluded.expires_at ELSE c.expires_at END`,
};

const GET: Statement = {
  name: 'halo_counters_get',
  text: `
    SELECT key, count FROM halo_counters
    WHERE key = ANY($1::text[]) AND (expires_at IS NULL OR expires_at > clock_timestamp())`,
};

/** One statement; of several changes of a counter the first says when a new one expires. */
export function writeCounters(changes: readonly CounterChange[]): Write[] {
  if (changes.length === 0) return [];
  const sums = new Map<string, CounterChange>();
  for (const change of changes) {
    const earlier = sums.get(change.key);
    const delta = change.delta + (earlier?.delta ?? 0);
    sums.set(change.key, { ...(earlier ?? change), delta });
  }
  const all = [...sums.values()];
  const columns = [all.map(({ key }) => key), all.map(({ delta }) => delta)];
  return [[ADD_ALL, [...columns, all.map(({ expiresAtMs }) => expiresAtMs)]]];
}

export async function getCounters(
  connections: Connections,
  keys: readonly string[],
): Promise<Map<string, number>> {
  const rows = keys.length === 0 ? [] : await connections.read(GET, [keys]);
  return new Map(rows.map((row) => [text(row, 0), integer(row, 1)]));
}

/**
 * Sorted, so that batches of two replicas never wait for each other. What does not move is not
 * written: a row that is not updated leaves no old version behind.
 */
const RECORD_SIGHTINGS: Statement = {
  name: 'halo_device_seen_record',
  text: `
    INSERT INTO halo_device_seen AS s (device, seen_at)
    SELECT device, to_timestamp(seen_ms / 1000)
    FROM unnest($1::text[], $2::float8[]) AS i (device, seen_ms) ORDER BY device
    ON CONFLICT (device) DO UPDATE SET seen_at = excluded.seen_at
    WHERE s.seen_at < excluded.seen_at`,
};

const GET_SIGHTINGS: Statement = {
  name: 'halo_device_seen_get',
  text: `
    SELECT device, (date_part('epoch', seen_at) * 1000)::int8
    FROM halo_device_seen WHERE device = ANY($1::text[])`,
};

export async function recordSightings(
  connections: Connections,
  seenAtMs: ReadonlyMap<string, number>,
): Promise<void> {
  if (seenAtMs.size === 0) return;
  await connections.write(RECORD_SIGHTINGS, [[...seenAtMs.keys()], [...seenAtMs.values()]]);
}

export async function getSightings(
  connections: Connections,
  ids: readonly string[],
): Promise<Map<string, number>> {
  const rows = ids.length === 0 ? [] : await connections.read(GET_SIGHTINGS, [ids]);
  return new Map(rows.map((row) => [text(row, 0), integer(row, 1)]));
}
