/**
 * The tables of evidence as an auditor reads them: on one connection, without the writer's code,
 * and page by page, so that a long chain needs little memory. Head, outbox and the newest number
 * are of one moment; the chain up to there never changes, so that its pages need no snapshot that
 * would keep the database from cleaning up behind everybody else.
 */
import pg from 'pg';
import { clientConfig, type DatabaseAccess } from './connection.js';
import { toStoreError } from './database-error.js';
import { flag, integer, type Row, text } from './row.js';

/** A row of the chain: its columns, and the record that they should repeat. */
export interface ChainRow {
  readonly seq: number;
  readonly ref: string;
  readonly prevHash: string;
  readonly hash: string;
  readonly record: string;
}

/** A row of the outbox, in the order of its writer's numbers. */
export interface OutboxRow {
  readonly id: number;
  readonly ref: string;
  readonly record: string;
  readonly writer: string;
  readonly count: number;
  /** The last number of this writer that was chained; 0: none was. */
  readonly chainedCount: number;
  /** Its ref is in the chain too. */
  readonly isChained: boolean;
}

/** The tables at one moment. */
export interface ChainTable {
  readonly head: { readonly seq: number; readonly hash: string };
  /** The greatest number in the table; -1 when it is empty. */
  readonly lastSeq: number;
}

/** Some 150 KB of ordinary records, and 67 MB of the largest that there may be. */
const PAGE_ROWS = 256;
/** A database that is stopped must not stop an auditor for ever. */
const STATEMENT_MAX_MS = 60_000;

const SNAPSHOT = 'BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY';
/** By the primary key of `halo_audit`. */
const TABLE = `
  SELECT h.seq, h.hash, coalesce((SELECT max(seq) FROM halo_audit), -1) FROM halo_audit_head AS h`;
/** By the unique index on (writer, writer_count). */
const OUTBOX = `
  SELECT o.id, o.ref, o.record, o.writer, o.writer_count, coalesce(w.last, 0),
    EXISTS (SELECT 1 FROM halo_audit a WHERE a.ref = o.ref)
  FROM halo_evidence_outbox o LEFT JOIN halo_evidence_writers w USING (writer)
  WHERE (o.writer, o.writer_count) > ($1, $2::int8)
  ORDER BY o.writer, o.writer_count LIMIT ${PAGE_ROWS}`;
/**
 * By the primary key. It begins with the last row of the page before: where somebody has dropped
 * the key, a second row with that number is not skipped.
 */
const PAGE = `
  SELECT seq, ref, prev_hash, hash, record FROM halo_audit
  WHERE seq >= $1::int8 AND seq <= $2::int8 ORDER BY seq LIMIT ${PAGE_ROWS + 1}`;

/** One auditor's connection. Every method rejects with a `StoreError`. */
export class EvidenceReader {
  readonly #client: pg.Client;
  #lost: Error | undefined;

  private constructor(access: DatabaseAccess) {
    const query_timeout = STATEMENT_MAX_MS;
    this.#client = new pg.Client({ ...clientConfig(access), query_timeout });
    this.#client.on('error', (error) => {
      this.#lost = error;
    });
  }

  /** Rejects with a `DatabaseError` too, for a URL that cannot be used. */
  static async open(access: DatabaseAccess): Promise<EvidenceReader> {
    const reader = new EvidenceReader(access);
    try {
      await reader.#client.connect();
    } catch (error) {
      await reader.close();
      throw toStoreError(error);
    }
    return reader;
  }

  /** The tables; and, before it resolves, each page of the outbox, all of the same moment. */
  async table(onOutbox: (rows: readonly OutboxRow[]) => void | Promise<void>): Promise<ChainTable> {
    await this.#query(SNAPSHOT);
    const [row] = await this.#query(TABLE);
    for (let after = { writer: '', count: 0 }; ; ) {
      const rows = (await this.#query(OUTBOX, [after.writer, after.count])).map(outboxRowOf);
      await onOutbox(rows);
      const last = rows.at(-1);
      if (last === undefined || rows.length < PAGE_ROWS) break;
      after = last;
    }
    await this.#query('ROLLBACK');
    // Without its row there is no head that the records could lead to.
    if (row === undefined) return { head: { seq: -1, hash: 'no row' }, lastSeq: -1 };
    return { head: { seq: integer(row, 0), hash: text(row, 1) }, lastSeq: integer(row, 2) };
  }

  /** The chain from its beginning up to a number, the next page being read while one is used. */
  async *rows(lastSeq: number): AsyncGenerator<readonly ChainRow[]> {
    let next = this.#page(0, lastSeq);
    for (let isFirst = true; ; isFirst = false) {
      const page = await next;
      const last = page.at(-1);
      const isEnd = page.length <= PAGE_ROWS || last === undefined;
      if (!isEnd) next = this.#page(last.seq, lastSeq);
      // Whoever stops reading early leaves it behind.
      next.catch(() => undefined);
      yield isFirst ? page : page.slice(1);
      if (isEnd) return;
    }
  }

  /** Idempotent; whatever is still asked rejects. */
  async close(): Promise<void> {
    await this.#client.end().catch(() => undefined);
  }

  async #page(fromSeq: number, lastSeq: number): Promise<ChainRow[]> {
    return (await this.#query(PAGE, [fromSeq, lastSeq])).map(chainRowOf);
  }

  async #query(sql: string, values: readonly unknown[] = []): Promise<readonly Row[]> {
    try {
      if (this.#lost !== undefined) throw this.#lost;
      const query = { text: sql, values: [...values], rowMode: 'array' as const, types: AS_TEXT };
      return (await this.#client.query<(string | null)[]>(query)).rows;
    } catch (error) {
      throw toStoreError(error);
    }
  }
}

/** As `Row` wants them: the text of each column. */
const AS_TEXT = { getTypeParser: () => (value: string) => value };

function chainRowOf(row: Row): ChainRow {
  return {
    seq: integer(row, 0),
    ref: text(row, 1),
    prevHash: text(row, 2),
    hash: text(row, 3),
    record: text(row, 4),
  };
}

function outboxRowOf(row: Row): OutboxRow {
  return {
    id: integer(row, 0),
    ref: text(row, 1),
    record: text(row, 2),
    writer: text(row, 3),
    count: integer(row, 4),
    chainedCount: integer(row, 5),
    isChained: flag(row, 6),
  };
}
