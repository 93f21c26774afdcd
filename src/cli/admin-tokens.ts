/**
 * The file behind `--admin-token-file`: read at start, made where it is missing, and read again
 * whenever its content changes, so that a token is replaced without a restart. It is read by
 * polling: watching a file misses the swap of a symbolic link, which is how orchestrators replace a
 * mounted secret. A folder holds one token per file.
 */
import { readdir, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { digestOf, mintSecret } from '../actors/secrets.js';
import { type Clock, repeat } from '../runtime/clock.js';
import { CodedError } from '../runtime/failure.js';
import type { Log } from '../runtime/log.js';
import type { Random } from '../runtime/random.js';
import { hasCode, readOrMakePrivateFile, readText } from './private-file.js';

/** A token that admits an administrator; the name is the actor in evidence. */
export interface AdminToken {
  readonly name: string;
  /** As `digestOf` makes it: the token itself is kept nowhere. */
  readonly digest: string;
}

/** A removed token works for at most this long; one small read a second costs nothing. */
export const ADMIN_TOKENS_POLL_MS = 1_000;
/** 32 characters of base62 carry 190 bits; anything shorter invites a chosen password. */
const TOKEN_LENGTH_MIN = 32;
const NAME_LENGTH_MAX = 256;
/** Every request of an administrator is compared with each of them, in constant time. */
export const ADMIN_TOKENS_MAX = 256;

/**
 * Reads tokens from text: one per line, each at least 32 visible ASCII characters without a colon,
 * optionally `name:token`; empty lines are skipped. A token without a name is called `defaultName`,
 * from the second one on with the number of its line. Throws `CodedError` `admin_tokens_invalid`,
 * which names the line and never its content.
 */
export function parseAdminTokens(text: string, defaultName = 'admin'): AdminToken[] {
  const tokens: Array<AdminToken & { readonly where: string }> = [];
  let unnamed = 0;
  for (const [index, raw] of text
    .replace(/^\uFEFF/, '')
    .split('\n')
    .entries()) {
    const line = raw.trim();
    if (line === '') continue;
    const number = index + 1;
    const colon = line.indexOf(':');
    if (colon < 0) unnamed += 1;
    const fallback = unnamed > 1 ? `${defaultName}-${number}` : defaultName;
    const name = colon < 0 ? fallback : line.slice(0, colon).trim();
    const digest = digestOf(soundToken(line.slice(colon + 1).trim(), number));
    if (!isSoundName(name)) throw invalid(`line ${number} has a name that cannot be used`);
    tokens.push({ name, digest, where: `line ${number}` });
  }
  return distinct(tokens);
}

function soundToken(token: string, line: number): string {
  if (token.length < TOKEN_LENGTH_MIN) {
    throw invalid(`line ${line} has a token of fewer than ${TOKEN_LENGTH_MIN} characters`);
  }
  if (!/^[\x21-\x39\x3b-\x7e]+$/.test(token)) {
    throw invalid(`line ${line} has a token that cannot travel in a header`);
  }
  return token;
}

function isSoundName(name: string): boolean {
  return name.length > 0 && name.length <= NAME_LENGTH_MAX && /^[\x21-\x7e]+$/.test(name);
}

/** Each token once. One token under two names would leave open who acted. */
function distinct(found: ReadonlyArray<AdminToken & { readonly where: string }>): AdminToken[] {
  const byDigest = new Map<string, AdminToken>();
  for (const { name, digest, where } of found) {
    const same = byDigest.get(digest);
    if (same !== undefined && same.name !== name) {
      throw invalid(`${where} repeats a token under another name`);
    }
    byDigest.set(digest, { name, digest });
  }
  if (byDigest.size === 0) throw invalid('there is no token in it');
  if (byDigest.size > ADMIN_TOKENS_MAX) throw invalid(`it has more than ${ADMIN_TOKENS_MAX}`);
  return [...byDigest.values()];
}

function invalid(why: string): CodedError {
  return new CodedError('admin_tokens_invalid', `the admin token file cannot be used: ${why}`);
}

/** What `watchAdminTokens` needs. */
export interface AdminTokensOptions {
  readonly path: string;
  readonly clock: Clock;
  readonly random: Random;
  readonly log: Log;
  /** Called with the tokens in force, at start and after every change. */
  readonly onTokens: (tokens: readonly AdminToken[]) => void;
}

/** A watch that is under way. */
export interface AdminTokensWatch {
  /** Whether the file was missing and made at start. */
  readonly made: boolean;
  /** Idempotent; no call of `onTokens` follows. */
  close(): void;
}

/**
 * Makes the file if it is missing, hands over its tokens and goes on doing so. A file that turns
 * unreadable or wrong leaves the last good tokens in force, and the log says so once. Rejects with
 * `CodedError` `admin_tokens_invalid` if it is wrong at start.
 */
export async function watchAdminTokens(options: AdminTokensOptions): Promise<AdminTokensWatch> {
  const { path, clock, random, log, onTokens } = options;
  const made = await makeIfMissing(path, random);
  let seen = await readTokens(path);
  onTokens(seen.tokens);
  let complaint = '';
  let closed = false;
  const look = async (): Promise<void> => {
    const now = await readTokens(path).catch((error: unknown) => complain(error));
    if (closed) return;
    if (now !== undefined) {
      complaint = '';
      if (now.fingerprint !== seen.fingerprint) {
        seen = now;
        log.info(
          { names: now.tokens.map((token) => token.name) },
          'The admin tokens were read again.',
        );
        onTokens(now.tokens);
      }
    }
  };
  const complain = (error: unknown): undefined => {
    const reason = error instanceof Error ? error.message : 'unknown';
    if (reason !== complaint && !closed) {
      log.warn({ path, reason }, 'The admin tokens cannot be read again: the last good ones stay.');
    }
    complaint = reason;
  };
  const timer = repeat(clock, ADMIN_TOKENS_POLL_MS, look);
  return {
    made,
    close: () => {
      closed = true;
      timer.cancel();
    },
  };
}

async function makeIfMissing(path: string, random: Random): Promise<boolean> {
  try {
    if ((await stat(path)).isDirectory()) return false;
  } catch (error) {
    if (!hasCode(error, 'ENOENT')) throw error;
  }
  const content = (): string => `${mintSecret('admin', random)}\n`;
  return (await readOrMakePrivateFile(path, content, random)).made;
}

interface ReadTokens {
  readonly tokens: readonly AdminToken[];
  /** Equal if and only if the names and tokens are. */
  readonly fingerprint: string;
}

async function readTokens(path: string): Promise<ReadTokens> {
  const folder = (await stat(path)).isDirectory();
  const tokens = folder ? await readFolder(path) : parseAdminTokens(await readText(path));
  return { tokens, fingerprint: JSON.stringify(tokens) };
}

/** One token per file, named by the file; names with a dot in front are an orchestrator's own. */
async function readFolder(path: string): Promise<AdminToken[]> {
  const names = (await readdir(path)).filter((name) => !name.startsWith('.')).sort();
  const found: Array<AdminToken & { readonly where: string }> = [];
  for (const name of names) {
    const file = join(path, name);
    if (!(await stat(file)).isFile()) continue;
    const tokens = parseAdminTokens(await readText(file), name);
    found.push(...tokens.map((token) => ({ ...token, where: `file ${name}` })));
  }
  return distinct(found);
}
