/** Stateless CPU work off the event loop: a piscina pool, owned by the thread that needs it. */
import { Piscina } from 'piscina';
import { CodedError } from './failure.js';

/**
 * Runs functions of one module on worker threads. A task rejects with what its function threw, with
 * a `CodedError` of `overloaded` when the queue is full, and when the pool is closed.
 */
export interface CpuPool {
  /** Runs the exported function `task` of the pool's module. */
  run<Result>(task: string, input: unknown): Promise<Result>;
  /** Ends the workers. Idempotent. */
  close(): Promise<void>;
}

/** Tasks that may wait: a second of the work of one core; more is refused by the pool. */
const QUEUE_MAX = 10_000;
/** A worker that had nothing to do for so long ends; an idle server has none. */
const IDLE_MS = 30_000;

/** Workers start with the first task, at most `threadsMax` of them. */
export function openCpuPool(module: URL, threadsMax: number): CpuPool {
  const pool = new Piscina({
    filename: module.href,
    minThreads: 0,
    maxThreads: threadsMax,
    maxQueue: QUEUE_MAX,
    idleTimeout: IDLE_MS,
  });
  return {
    run: async (task, input) => {
      // The pool would refuse it with an error that has no code, which is taken for a bug.
      if (pool.queueSize >= QUEUE_MAX) {
        throw new CodedError('overloaded', 'Too many tasks wait.', { retryAfterSeconds: 1 });
      }
      return pool.run(input, { name: task });
    },
    close: () => pool.destroy(),
  };
}
