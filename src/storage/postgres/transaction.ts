/** What every transaction here shares: its time bounds, and how it is sent, committed, given up. */
import { StoreError } from '../store-error.js';
import { outcomeUnknown, type Session, type Write } from './connections.js';
import { serverError } from './database-error.js';
import type { Row } from './row.js';

/** A client that stops in a transaction is cut off by the server, and its locks are free again. */
const IDLE_IN_TRANSACTION_MS = 2_000;
/** Above what a stopped client can hold a lock for, so that waiting for one succeeds. */
const LOCK_MS = 3_000;
const STATEMENT_MS = 5_000;
/** The wait for the locks and then one statement, each at its bound, and a second for the way. */
export const ROUND_TRIP_MAX_MS = LOCK_MS + STATEMENT_MS + 1_000;

/**
 * The start refuses a database that answers before a commit is durable, but somebody may say so
 * later, for the role or the whole server. Whatever else they choose is left as it is.
 */
const DURABLE =
  "SELECT set_config('synchronous_commit', 'on', true) " +
  "WHERE current_setting('synchronous_commit') = 'off'";

/** Not READ WRITE: a database that was set read-only, as when its disk is full, must refuse. */
export const BEGIN =
  `BEGIN ISOLATION LEVEL READ COMMITTED; ${DURABLE}; ` +
  `SET LOCAL idle_in_transaction_session_timeout = ${IDLE_IN_TRANSACTION_MS}; ` +
  `SET LOCAL lock_timeout = ${LOCK_MS}; SET LOCAL statement_timeout = ${STATEMENT_MS}`;

/** A connection that fails meanwhile is rolled back by the server. */
export async function rollBack(session: Session): Promise<void> {
  await session.script('ROLLBACK', ROUND_TRIP_MAX_MS).catch(() => session.abandon());
}

/**
 * Sends the writes and the commit in one round trip. Nothing was written if a write failed: the
 * server then answers the commit with ROLLBACK. If the connection was lost, nobody knows.
 */
export async function commitTogether(session: Session, writes: readonly Write[]): Promise<Row[][]> {
  const wasBroken = session.isBroken;
  const sent = session.inOnePiece(() => {
    const all = writes.map(([statement, values]) =>
      session.send(statement, values, ROUND_TRIP_MAX_MS),
    );
    return [session.script('COMMIT', ROUND_TRIP_MAX_MS), ...all] as const;
  });
  const [commit, ...written] = await Promise.allSettled(sent);
  const refused = written.find((write) => write.status === 'rejected');
  if (refused !== undefined && serverError(refused.reason) !== undefined) throw refused.reason;
  if (commit.status === 'rejected') {
    const said = serverError(commit.reason);
    if (said?.severity === 'ERROR' || wasBroken || writes.length === 0) throw commit.reason;
    throw outcomeUnknown();
  }
  if (commit.value !== 'COMMIT') {
    throw new StoreError('store_unavailable', `The database answered COMMIT with ${commit.value}.`);
  }
  return written.map((write) => (write.status === 'fulfilled' ? write.value : []));
}

/** Waits for all, so that nothing is left on the connection, then throws the first failure. */
export async function together<T extends readonly unknown[]>(
  sent: T,
): Promise<{ -readonly [K in keyof T]: Awaited<T[K]> }> {
  const settled = await Promise.allSettled(sent);
  const failed = settled.find((one) => one.status === 'rejected');
  if (failed !== undefined) throw failed.reason;
  return settled.map((one) => (one.status === 'fulfilled' ? one.value : undefined)) as {
    -readonly [K in keyof T]: Awaited<T[K]>;
  };
}
