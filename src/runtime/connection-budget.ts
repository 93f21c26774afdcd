/** Divides the process's database connections over its threads (`--database-max-conns`). */
import { CodedError } from './failure.js';

/** How many connections each part of a process may open; together never more than the total. */
export interface ConnectionBudget {
  /** For each actor thread: one for its read lanes, the rest for writes. */
  readonly perActorThread: number;
  /** Kept for the main thread: probe, elector, listener. */
  readonly reserved: number;
}

/** An actor thread reads on one connection and writes on at least one other. */
const ACTOR_THREAD_MIN = 2;

/** Throws a `CodedError` `usage` when the total cannot serve that many threads. */
export function divideConnections(
  total: number,
  actorThreads: number,
  reserved: number,
): ConnectionBudget {
  const perActorThread = Math.floor((total - reserved) / actorThreads);
  if (perActorThread < ACTOR_THREAD_MIN) {
    const least = actorThreads * ACTOR_THREAD_MIN + reserved;
    throw new CodedError(
      'usage',
      `${actorThreads} actor threads need at least ${least} database connections, not ${total}.`,
    );
  }
  return { perActorThread, reserved };
}
