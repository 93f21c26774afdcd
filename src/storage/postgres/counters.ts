/** Counters and sightings: rows that are only ever added to. Index: the primary keys. */
import type { Count, Counted, CounterChange } from '../store.js';
import type { Connections, Statement, Write } from './connections.js';
import { integer, integerOrNull, text } from './row.js';

/**
 * The clock is read once for each row that is there, under its lock: with a reading for the count
 * and another for the end, a counter that expired between the two would get the end of a new one
 * and keep the count of the old.
 */
const ADD_TO = `
  ON CONFLICT (key) DO UPDATE SET (count, expires_at) = (
    SELECT excluded.count + CASE WHEN now.ended THEN 0 ELSE c.count END,
      CASE WHEN now.ended THEN excluded.expires_at ELSE c.expires_at END
    FROM (SELECT coalesce(c.expires_at <= clock_timestamp(), false) AS ended) AS now)`;

const ADD_ALL: Statement = {
  name: 'halo_counters_add_all',
  text: `
    INSERT INTO halo_counters AS c (key, count, expires_at)
    SELECT key, delta, to_timestamp(expires_ms / 1000)
    FROM unnest($1::text[], $2::int8[], $3::float8[]) AS i (key, delta, expires_ms)
    ORDER BY key
    ${ADD_TO}`,
};

const COUNT: Statement = {
  name: 'halo_counters_count',
  text: `
    INSERT INTO halo_counters AS c (key, count, expires_at)
    SELECT key, delta, statement_timestamp() + ttl_ms * interval '1 millisecond'
    FROM unnest($1::text[], $2::int8[], $3::float8[]) AS i (key, delta, ttl_ms)
    ORDER BY key
    ${ADD_TO}
    RETURNING key, count, (date_part('epoch', expires_at) * 1000)::int8`,
};

const GET: Statement = {
  name: 'halo_counters_get',
  text: `
    SELECT key, count FROM halo_counters
    WHERE key = ANY($1::text[]) AND (expires_at IS NULL OR expires_at > clock_timestamp())`,
};

/** One change for each key: a statement can touch a row only once. The first says the expiry. */
function addedUp<Change extends { readonly key: string; readonly delta: number }>(
  changes: readonly Change[],
): Change[] {
  const sums = new Map<string, Change>();
  for (const change of changes) {
    const earlier = sums.get(change.key);
    const delta = change.delta + (earlier?.delta ?? 0);
    sums.set(change.key, { ...(earlier ?? change), delta });
  }
  return [...sums.values()];
}

/** One statement; of several changes of a counter the first says when a new one expires. */
export function writeCounters(changes: readonly CounterChange[]): Write[] {
  if (changes.length === 0) return [];
  const all = addedUp(changes);
  const columns = [all.map(({ key }) => key), all.map(({ delta }) => delta)];
  return [[ADD_ALL, [...columns, all.map(({ expiresAtMs }) => expiresAtMs)]]];
}

/** See `Store.counters`: those that are absent or have expired are left out. */
export async function getCounters(
  connections: Connections,
  keys: readonly string[],
): Promise<Map<string, number>> {
  const rows = keys.length === 0 ? [] : await connections.read(GET, [keys]);
  return new Map(rows.map((row) => [text(row, 0), integer(row, 1)]));
}

/** See `Store.count`. When the answer is lost, the counts may have been made. */
export async function count(
  connections: Connections,
  counts: readonly Count[],
): Promise<Map<string, Counted>> {
  const all = addedUp(counts);
  const columns = [
    all.map(({ key }) => key),
    all.map(({ delta }) => delta),
    all.map(({ ttlMs }) => ttlMs),
  ];
  const rows = all.length === 0 ? [] : await connections.write(COUNT, columns);
  return new Map(
    rows.map((row) => [
      text(row, 0),
      { value: integer(row, 1), expiresAtMs: integerOrNull(row, 2) },
    ]),
  );
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

/** See `Store.recordSightings`. */
export async function recordSightings(
  connections: Connections,
  seenAtMs: ReadonlyMap<string, number>,
): Promise<void> {
  if (seenAtMs.size === 0) return;
  await connections.write(RECORD_SIGHTINGS, [[...seenAtMs.keys()], [...seenAtMs.values()]]);
}

/** See `Store.sightings`. */
export async function getSightings(
  connections: Connections,
  ids: readonly string[],
): Promise<Map<string, number>> {
  const rows = ids.length === 0 ? [] : await connections.read(GET_SIGHTINGS, [ids]);
  return new Map(rows.map((row) => [text(row, 0), integer(row, 1)]));
}
