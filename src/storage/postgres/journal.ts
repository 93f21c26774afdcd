/**
 * The journal: what is read after a position, and how records are appended. DESIGN §3, "Append"
 * and "Store epoch".
 */
import { FORMAT_NEWEST, FORMAT_OLDEST } from '../envelope.js';
import type { Append, CatchUp, Cursor, Position, StoredRecord } from '../store.js';
import { StoreError } from '../store-error.js';
import type { Statement } from './connections.js';
import { flag, integer, type Row, text } from './row.js';

/**
 * Everything a catch-up has to know, in one statement and so from one snapshot: the identity of the
 * history, the server's clock, and of each stream the rows from its cursor on. The row at the
 * cursor comes along, without its body: it tells at once that the end is not before the cursor and
 * that the history is the one we read; so a catch-up that finds nothing new gets one row a stream.
 *
 * Index: the primary key (stream, id), one descent a stream. Server CPU a call on PostgreSQL 18
 * with 1,001,000 rows (`SELECT 1`: 27 µs): this one 40 µs for one stream, 44 for three. Rejected:
 * the newest row by `ORDER BY id DESC LIMIT 1` beside the rows after the cursor, 45 µs; a text for
 * each number of streams with scalar parameters, 38 µs for one and 49 for three (UNION ALL);
 * planned anew each time, as it is behind a pooler, 215 µs.
 */
export const CATCH_UP: Statement = {
  name: 'halo_catch_up',
  text: `
    SELECT s.*, c.number, r.id, r.batch,
      CASE WHEN r.id > c.id THEN r.key END, CASE WHEN r.id > c.id THEN r.body END
    FROM (
      SELECT (date_part('epoch', clock_timestamp()) * 1000)::int8, epoch, write_format,
        pg_is_in_recovery(), (date_part('epoch', pg_postmaster_start_time()) * 1000000)::int8
      FROM halo_store
    ) s
    LEFT JOIN unnest($1::text[], $2::int8[]) WITH ORDINALITY AS c (stream, id, number) ON true
    LEFT JOIN LATERAL (
      SELECT j.id, j.batch, j.key, j.body FROM halo_journal j
      WHERE j.stream = c.stream AND j.id >= c.id ORDER BY j.id LIMIT $3
    ) r ON true`,
};

const [TIME, EPOCH, WRITE_FORMAT, RECOVERY, START, NUMBER, ID, BATCH, KEY, BODY] = [
  0, 1, 2, 3, 4, 5, 6, 7, 8, 9,
] as const;

/** What a catch-up asks for: a position, cut into the parameters of the statement. */
export interface CatchUpQuestion {
  readonly position: Position;
  readonly streams: readonly string[];
  /** Rows a stream at most; the row at the cursor is one of them. */
  readonly rowsMax: number;
}

/** Cuts a position into the question for what came after it, at most `recordsMax` records. */
export function question(position: Position, recordsMax: number): CatchUpQuestion {
  const streams = Object.keys(position.cursors);
  const share = Math.floor(recordsMax / Math.max(1, streams.length));
  // The row at the cursor and one more, or nothing would ever move.
  return { position, streams, rowsMax: Math.max(2, share) };
}

/** The parameters of `CATCH_UP`: streams, their cursors, and the rows of each at most. */
export function questionValues({
  position,
  streams,
  rowsMax,
}: CatchUpQuestion): [readonly string[], readonly number[], number] {
  return [streams, streams.map((stream) => cursorOf(position, stream).id), rowsMax];
}

/** A catch-up that also knows the format in which a unit of work must write. */
export interface Caught extends CatchUp {
  readonly writeFormat: number;
}

const NO_RECORDS: readonly StoredRecord[] = [];

/** Reads the answer, and throws `history_changed` when it is not of the position's history. */
export function interpret({ position, streams, rowsMax }: CatchUpQuestion, rows: Row[]): Caught {
  const [first] = rows;
  if (first === undefined)
    throw new StoreError('incompatible', 'The row of halo_store is missing.');
  checkStore(first, position);
  const serverStart = text(first, START);
  const restarted = position.serverStart !== '' && position.serverStart !== serverStart;
  const records: StoredRecord[] = [];
  const cursors: Record<string, Cursor> = {};
  let more = false;
  let from = 0;
  for (const [index, stream] of streams.entries()) {
    const end = endOfStream(rows, from, index + 1);
    const cursor = cursorOf(position, stream);
    cursors[stream] = readStream(rows.slice(from, end), stream, cursor, restarted, records);
    more ||= end - from >= rowsMax;
    from = end;
  }
  const caught = {
    records: records.length === 0 ? NO_RECORDS : records,
    storeTimeMs: integer(first, TIME),
    writeFormat: integer(first, WRITE_FORMAT),
    more,
  };
  const unchanged = records.length === 0 && position.serverStart === serverStart;
  if (unchanged && position.epoch !== '') return { ...caught, position };
  return { ...caught, position: { epoch: text(first, EPOCH), serverStart, cursors } };
}

function checkStore(row: Row, { epoch }: Position): void {
  if (flag(row, RECOVERY)) {
    throw new StoreError('store_unavailable', 'The database is a standby or still in recovery.');
  }
  const writeFormat = integer(row, WRITE_FORMAT);
  if (writeFormat > FORMAT_NEWEST || writeFormat < FORMAT_OLDEST) {
    throw new StoreError(
      'incompatible',
      `The store writes envelope format ${writeFormat}; ` +
        `this binary knows ${FORMAT_OLDEST} to ${FORMAT_NEWEST}.`,
    );
  }
  if (epoch !== '' && epoch !== row[EPOCH]) throw historyChanged('its epoch is another');
}

function endOfStream(rows: readonly Row[], from: number, number: number): number {
  const wanted = String(number);
  let end = from;
  while (end < rows.length && rows[end]?.[NUMBER] === wanted) end += 1;
  return end;
}

/** Adds the records after the cursor and returns the cursor after them. */
function readStream(
  rows: readonly Row[],
  stream: string,
  cursor: Cursor,
  restarted: boolean,
  records: StoredRecord[],
): Cursor {
  const [first] = rows;
  if (first === undefined || first[ID] === null) {
    if (cursor.id === 0) return cursor;
    throw historyChanged('its end lies before what was read of it');
  }
  const isAtCursor = integer(first, ID) === cursor.id;
  if (isAtCursor && first[BATCH] !== cursor.batch) {
    throw historyChanged('the last record read is another now');
  }
  // The newest record of a key replaces the older ones, so the row at the cursor may rightly be
  // gone. After a restart of the server it may also have been lost, and the two look the same.
  if (!isAtCursor && cursor.id > 0 && restarted) {
    throw historyChanged('the server started anew without the last record read');
  }
  let newest = cursor;
  for (const row of isAtCursor ? rows.slice(1) : rows) {
    newest = { id: integer(row, ID), batch: text(row, BATCH) };
    records.push({ stream, ...newest, key: row[KEY] ?? null, body: text(row, BODY) });
  }
  return newest;
}

/** A stream that the position does not name has been read up to nothing. */
export function cursorOf(position: Position, stream: string): Cursor {
  return position.cursors[stream] ?? BEGINNING;
}

const BEGINNING: Cursor = { id: 0, batch: '' };

/** Before the first record: fits every history, so that a replay never meets another one. */
export function beginning(streams: readonly string[]): Position {
  const cursors = Object.fromEntries(streams.map((stream) => [stream, BEGINNING]));
  return { epoch: '', serverStart: '', cursors };
}

function historyChanged(why: string): StoreError {
  return new StoreError('history_changed', `The store was restored or failed over: ${why}.`);
}

/**
 * Appends in the order given, and moves the older row of a key to the new id. The caller holds the
 * streams' locks, and no key is given twice. Rows are returned in the order given: the numbers are
 * drawn after the sort.
 *
 * Index: halo_journal_key. Rejected: deleting the older rows in a WITH query and inserting; over
 * 2,000 keys written 600,000 times it took a quarter more CPU and left a table of 197 MB instead of
 * 22, since an update prunes the page it is on and an insert goes elsewhere.
 */
export const APPEND: Statement = {
  name: 'halo_append',
  text: `
    INSERT INTO halo_journal (stream, key, batch, body)
    SELECT stream, key, $4, body
    FROM unnest($1::text[], $2::text[], $3::text[]) WITH ORDINALITY AS a (stream, key, body, number)
    ORDER BY number
    ON CONFLICT (stream, key) WHERE key IS NOT NULL
    DO UPDATE SET id = excluded.id, batch = excluded.batch, body = excluded.body
    RETURNING id`,
};

/** Of several appends with one key only the last is written. */
export function lastOfEachKey(appends: readonly Append[]): readonly Append[] {
  const last = new Map<string, Append>();
  for (const append of appends) {
    if (append.key !== null) last.set(nameOf(append), append);
  }
  return appends.filter((append) => append.key === null || last.get(nameOf(append)) === append);
}

function nameOf({ stream, key }: Append): string {
  return `${stream.length}/${stream}${key}`;
}

/** The parameters of `APPEND`; all records of a unit carry its batch mark. */
export function appendValues(appends: readonly Append[], batch: string): unknown[] {
  return [
    appends.map((append) => append.stream),
    appends.map((append) => append.key),
    appends.map((append) => append.body),
    batch,
  ];
}
