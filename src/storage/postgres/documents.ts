/**
 * Documents: a kind, an id, a body and a version. Index: the primary key (kind, id), also for the
 * listing; the sweep uses halo_documents_expiry.
 */
import type { DocumentChange, DocumentKey, StoredDocument } from '../store.js';
import { documentName } from '../store.js';
import type { Connections, Statement, Write } from './connections.js';
import { flag, integer, integerOrNull, type Row, text } from './row.js';

const LIVE = '(d.expires_at IS NULL OR d.expires_at > clock_timestamp())';
const EXPIRES_MS = "(date_part('epoch', d.expires_at) * 1000)::int8";
const COLUMNS = `d.kind, d.id, d.version, d.body, ${EXPIRES_MS}, ${LIVE}`;
const WANTED = 'unnest($1::text[], $2::text[]) AS w (kind, id) USING (kind, id)';

const GET: Statement = {
  name: 'halo_documents_get',
  text: `SELECT ${COLUMNS} FROM halo_documents d JOIN ${WANTED}`,
};

/** In key order, so that two units never wait for each other. */
export const LOCK_DOCUMENTS: Statement = {
  name: 'halo_documents_lock',
  text: `
    SELECT ${COLUMNS} FROM halo_documents d
    WHERE (d.kind, d.id) IN (SELECT * FROM unnest($1::text[], $2::text[]))
    ORDER BY d.kind, d.id FOR UPDATE OF d`,
};

const LIST: Statement = {
  name: 'halo_documents_list',
  text: `
    SELECT ${COLUMNS} FROM halo_documents d
    WHERE d.kind = $1 AND d.id > $2 AND ${LIVE} ORDER BY d.id LIMIT $3`,
};

/** A document that is new, expired or deleted earlier in the unit begins at its own count. */
const PUT_ALL: Statement = {
  name: 'halo_documents_put_all',
  text: `
    INSERT INTO halo_documents AS d (kind, id, version, body, expires_at)
    SELECT kind, id, puts, body, to_timestamp(expires_ms / 1000)
    FROM unnest($1::text[], $2::text[], $3::int8[], $4::text[], $5::float8[])
      AS c (kind, id, puts, body, expires_ms)
    ORDER BY kind, id
    ON CONFLICT (kind, id) DO UPDATE SET
      version = excluded.version + CASE WHEN ${LIVE} THEN d.version ELSE 0 END,
      body = excluded.body, expires_at = excluded.expires_at`,
};

const DELETE_ALL: Statement = {
  name: 'halo_documents_delete_all',
  text: `
    DELETE FROM halo_documents d
    WHERE (d.kind, d.id) IN (SELECT * FROM unnest($1::text[], $2::text[]))`,
};

/** Expired rows are left out: they were read to be locked, and count as absent. */
export function readDocuments(rows: readonly Row[]): StoredDocument[] {
  const live = rows.filter((row) => flag(row, 5));
  return live.map((row) => ({
    kind: text(row, 0),
    id: text(row, 1),
    version: integer(row, 2),
    body: text(row, 3),
    expiresAtMs: integerOrNull(row, 4),
  }));
}

/** Live documents of these keys, in no order; an absent one is left out. */
export async function getDocuments(
  connections: Connections,
  keys: readonly DocumentKey[],
): Promise<StoredDocument[]> {
  if (keys.length === 0) return [];
  const unique = [...new Map(keys.map((key) => [documentName(key), key])).values()];
  return readDocuments(await connections.read(GET, keyColumns(unique)));
}

/** A page of a kind, by id, so that a caller goes on after the last id it has seen. */
export async function listDocuments(
  connections: Connections,
  kind: string,
  afterId: string,
  limit: number,
): Promise<StoredDocument[]> {
  return readDocuments(await connections.read(LIST, [kind, afterId, limit]));
}

/** What a unit's changes of one document come to. */
export interface FoldedDocument extends DocumentKey {
  /** Undefined: deleted in the end. */
  readonly put: { readonly body: string; readonly expiresAtMs: number | null } | undefined;
  /** How often it was put since it was last deleted in this unit. */
  readonly puts: number;
  /** Deleted in this unit before: the version begins anew. */
  readonly anew: boolean;
}

/** One change a document, since a statement can touch a row only once. */
export function foldDocuments(changes: readonly DocumentChange[]): FoldedDocument[] {
  const folded = new Map<string, FoldedDocument>();
  for (const { kind, id, ...change } of changes) {
    const name = `${kind.length}/${kind}${id}`;
    const { puts, anew } = folded.get(name) ?? { puts: 0, anew: false };
    if (change.op === 'delete') {
      folded.set(name, { kind, id, put: undefined, puts: 0, anew: true });
    } else {
      const put = { body: change.body, expiresAtMs: change.expiresAtMs };
      folded.set(name, { kind, id, put, puts: puts + 1, anew });
    }
  }
  return [...folded.values()];
}

/** At most two statements: what was deleted goes first, then come the puts. */
export function writeDocuments(changes: readonly FoldedDocument[]): Write[] {
  const deletes = changes.filter((change) => change.anew);
  const puts = changes.flatMap(({ put, ...rest }) => (put === undefined ? [] : [{ ...rest, put }]));
  const written = [
    ...keyColumns(puts),
    puts.map((change) => change.puts),
    puts.map((change) => change.put.body),
    puts.map((change) => change.put.expiresAtMs),
  ];
  return [
    ...(deletes.length === 0 ? [] : [[DELETE_ALL, keyColumns(deletes)] as const]),
    ...(puts.length === 0 ? [] : [[PUT_ALL, written] as const]),
  ];
}

function keyColumns(keys: readonly DocumentKey[]): unknown[] {
  return [keys.map(({ kind }) => kind), keys.map(({ id }) => id)];
}
