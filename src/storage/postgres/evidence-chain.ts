/**
 * The chain on PostgreSQL. One replica at a time takes events off the outbox: whoever gets the
 * advisory lock of its own transaction, which is asked for each time, never waited for, and gone
 * with its connection. It also holds the head's row, which whoever appends past the outbox locks.
 */
import {
  type ChainedRecord,
  type ChainLinker,
  type ChainStatement,
  type ChainTail,
  checkFollows,
  type DrainResult,
  type EvidenceStore,
  type FoundEvidence,
  type QueuedEvent,
  type StoredHead,
} from '../evidence-store.js';
import { StoreError } from '../store-error.js';
import type { Connections, Session, Statement, Write } from './connections.js';
import { integer, type Row, text } from './row.js';
import { BEGIN, commitTogether, ROUND_TRIP_MAX_MS, rollBack, together } from './transaction.js';

/** 64 bits of a hash as for streams: what else locks this number only makes a drain wait. */
const DRAIN_LOCK = 0x68616c6f_61756469n;

/** No row: another replica has the lock, or the head. Neither is waited for. */
const TRY_HEAD: Statement = {
  name: 'halo_audit_try_head',
  text: `
    SELECT 1 FROM halo_audit_head AS h
    WHERE pg_try_advisory_xact_lock(${DRAIN_LOCK}) FOR UPDATE OF h SKIP LOCKED`,
};

const LOCK_HEAD: Statement = {
  name: 'halo_audit_lock_head',
  text: 'SELECT 1 FROM halo_audit_head AS h FOR UPDATE OF h',
};

/**
 * The newest record and record 0, by the primary key of `halo_audit`. A statement after the one
 * that locks: in that one the head would be the newest and its record of the snapshot from before
 * the wait, in which it is missing.
 */
const TAIL: Statement = {
  name: 'halo_audit_tail',
  text: `
    SELECT h.seq, h.hash,
      coalesce((SELECT record FROM halo_audit a WHERE a.seq = h.seq AND a.hash = h.hash), ''),
      coalesce((SELECT hash FROM halo_audit a WHERE a.seq = 0), '')
    FROM halo_audit_head AS h`,
};

const HEAD: Statement = {
  name: 'halo_audit_head',
  text: 'SELECT seq, hash FROM halo_audit_head',
};

/**
 * In one statement, so that a writer's last number is of the same moment as its rows. Nothing is
 * read unless this transaction has the lock: whoever has it gets it again.
 */
const QUEUED: Statement = {
  name: 'halo_evidence_queued',
  text: `
    SELECT o.id, o.ref, o.record, o.writer, o.writer_count, o.mac_key_id, o.mac,
      coalesce(w.last, 0)
    FROM (
      SELECT * FROM halo_evidence_outbox
      WHERE (SELECT pg_try_advisory_xact_lock(${DRAIN_LOCK})) ORDER BY id LIMIT $1
    ) AS o
    LEFT JOIN halo_evidence_writers w USING (writer)
    ORDER BY o.id`,
};

const INSERT: Statement = {
  name: 'halo_audit_insert',
  text: `
    INSERT INTO halo_audit (seq, ref, prev_hash, hash, record)
    SELECT * FROM unnest($1::int8[], $2::text[], $3::text[], $4::text[], $5::text[])`,
};

/** Fails, and with it the whole, unless the head is where it was read: a fork is refused. */
const MOVE_HEAD: Statement = {
  name: 'halo_audit_move_head',
  text: `
    UPDATE halo_audit_head SET seq = CASE WHEN seq = $1 AND hash = $2 THEN $3::int8 END,
      hash = $4`,
};

const DELETE: Statement = {
  name: 'halo_evidence_delete',
  text: 'DELETE FROM halo_evidence_outbox WHERE id = ANY($1::int8[])',
};

const ADVANCE_WRITERS: Statement = {
  name: 'halo_evidence_advance_writers',
  text: `
    INSERT INTO halo_evidence_writers AS w (writer, last)
    SELECT * FROM unnest($1::text[], $2::int8[]) AS a (writer, last) ORDER BY writer
    ON CONFLICT (writer) DO UPDATE SET last = greatest(w.last, excluded.last)`,
};

const COLUMNS = 'seq, ref, prev_hash, hash, record';

/** One statement has one snapshot: an event that is being chained is in one of the two. */
const FIND: Statement = {
  name: 'halo_evidence_find',
  text: `
    SELECT ${COLUMNS} FROM halo_audit WHERE ref = $1
    UNION ALL
    SELECT NULL, ref, NULL, NULL, record FROM halo_evidence_outbox WHERE ref = $1`,
};

const PAGE: Statement = {
  name: 'halo_audit_page',
  text: `SELECT ${COLUMNS} FROM halo_audit WHERE seq > $1 ORDER BY seq LIMIT $2`,
};

const PAGE_BACK: Statement = {
  name: 'halo_audit_page_back',
  text: `SELECT ${COLUMNS} FROM halo_audit WHERE seq < $1 ORDER BY seq DESC LIMIT $2`,
};

const PENDING: Statement = {
  name: 'halo_evidence_pending',
  text: 'SELECT count(*) FROM halo_evidence_outbox',
};

/** Of a thread that was given no key: it queues and chains nothing. */
const NO_LINKER: ChainLinker = {
  link: () => {
    throw new StoreError('incompatible', 'Evidence cannot be chained without a signing key.');
  },
  state: () => {
    throw new StoreError('incompatible', 'Evidence cannot be chained without a signing key.');
  },
};

/** See `EvidenceStore`. */
export function evidenceStore(
  connections: Connections,
  linker: ChainLinker = NO_LINKER,
): EvidenceStore {
  return {
    mode: 'deferred',
    drain: (limit) => connections.use((session) => drain(session, limit, linker)),
    append: (statement) => connections.use((session) => append(session, statement, linker)),
    find: async (ref) => found(await connections.read(FIND, [ref])),
    page: async (afterSeq, limit) =>
      (await connections.read(PAGE, [afterSeq, limit])).map(recordOf),
    pageBack: async (beforeSeq, limit) =>
      (await connections.read(PAGE_BACK, [beforeSeq, limit])).map(recordOf),
    head: async () => headOf((await connections.read(HEAD, []))[0]),
    pending: async () => integer((await connections.read(PENDING, []))[0] ?? [], 0),
  };
}

/** Two round trips with the signing between them; each statement has a snapshot of its own. */
async function drain(session: Session, limit: number, linker: ChainLinker): Promise<DrainResult> {
  return inTransaction(session, async () => {
    const sent = session.inOnePiece(
      () =>
        [
          session.script(BEGIN, ROUND_TRIP_MAX_MS),
          session.send(TRY_HEAD, [], ROUND_TRIP_MAX_MS),
          session.send(TAIL, [], ROUND_TRIP_MAX_MS),
          session.send(QUEUED, [limit], ROUND_TRIP_MAX_MS),
        ] as const,
    );
    const [, tried, tails, rows] = await together(sent);
    const head = tailOf(tails[0]);
    if (tried.length === 0) return giveUp(session, { kind: 'busy' });
    if (rows.length === 0) {
      const { seq, hash } = head;
      return giveUp(session, { kind: 'drained', events: 0, head: { seq, hash } });
    }
    const queued = rows.map(queuedOf);
    const records = await linker.link(head, queued);
    checkFollows(head, records, queued);
    const writes = [...appendWrites(head, records), ...leaveOutbox(queued)];
    await commitTogether(session, writes);
    const { seq, hash } = records.at(-1) ?? head;
    return { kind: 'drained', events: queued.length, head: { seq, hash } };
  });
}

async function append(
  session: Session,
  statement: ChainStatement,
  linker: ChainLinker,
): Promise<readonly ChainedRecord[]> {
  return inTransaction(session, async () => {
    const sent = session.inOnePiece(
      () =>
        [
          session.script(BEGIN, ROUND_TRIP_MAX_MS),
          session.send(LOCK_HEAD, [], ROUND_TRIP_MAX_MS),
          session.send(TAIL, [], ROUND_TRIP_MAX_MS),
        ] as const,
    );
    const [, , tails] = await together(sent);
    const head = tailOf(tails[0]);
    const records = await linker.state(head, statement);
    if (records.length === 0) return giveUp(session, records);
    checkFollows(head, records, []);
    await commitTogether(session, appendWrites(head, records));
    return records;
  });
}

/** Nothing stays open, whatever `work` throws. After its commit there is nothing to roll back. */
async function inTransaction<T>(session: Session, work: () => Promise<T>): Promise<T> {
  try {
    return await work();
  } catch (error) {
    await rollBack(session);
    throw error;
  }
}

async function giveUp<T>(session: Session, result: T): Promise<T> {
  await session.script('ROLLBACK', ROUND_TRIP_MAX_MS);
  return result;
}

function appendWrites(head: StoredHead, records: readonly ChainedRecord[]): Write[] {
  const last = records.at(-1) ?? head;
  const columns = [
    records.map(({ seq }) => seq),
    records.map(({ ref }) => ref),
    records.map(({ prevHash }) => prevHash),
    records.map(({ hash }) => hash),
    records.map((record) => record.text),
  ];
  return [
    [INSERT, columns],
    [MOVE_HEAD, [head.seq, head.hash, last.seq, last.hash]],
  ];
}

function leaveOutbox(queued: readonly QueuedEvent[]): Write[] {
  const newest = new Map(queued.map(({ writer, count }) => [writer, count]));
  return [
    [DELETE, [queued.map(({ id }) => id)]],
    [ADVANCE_WRITERS, [[...newest.keys()], [...newest.values()]]],
  ];
}

function headOf(row: Row | undefined): StoredHead {
  if (row === undefined) {
    const message = 'The head of the evidence chain is missing: restore halo_audit_head.';
    throw new StoreError('damaged', message);
  }
  return { seq: integer(row, 0), hash: text(row, 1) };
}

/** Nothing is written behind a head whose record is gone, or another one. */
function tailOf(row: Row | undefined): ChainTail {
  const head = headOf(row);
  const [record, chainId] = [text(row ?? [], 2), text(row ?? [], 3)];
  if (head.seq >= 0 && (record === '' || chainId === '')) {
    const message =
      'The newest record of the evidence chain is not the one of its head: restore halo_audit.';
    throw new StoreError('damaged', message);
  }
  return { ...head, record, chainId };
}

function queuedOf(row: Row): QueuedEvent {
  return {
    id: integer(row, 0),
    ref: text(row, 1),
    text: text(row, 2),
    writer: text(row, 3),
    count: integer(row, 4),
    keyId: text(row, 5),
    mac: text(row, 6),
    chainedCount: integer(row, 7),
  };
}

function recordOf(row: Row): ChainedRecord {
  return {
    seq: integer(row, 0),
    ref: text(row, 1),
    prevHash: text(row, 2),
    hash: text(row, 3),
    text: text(row, 4),
  };
}

function found(rows: readonly Row[]): FoundEvidence | undefined {
  const [row] = rows;
  if (row === undefined) return undefined;
  if (row[0] === null) return { pending: true, event: { ref: text(row, 1), text: text(row, 4) } };
  return { pending: false, record: recordOf(row) };
}
