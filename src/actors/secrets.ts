/**
 * The secrets that Halos hands out: `halo_<kind>_`, 43 random base62 characters, and 6 base62
 * characters of the CRC-32 of all before (API.md), so that scanners find them and a typo is told
 * apart from a guess. They are stored and compared only as SHA-256.
 */
import { hash } from 'node:crypto';
import { crc32 } from 'node:zlib';
import type { Random } from '../runtime/random.js';

/** Whom a secret lets in; the kind stands in the secret, so that a wrong one is told at once. */
export type SecretKind = 'admin' | 'enroll' | 'device' | 'gateway';

const BASE62 = '0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz';
/** 43 characters of base62 carry 256 bits. */
const RANDOM_LENGTH = 43;
const CHECKSUM_LENGTH = 6;

/** A new secret. Its text is handed out once and never stored: only `digestOf` it is. */
export function mintSecret(kind: SecretKind, random: Random): string {
  let text = `halo_${kind}_`;
  for (let length = 0; length < RANDOM_LENGTH; ) {
    for (const byte of random.bytes(RANDOM_LENGTH)) {
      // 248 is the greatest multiple of 62 in a byte: above it a character would be likelier.
      if (byte >= 248 || length === RANDOM_LENGTH) continue;
      text += BASE62.charAt(byte % 62);
      length += 1;
    }
  }
  return text + checksum(text);
}

/** Whether the text has the form and the checksum of a secret of that kind. */
export function isWellFormedSecret(text: string, kind: SecretKind): boolean {
  const prefix = `halo_${kind}_`;
  if (text.length !== prefix.length + RANDOM_LENGTH + CHECKSUM_LENGTH) return false;
  if (!text.startsWith(prefix) || !/^[0-9A-Za-z]+$/.test(text.slice(prefix.length))) return false;
  const body = text.slice(0, -CHECKSUM_LENGTH);
  return text.slice(-CHECKSUM_LENGTH) === checksum(body);
}

/** SHA-256 of a secret in base64url: the only form that is stored, sent or looked up. */
export function digestOf(secret: string): string {
  return hash('sha256', secret, 'base64url');
}

function checksum(text: string): string {
  let rest = crc32(text);
  let digits = '';
  for (let index = 0; index < CHECKSUM_LENGTH; index += 1) {
    digits = BASE62.charAt(rest % 62) + digits;
    rest = Math.floor(rest / 62);
  }
  return digits;
}
