/**
 * One unit of work: two round trips and a decision between them.
 *
 * The first trip begins the transaction with its time bounds, takes the streams' locks, and reads,
 * all sent together and still separate statements: the read has a snapshot of its own, taken after
 * the locks are held. (In one statement with the lock the snapshot is from before the wait, and
 * what was committed meanwhile is skipped: records are lost.) The second trip writes and commits.
 */
import { createHash } from 'node:crypto';
import type { Fence } from '../../runtime/lease.js';
import type { Random } from '../../runtime/random.js';
import {
  CATCH_UP_PAGE_MAX,
  type Changes,
  COMMIT_ATTEMPTS_MAX,
  type Committed,
  type Cursor,
  type DocumentKey,
  documentName,
  type KvEntry,
  type Locked,
  type Position,
  type StoredDocument,
  type StoredRecord,
  type UnitOfWork,
} from '../store.js';
import { StoreError } from '../store-error.js';
import type { Connections, Session, Write } from './connections.js';
import { writeCounters } from './counters.js';
import { isSerializationFailure, serverError } from './database-error.js';
import { foldDocuments, LOCK_DOCUMENTS, readDocuments, writeDocuments } from './documents.js';
import type { OutboxWriters } from './evidence-outbox.js';
import {
  APPEND,
  appendValues,
  CATCH_UP,
  interpret,
  lastOfEachKey,
  question,
  questionValues,
} from './journal.js';
import { foldValues, LOCK_VALUES, metLiveRow, readEntries, writeValues } from './key-value.js';
import { LOCK_TERM } from './leases.js';
import { NOTIFY, notifyValues } from './listener.js';
import { integer, type Row } from './row.js';
import { BEGIN, commitTogether, ROUND_TRIP_MAX_MS, rollBack, together } from './transaction.js';

/** Two histories of one stream agree on a batch mark once in 2^64. */
const BATCH_BYTES = 8;

/** What one attempt came to. What `decide` threw goes to the caller as it is. */
type Outcome =
  | { readonly kind: 'committed'; readonly committed: Committed }
  | { readonly kind: 'thrown'; readonly error: unknown }
  | { readonly kind: 'again'; readonly error: StoreError };

/** Runs units of work, each on a connection of the pool from begin to end. */
export class UnitRunner {
  constructor(
    private readonly connections: Connections,
    private readonly random: Random,
    private readonly outbox: OutboxWriters,
  ) {}

  async run(unit: UnitOfWork, decide: (locked: Locked) => Changes): Promise<Committed> {
    for (let attempt = 1; ; attempt += 1) {
      const outcome = await this.connections.use((session) => this.#attempt(session, unit, decide));
      if (outcome.kind === 'committed') return outcome.committed;
      if (outcome.kind === 'thrown') throw outcome.error;
      if (attempt === COMMIT_ATTEMPTS_MAX) throw outcome.error;
    }
  }

  async #attempt(
    session: Session,
    unit: UnitOfWork,
    decide: (locked: Locked) => Changes,
  ): Promise<Outcome> {
    const locked = await lockAndRead(session, unit).catch(async (error: unknown) => {
      await rollBack(session);
      throw error;
    });
    let changes: Changes;
    try {
      changes = decide(locked);
    } catch (error) {
      await rollBack(session);
      return { kind: 'thrown', error };
    }
    const batch = Buffer.from(this.random.bytes(BATCH_BYTES)).toString('hex');
    const outbox = this.outbox.begin(changes.evidence ?? []);
    try {
      const committed = await writeAndCommit(session, locked, changes, batch, outbox.writes);
      outbox.committed();
      return { kind: 'committed', committed };
    } catch (error) {
      if (serverError(error) !== undefined) outbox.rolledBack();
      return startOver(error);
    }
  }
}

/** Says whether the unit may be tried again from the start; throws what ends it. */
function startOver(error: unknown): Outcome {
  if (metLiveRow(error)) {
    return {
      kind: 'again',
      error: new StoreError('write_refused', 'A value that was to be added is there already.'),
    };
  }
  if (!isSerializationFailure(error)) throw error;
  const message = 'The unit kept meeting others in opposite order.';
  return { kind: 'again', error: new StoreError('store_unavailable', message) };
}

async function lockAndRead(session: Session, unit: UnitOfWork): Promise<Locked> {
  const asked = question(unit.position, CATCH_UP_PAGE_MAX);
  // The journal comes last: its clock then counts from after every wait for a lock.
  const sent = session.inOnePiece(
    () =>
      [
        session.script(beginAndLock(unit.streams), ROUND_TRIP_MAX_MS),
        lockValues(session, unit.kv ?? []),
        lockDocuments(session, unit.documents ?? []),
        lockTerm(session, unit.fence),
        session.send(CATCH_UP, questionValues(asked), ROUND_TRIP_MAX_MS),
      ] as const,
  );
  const [, values, documents, , rows] = await together(sent);
  let caught = interpret(asked, rows);
  const records = [...caught.records];
  while (caught.more) {
    const next = question(caught.position, CATCH_UP_PAGE_MAX);
    const page = await session.send(CATCH_UP, questionValues(next), ROUND_TRIP_MAX_MS);
    caught = interpret(next, page);
    records.push(...caught.records);
  }
  const { position, storeTimeMs, writeFormat } = caught;
  const kv: ReadonlyMap<string, KvEntry> = readEntries(values);
  return { records, position, storeTimeMs, writeFormat, kv, documents: byName(documents) };
}

async function lockValues(session: Session, keys: readonly string[]): Promise<Row[]> {
  if (keys.length === 0) return [];
  return session.send(LOCK_VALUES, [[...new Set(keys)]], ROUND_TRIP_MAX_MS);
}

async function lockDocuments(session: Session, keys: readonly DocumentKey[]): Promise<Row[]> {
  if (keys.length === 0) return [];
  const values = [keys.map(({ kind }) => kind), keys.map(({ id }) => id)];
  return session.send(LOCK_DOCUMENTS, values, ROUND_TRIP_MAX_MS);
}

/** After every other wait, so that it is judged when all of them are over. */
async function lockTerm(session: Session, fence: Fence | undefined): Promise<void> {
  if (fence === undefined) return;
  const { lease, holder, token } = fence;
  const rows = await session.send(LOCK_TERM, [lease, holder, token], ROUND_TRIP_MAX_MS);
  if (rows.length === 0) throw new StoreError('fenced', `The term of ${lease} is over.`);
}

function byName(rows: readonly Row[]): ReadonlyMap<string, StoredDocument> {
  return new Map(readDocuments(rows).map((document) => [documentName(document), document]));
}

/**
 * Sorted, so that two units never wait for each other. The numbers are ours and need no parameters,
 * which a message of several statements cannot have.
 */
function beginAndLock(streams: readonly string[]): string {
  const locks = [...new Set(streams.map(lockNumber))].sort((a, b) => (a < b ? -1 : 1));
  return [BEGIN, ...locks.map((lock) => `SELECT pg_advisory_xact_lock(${lock})`)].join('; ');
}

const lockNumbers = new Map<string, bigint>();

/** 64 bits of a hash: streams whose numbers met would only wait for each other. */
export function lockNumber(stream: string): bigint {
  let number = lockNumbers.get(stream);
  if (number === undefined) {
    number = createHash('sha256').update(`halo-stream/${stream}`).digest().readBigInt64BE();
    lockNumbers.set(stream, number);
  }
  return number;
}

async function writeAndCommit(
  session: Session,
  locked: Locked,
  changes: Changes,
  batch: string,
  evidence: readonly Write[],
): Promise<Committed> {
  const appends = lastOfEachKey(changes.appends ?? []);
  const writes: Write[] = [
    ...(appends.length === 0 ? [] : [[APPEND, appendValues(appends, batch)] as const]),
    ...writeValues(foldValues(changes.kv ?? [])),
    ...writeDocuments(foldDocuments(changes.documents ?? [])),
    ...writeCounters(changes.counters ?? []),
    ...evidence,
    ...(changes.hints ?? []).map((stream) => [NOTIFY, notifyValues(stream)] as const),
  ];
  const [first] = await commitTogether(session, writes);
  const ids = appends.length === 0 ? [] : (first ?? []).map((row) => integer(row, 0));
  const records = appends.map((append, index): StoredRecord => {
    return { ...append, id: ids[index] ?? 0, batch };
  });
  return { records, position: after(locked.position, records), storeTimeMs: locked.storeTimeMs };
}

function after(position: Position, records: readonly StoredRecord[]): Position {
  if (records.length === 0) return position;
  const cursors: Record<string, Cursor> = { ...position.cursors };
  for (const { stream, id, batch } of records) cursors[stream] = { id, batch };
  return { ...position, cursors };
}
