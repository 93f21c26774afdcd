/** Files with secrets: made at once, whole, readable by their owner only. */
import { link, mkdir, open, readFile, stat, unlink } from 'node:fs/promises';
import { basename, dirname, join } from 'node:path';
import { CodedError } from '../runtime/failure.js';
import type { Random } from '../runtime/random.js';

/** A secret file is text that a person can read; anything greater is the wrong file. */
const SECRET_FILE_BYTES_MAX = 1_048_576;

/**
 * Reads the file, or makes it with what `content` returns, mode 0600, in a folder of mode 0700 if
 * that is missing too. Of several processes that make it at once, all read what one of them wrote.
 */
export async function readOrMakePrivateFile(
  path: string,
  content: () => string,
  random: Random,
): Promise<{ readonly text: string; readonly made: boolean }> {
  const existing = await readIfThere(path);
  if (existing !== undefined) return { text: existing, made: false };
  await mkdir(dirname(path), { recursive: true, mode: 0o700 });
  const suffix = Buffer.from(random.bytes(8)).toString('hex');
  const draft = join(dirname(path), `.${basename(path)}.${suffix}`);
  const text = content();
  try {
    await writeWhole(draft, text);
    await link(draft, path);
    return { text, made: true };
  } catch (error) {
    if (!hasCode(error, 'EEXIST')) throw error;
    return { text: await readText(path), made: false };
  } finally {
    await unlink(draft).catch(() => undefined);
  }
}

/** The text of a file of secrets. Throws what the file system says, and for one that is too big. */
export async function readText(path: string): Promise<string> {
  const text = await readFile(path, 'utf8');
  if (text.length <= SECRET_FILE_BYTES_MAX) return text;
  throw new Error(`${path} is too big to be what it should be`);
}

/** Whether anybody on the machine may read the file: the last three bits of its mode. */
export async function othersCanRead(path: string): Promise<boolean> {
  return ((await stat(path)).mode & 0o004) !== 0;
}

/**
 * The URL in a file, which holds nothing else. Throws `CodedError` `database_url_invalid`, which
 * names the file and never its content.
 */
export async function readDatabaseUrl(path: string): Promise<string> {
  const text = await readText(path).catch((error: unknown) => {
    const why = error instanceof Error && 'code' in error ? ` (${String(error.code)})` : '';
    throw new CodedError('database_url_invalid', `Cannot read the database URL in ${path}${why}.`);
  });
  const url = text.trim();
  if (url !== '' && !/\s/.test(url)) return url;
  throw new CodedError('database_url_invalid', `${path} must hold one URL and nothing else.`);
}

/** Whether an error of the file system carries that code, such as `ENOENT`. */
export function hasCode(error: unknown, code: string): boolean {
  return error instanceof Error && 'code' in error && error.code === code;
}

async function readIfThere(path: string): Promise<string | undefined> {
  try {
    return await readText(path);
  } catch (error) {
    if (hasCode(error, 'ENOENT')) return undefined;
    throw error;
  }
}

/** Durable before it gets its name: a key that signed must not be gone after a power cut. */
async function writeWhole(path: string, text: string): Promise<void> {
  const file = await open(path, 'wx', 0o600);
  try {
    await file.writeFile(text);
    await file.sync();
  } finally {
    await file.close();
  }
}
