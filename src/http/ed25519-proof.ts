/** The proof that whoever enrols holds the device key (API.md, retry-safe enrolment). Pure. */
import { createPublicKey, verify } from 'node:crypto';

const PREFIX = 'halo-enroll-v1\n';

/** What the device signs for a token. */
export function enrollmentProofMessage(token: string): string {
  return PREFIX + token;
}

/**
 * Whether `signature` (64 bytes, base64url) is `publicKey`'s (32 raw bytes, base64url) over the
 * UTF-8 of `message`. What is no key or no signature is false, never an error.
 */
export function verifyEd25519(publicKey: string, message: string, signature: string): boolean {
  try {
    const key = createPublicKey({
      key: { kty: 'OKP', crv: 'Ed25519', x: publicKey },
      format: 'jwk',
    });
    return verify(null, Buffer.from(message, 'utf8'), key, Buffer.from(signature, 'base64url'));
  } catch {
    return false;
  }
}
