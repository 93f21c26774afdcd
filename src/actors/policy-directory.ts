/**
 * `--policy-dir`: read through its real path, so that a link that is swapped meanwhile changes the
 * whole set or nothing of it. Only plain files directly in the directory count.
 */
import { readdir, readFile, realpath, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { POLICY_FILE, SCHEMA_FILE } from '../policy/cedar-source.js';
import { HALOS_FILE } from '../policy/halos-file.js';
import type { PolicyFile } from '../policy/issue.js';

/** Where a policy comes from; read again and again. */
export interface PolicySource {
  /** Rejects with an `Error` whose message says what cannot be read. */
  read(): Promise<readonly PolicyFile[]>;
}

/** More and larger files than anybody reviews are a mistake. */
const FILES_MAX = 1_000;
const FILE_BYTES_MAX = 1_048_576;

/** The files of a directory that make up a policy; others are not looked at. */
export function policyDirectory(path: string): PolicySource {
  return { read: () => readPolicyDirectory(path) };
}

/** See `PolicySource.read`. */
export async function readPolicyDirectory(path: string): Promise<readonly PolicyFile[]> {
  const directory = await realpath(path).catch(() => {
    throw new Error(`the policy directory ${path} cannot be found`);
  });
  const names = await readdir(directory).catch(() => {
    throw new Error(`the policy directory ${path} cannot be read`);
  });
  const wanted = names.filter(
    (name) => POLICY_FILE.test(name) || name === SCHEMA_FILE || name === HALOS_FILE,
  );
  if (wanted.length > FILES_MAX) throw new Error(`${path} has more than ${FILES_MAX} files`);
  return Promise.all(wanted.map(async (name) => ({ name, text: await readOne(directory, name) })));
}

async function readOne(directory: string, name: string): Promise<string> {
  const path = join(directory, name);
  const facts = await stat(path).catch(() => undefined);
  if (facts?.isFile() !== true) throw new Error(`${name} is no file that can be read`);
  if (facts.size > FILE_BYTES_MAX) throw new Error(`${name} has more than ${FILE_BYTES_MAX} bytes`);
  const bytes = await readFile(path).catch(() => {
    throw new Error(`${name} cannot be read`);
  });
  try {
    return new TextDecoder('utf-8', { fatal: true }).decode(bytes);
  } catch {
    throw new Error(`${name} is not UTF-8`);
  }
}
