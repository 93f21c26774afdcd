/** Ed25519 (RFC 8032) for the verifier: one signature, or many of one key on a worker thread. */
import { createPublicKey, hash, type KeyObject, verify } from 'node:crypto';

/** Bytes of a hash, which is what is signed, and of a signature. */
const HASH_BYTES = 32;
const SIGNATURE_BYTES = 64;
/** Bytes of one claim in a batch: a hash, then its signature. */
export const CLAIM_BYTES = HASH_BYTES + SIGNATURE_BYTES;

/** Signatures of one key, as a worker gets them. */
export interface SignatureBatch {
  /** Hexadecimal. */
  readonly publicKey: string;
  /** `count` claims, one after another. */
  readonly claims: Uint8Array;
  readonly count: number;
}

/** The index of the first claim whose signature is not by that key, or −1. A pool's task. */
export function firstBadSignature({ publicKey, claims, count }: SignatureBatch): number {
  const key = publicKeyObject(publicKey);
  for (let index = 0; index < count; index += 1) {
    const start = index * CLAIM_BYTES;
    const message = claims.subarray(start, start + HASH_BYTES);
    const signature = claims.subarray(start + HASH_BYTES, start + CLAIM_BYTES);
    if (!verify(null, message, key, signature)) return index;
  }
  return -1;
}

/** Whether one signature (hexadecimal) over a text is by that key. */
export function isSignature(publicKey: string, message: string, signature: string): boolean {
  const bytes = Buffer.from(signature, 'hex');
  return verify(null, Buffer.from(message), publicKeyObject(publicKey), bytes);
}

/** The id of a key: what records name it by. */
export function keyIdOf(publicKey: string, characters: number): string {
  return hash('sha256', Buffer.from(publicKey, 'hex'), 'hex').slice(0, characters);
}

function publicKeyObject(publicKey: string): KeyObject {
  const x = Buffer.from(publicKey, 'hex').toString('base64url');
  return createPublicKey({ key: { kty: 'OKP', crv: 'Ed25519', x }, format: 'jwk' });
}
