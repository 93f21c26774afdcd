/**
 * The checkpoints that this replica has given out, kept outside the database: what was published
 * binds. A database that was restored to a moment before one of them is noticed by it (DESIGN §4).
 */

/** A checkpoint record that left the process. */
export interface PublishedCheckpoint {
  readonly seq: number;
  readonly hash: string;
}

/**
 * How many are kept: the newest binds, the older ones say where a chain that was restored still is
 * what was published.
 */
export const CHECKPOINTS_KEPT_MAX = 16;

/** Where published checkpoints are kept. */
export interface PublishedCheckpoints {
  /** In the order of their numbers, empty where none was. Throws `StoreError` `damaged`. */
  read(): Promise<readonly PublishedCheckpoint[]>;
  /** Durable when it resolves. */
  add(checkpoint: PublishedCheckpoint): Promise<void>;
  /** Forgets those with a greater number: an operator has accepted that they are lost. */
  keepUpTo(seq: number): Promise<void>;
}

/** For what has no file: a simulation, a process that publishes nothing. */
export function checkpointsInMemory(): PublishedCheckpoints {
  let kept: readonly PublishedCheckpoint[] = [];
  return {
    read: () => Promise.resolve(kept),
    add: (checkpoint) => {
      kept = [...kept, checkpoint].slice(-CHECKPOINTS_KEPT_MAX);
      return Promise.resolve();
    },
    keepUpTo: (seq) => {
      kept = kept.filter((one) => one.seq <= seq);
      return Promise.resolve();
    },
  };
}
