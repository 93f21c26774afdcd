/** What an auditor pins, read from files. */
import { createPublicKey, type KeyObject } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import {
  KEY_ID_CHARACTERS,
  KIND_CHECKPOINT,
  PUBLIC_KEY_PATTERN,
  RECORD_BYTES_MAX,
} from '../../evidence/format.js';
import type { PinnedCheckpoint } from '../../verify/chain-verifier.js';
import { isFault, readRecordLine } from '../../verify/record-line.js';
import { keyIdOf } from '../../verify/signatures.js';
import { type IntroducedKey, statementFault } from '../../verify/statement-rules.js';
import { UsageError } from '../exit-codes.js';

/**
 * Reads a public key: PEM (SPKI, Ed25519) or 64 hexadecimal digits. Throws `UsageError`, for a
 * private key too: who verifies needs none, and should not have one lying about.
 */
export async function readPinnedKey(origin: string, path: string): Promise<IntroducedKey> {
  const text = (await readPin(origin, path)).trim();
  const publicKey = PUBLIC_KEY_PATTERN.test(text) ? text : publicKeyOf(origin, text);
  return { id: keyIdOf(publicKey, KEY_ID_CHARACTERS), publicKey };
}

function publicKeyOf(origin: string, text: string): string {
  if (text.includes('PRIVATE KEY')) {
    throw new UsageError(`${origin} takes a public key, and this file holds a private one`);
  }
  let key: KeyObject | undefined;
  try {
    key = createPublicKey(text);
  } catch {
    // The library's message can quote the text: it is dropped with the cause.
  }
  if (key?.asymmetricKeyType !== 'ed25519') {
    throw new UsageError(`${origin} takes an Ed25519 public key, as PEM or 64 hexadecimal digits`);
  }
  const { x = '' } = key.export({ format: 'jwk' });
  return Buffer.from(x, 'base64url').toString('hex');
}

/** Reads a published checkpoint: its record, as one line. Throws `UsageError`. */
export async function readPinnedCheckpoint(
  origin: string,
  path: string,
): Promise<PinnedCheckpoint> {
  const read = readRecordLine((await readPin(origin, path)).replace(/\r?\n$/, ''));
  if (isFault(read) || read.kind !== KIND_CHECKPOINT || read.hash !== read.computedHash) {
    throw new UsageError(`${origin} takes the record of a checkpoint, as it was published`);
  }
  const fault = statementFault(read, undefined);
  if (fault !== undefined) {
    throw new UsageError(`${origin} takes a checkpoint, and this one contradicts itself`);
  }
  return { seq: read.seq, hash: read.hash, chain: String(read.data['chain']) };
}

async function readPin(origin: string, path: string): Promise<string> {
  let text: string;
  try {
    text = await readFile(path, 'utf8');
  } catch (cause) {
    throw new UsageError(`the file of ${origin} cannot be read: ${codeOf(cause)}`);
  }
  if (text.length > RECORD_BYTES_MAX) throw new UsageError(`the file of ${origin} is too large`);
  return text;
}

/** The system's word for what went wrong, without the path. */
export function codeOf(error: unknown): string {
  const { code } = (error ?? {}) as { code?: unknown };
  return typeof code === 'string' ? code : 'unknown error';
}
