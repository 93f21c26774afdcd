/**
 * Values with an expiry, all judged on the database's clock. Index: the primary key; the sweep uses
 * halo_kv_expiry. An expired row is as good as none, until the sweep or a new value removes it.
 */
import type { KeyValue, KvChange, KvEntry } from '../store.js';
import { StoreError } from '../store-error.js';
import type { Connections, Statement, Write } from './connections.js';
import { serverError } from './database-error.js';
import { flag, integer, integerOrNull, type Row, text } from './row.js';

const LIVE = '(expires_at IS NULL OR expires_at > clock_timestamp())';
const EXPIRES_MS = "(date_part('epoch', expires_at) * 1000)::int8";
/** From a lifetime in milliseconds; null is for ever. Counted from the moment it is written. */
const FROM_TTL = "clock_timestamp() + $3::float8 * interval '1 millisecond'";

const GET: Statement = {
  name: 'halo_kv_get',
  text: `SELECT key, value, ${EXPIRES_MS} FROM halo_kv WHERE key = ANY($1::text[]) AND ${LIVE}`,
};

/** In key order, so that two units never wait for each other; expired rows are locked as well. */
export const LOCK_VALUES: Statement = {
  name: 'halo_kv_lock',
  text: `
    SELECT key, value, ${EXPIRES_MS}, ${LIVE} FROM halo_kv
    WHERE key = ANY($1::text[]) ORDER BY key FOR UPDATE`,
};

const PUT: Statement = {
  name: 'halo_kv_put',
  text: `
    INSERT INTO halo_kv (key, value, expires_at) VALUES ($1, $2, ${FROM_TTL})
    ON CONFLICT (key) DO UPDATE SET value = excluded.value, expires_at = ${FROM_TTL}`,
};

const ADD: Statement = {
  name: 'halo_kv_add',
  text: `
    INSERT INTO halo_kv AS kv (key, value, expires_at) VALUES ($1, $2, ${FROM_TTL})
    ON CONFLICT (key) DO UPDATE SET value = excluded.value, expires_at = ${FROM_TTL}
    WHERE kv.expires_at <= clock_timestamp() RETURNING true`,
};

const TAKE: Statement = {
  name: 'halo_kv_take',
  text: `DELETE FROM halo_kv WHERE key = $1 RETURNING value, ${LIVE}`,
};

const DELETE: Statement = {
  name: 'halo_kv_delete',
  text: 'DELETE FROM halo_kv WHERE key = ANY($1::text[])',
};

const TRY_LOCK: Statement = {
  name: 'halo_kv_try_lock',
  text: `
    INSERT INTO halo_kv AS kv (key, value, expires_at) VALUES ($1, $2, ${FROM_TTL})
    ON CONFLICT (key) DO UPDATE SET value = excluded.value, expires_at = ${FROM_TTL}
    WHERE kv.value = excluded.value OR kv.expires_at <= clock_timestamp() RETURNING true`,
};

const UNLOCK: Statement = {
  name: 'halo_kv_unlock',
  text: `DELETE FROM halo_kv WHERE key = $1 AND value = $2 RETURNING ${LIVE}`,
};

/**
 * A row that lives keeps the later of both expiries, since its value may stay. The clock is read
 * once for each row, under its lock.
 */
const RAISE_TO = `
  ON CONFLICT (key) DO UPDATE SET (value, expires_at) = (
    SELECT
      CASE WHEN now.ended THEN excluded.value
        ELSE greatest(kv.value::int8, excluded.value::int8)::text END,
      CASE WHEN now.ended THEN excluded.expires_at
        WHEN kv.expires_at IS NULL OR excluded.expires_at IS NULL THEN NULL
        ELSE greatest(kv.expires_at, excluded.expires_at) END
    FROM (SELECT coalesce(kv.expires_at <= clock_timestamp(), false) AS ended) AS now)`;

const RAISE: Statement = {
  name: 'halo_kv_raise',
  text: `
    INSERT INTO halo_kv AS kv (key, value, expires_at) VALUES ($1, $2::int8::text, ${FROM_TTL})
    ${RAISE_TO} RETURNING value`,
};

/** Rows of `LOCK_VALUES` say whether they live, and expired ones are left out. */
export function readEntries(rows: readonly Row[]): Map<string, KvEntry> {
  const entries = new Map<string, KvEntry>();
  for (const row of rows) {
    if (row.length > 3 && !flag(row, 3)) continue;
    entries.set(text(row, 0), { value: text(row, 1), expiresAtMs: integerOrNull(row, 2) });
  }
  return entries;
}

/** The calls on values outside a unit of work, each one statement and so atomic. */
export function keyValue(connections: Connections): KeyValue {
  return {
    async get(keys) {
      return readEntries(keys.length === 0 ? [] : await connections.read(GET, [keys]));
    },
    async put(key, value, ttlMs) {
      await connections.write(PUT, [key, value, ttlMs]);
    },
    async add(key, value, ttlMs) {
      return (await connections.write(ADD, [key, value, ttlMs])).length > 0;
    },
    async take(key) {
      const [row] = await connections.write(TAKE, [key]);
      return row !== undefined && flag(row, 1) ? text(row, 0) : undefined;
    },
    async delete(key) {
      await connections.write(DELETE, [[key]]);
    },
    async tryLock(key, owner, ttlMs) {
      return (await connections.write(TRY_LOCK, [key, owner, ttlMs])).length > 0;
    },
    async unlock(key, owner) {
      const [row] = await connections.write(UNLOCK, [key, owner]);
      return row !== undefined && flag(row, 0);
    },
    async raise(key, to, ttlMs) {
      const [row] = await connections.write(RAISE, [key, safe(to), ttlMs]);
      return integer(row ?? [], 0);
    },
  };
}

/** What a unit's changes of one key come to. */
export interface FoldedValue {
  readonly key: string;
  readonly op: 'put' | 'delete' | 'raise';
  readonly value: string;
  readonly expiresAtMs: number | null;
  /** No live row may be there when the unit begins. */
  readonly mustBeFree: boolean;
}

/**
 * One change a key, in key order: a statement can touch a row only once, and units that write the
 * same keys must do so in the same order.
 */
export function foldValues(changes: readonly KvChange[]): FoldedValue[] {
  const folded = new Map<string, FoldedValue>();
  for (const change of changes) {
    folded.set(change.key, foldValue(folded.get(change.key), change));
  }
  return [...folded.values()].sort((a, b) => (a.key < b.key ? -1 : 1));
}

function foldValue(earlier: FoldedValue | undefined, change: KvChange): FoldedValue {
  const { key } = change;
  const mustBeFree = earlier?.mustBeFree ?? change.op === 'add';
  if (change.op === 'delete') {
    return { key, op: 'delete', value: '', expiresAtMs: null, mustBeFree };
  }
  if (change.op !== 'raise') {
    if (change.op === 'add' && earlier !== undefined && earlier.op !== 'delete') {
      throw new StoreError('write_refused', 'A unit adds a value that it has written itself.');
    }
    return { key, op: 'put', value: change.value, expiresAtMs: change.expiresAtMs, mustBeFree };
  }
  const to = safe(change.to);
  if (earlier === undefined || earlier.op === 'delete') {
    const op = earlier === undefined ? 'raise' : 'put';
    return { key, op, value: String(to), expiresAtMs: change.expiresAtMs, mustBeFree };
  }
  const value = String(Math.max(to, safe(Number(earlier.value))));
  return { ...earlier, value, expiresAtMs: later(earlier.expiresAtMs, change.expiresAtMs) };
}

function later(a: number | null, b: number | null): number | null {
  return a === null || b === null ? null : Math.max(a, b);
}

function safe(number: number): number {
  if (Number.isSafeInteger(number)) return number;
  throw new StoreError('write_refused', 'Only a whole number below 2^53 can be raised.');
}

const INCOMING = `
  SELECT key, value, to_timestamp(expires_ms / 1000)
  FROM unnest($1::text[], $2::text[], $3::float8[]) AS c (key, value, expires_ms)`;

/** A live row makes this violate halo_kv_pkey: the unit starts over. */
const ADD_ALL: Statement = {
  name: 'halo_kv_add_all',
  text: `
    WITH expired AS (
      DELETE FROM halo_kv WHERE key = ANY($1::text[]) AND expires_at <= clock_timestamp()
      RETURNING 1
    )
    INSERT INTO halo_kv (key, value, expires_at)
    ${INCOMING} WHERE (SELECT count(*) FROM expired) >= 0 ORDER BY key`,
};

const PUT_ALL: Statement = {
  name: 'halo_kv_put_all',
  text: `
    INSERT INTO halo_kv (key, value, expires_at) ${INCOMING} ORDER BY key
    ON CONFLICT (key) DO UPDATE SET value = excluded.value, expires_at = excluded.expires_at`,
};

const RAISE_ALL: Statement = {
  name: 'halo_kv_raise_all',
  text: `INSERT INTO halo_kv AS kv (key, value, expires_at) ${INCOMING} ORDER BY key ${RAISE_TO}`,
};

/** True for the failure of `ADD_ALL` that makes a unit start over. */
export function metLiveRow(error: unknown): boolean {
  const said = serverError(error);
  return said?.code === '23505' && said.constraint === 'halo_kv_pkey';
}

/** At most four statements, however many changes. */
export function writeValues(changes: readonly FoldedValue[]): Write[] {
  const free = changes.filter((change) => change.mustBeFree);
  const puts = changes.filter((change) => change.op === 'put' && !change.mustBeFree);
  const raises = changes.filter((change) => change.op === 'raise');
  const deletes = changes.filter((change) => change.op === 'delete');
  return [
    ...(free.length === 0 ? [] : [statementFor(ADD_ALL, free)]),
    ...(puts.length === 0 ? [] : [statementFor(PUT_ALL, puts)]),
    ...(raises.length === 0 ? [] : [statementFor(RAISE_ALL, raises)]),
    ...(deletes.length === 0 ? [] : [[DELETE, [deletes.map(({ key }) => key)]] as const]),
  ];
}

function statementFor(statement: Statement, changes: readonly FoldedValue[]): Write {
  const values = changes.map(({ value }) => value);
  const expiries = changes.map(({ expiresAtMs }) => expiresAtMs);
  return [statement, [changes.map(({ key }) => key), values, expiries]];
}
