/** Divides the process's database connections over its threads (`--database-max-conns`). */
import { CodedError } from './failure.js';

/** An actor thread reads on one connection and writes on at least one other. */
const ACTOR_THREAD_MIN = 2;

/**
 * How many connections each actor thread may open, one for its read lanes and the rest for writes;
 * `reserved` are the main thread's own. Throws a `CodedError` `usage` when the total cannot serve
 * that many threads.
 */
export function divideConnections(total: number, actorThreads: number, reserved: number): number {
  const perActorThread = Math.floor((total - reserved) / actorThreads);
  if (perActorThread < ACTOR_THREAD_MIN) {
    const least = actorThreads * ACTOR_THREAD_MIN + reserved;
    throw new CodedError(
      'usage',
      `${actorThreads} actor threads need at least ${least} database connections, not ${total}: ` +
        'raise --database-max-conns or lower --actor-threads.',
    );
  }
  return perActorThread;
}
