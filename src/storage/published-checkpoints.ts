/**
 * The checkpoints that this replica has given out, in a file of its own: what was published binds.
 * A database that was restored to a moment before one of them is noticed by it (DESIGN §4).
 */
import { mkdir, open, readFile, rename } from 'node:fs/promises';
import { dirname } from 'node:path';
import { StoreError } from './store-error.js';

/** A checkpoint record that left the process. */
export interface PublishedCheckpoint {
  readonly seq: number;
  readonly hash: string;
}

/**
 * How many are kept: the newest binds, the older ones say where a chain that was restored still is
 * what was published.
 */
const KEPT_MAX = 16;
const CHECKPOINTS_PATTERN = /^[0-9a-f]{64}$/;

/** Where published checkpoints are kept. */
export interface PublishedCheckpoints {
  /** In the order of their numbers; empty where none was published. Throws `StoreError` `damaged`. */
  read(): Promise<readonly PublishedCheckpoint[]>;
  /** Durable when it resolves. */
  add(checkpoint: PublishedCheckpoint): Promise<void>;
  /** Forgets those with a greater number: an operator has accepted that they are lost. */
  keepUpTo(seq: number): Promise<void>;
}

/** In a file, whole or not at all. Two processes of one host may share it: neither goes back. */
export function checkpointFile(path: string): PublishedCheckpoints {
  const read = async (): Promise<readonly PublishedCheckpoint[]> => {
    let text: string;
    try {
      text = await readFile(path, 'utf8');
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code === 'ENOENT') return [];
      throw error;
    }
    return parsed(text, path);
  };
  return {
    read,
    add: async (checkpoint) => {
      const others = (await read()).filter(({ seq }) => seq !== checkpoint.seq);
      const all = [...others, checkpoint].sort((one, other) => one.seq - other.seq);
      await replaceFile(path, all.slice(-KEPT_MAX));
    },
    keepUpTo: async (seq) => {
      const kept = (await read()).filter((one) => one.seq <= seq);
      await replaceFile(path, kept);
    },
  };
}

/** For what has no file: a simulation, a process that publishes nothing. */
export function checkpointsInMemory(): PublishedCheckpoints {
  let kept: readonly PublishedCheckpoint[] = [];
  return {
    read: () => Promise.resolve(kept),
    add: (checkpoint) => {
      kept = [...kept, checkpoint].slice(-KEPT_MAX);
      return Promise.resolve();
    },
    keepUpTo: (seq) => {
      kept = kept.filter((one) => one.seq <= seq);
      return Promise.resolve();
    },
  };
}

function parsed(text: string, path: string): readonly PublishedCheckpoint[] {
  try {
    const { checkpoints } = JSON.parse(text) as { checkpoints: unknown };
    if (Array.isArray(checkpoints) && checkpoints.every(isCheckpoint)) return checkpoints;
  } catch {
    // Told below, without the text.
  }
  const message = `${path} holds no published checkpoints: restore it, or accept a restore`;
  throw new StoreError('damaged', message);
}

function isCheckpoint(value: unknown): value is PublishedCheckpoint {
  const { seq, hash } = (value ?? {}) as Partial<PublishedCheckpoint>;
  return (
    typeof seq === 'number' &&
    Number.isSafeInteger(seq) &&
    seq > 0 &&
    typeof hash === 'string' &&
    CHECKPOINTS_PATTERN.test(hash)
  );
}

async function replaceFile(
  path: string,
  checkpoints: readonly PublishedCheckpoint[],
): Promise<void> {
  await mkdir(dirname(path), { recursive: true });
  const temporary = `${path}.${process.pid}.new`;
  const file = await open(temporary, 'w', 0o600);
  try {
    await file.writeFile(`${JSON.stringify({ checkpoints })}\n`);
    await file.sync();
  } finally {
    await file.close();
  }
  await rename(temporary, path);
  const directory = await open(dirname(path), 'r');
  try {
    await directory.sync();
  } finally {
    await directory.close();
  }
}
