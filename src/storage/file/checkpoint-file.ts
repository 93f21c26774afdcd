/** Published checkpoints in a file of their own. */
import { mkdir, open, readFile, rename } from 'node:fs/promises';
import { dirname } from 'node:path';
import {
  CHECKPOINTS_KEPT_MAX,
  type PublishedCheckpoint,
  type PublishedCheckpoints,
} from '../published-checkpoints.js';
import { StoreError } from '../store-error.js';

const HASH_PATTERN = /^[0-9a-f]{64}$/;

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
      await replaceFile(path, all.slice(-CHECKPOINTS_KEPT_MAX));
    },
    keepUpTo: async (seq) => {
      const kept = (await read()).filter((one) => one.seq <= seq);
      await replaceFile(path, kept);
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
    HASH_PATTERN.test(hash)
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
