/** Who asks: the bearer credential of a request, and the administrators it may belong to. */
import { timingSafeEqual } from 'node:crypto';
import { digestOf } from '../actors/secrets.js';

/** RFC 6750 §2.1; the scheme is case-insensitive (RFC 9110 §11.1). */
const BEARER = /^bearer +(\S+)$/i;
const BEARER_ALONE = /^bearer *$/i;

/**
 * The credential in an `Authorization` header: undefined when there is none, '' when there is one
 * that is not a bearer's.
 */
export function bearerCredential(header: string): string | undefined {
  if (header === '' || BEARER_ALONE.test(header)) return undefined;
  return BEARER.exec(header)?.[1] ?? '';
}

/** A named administrator's token, as SHA-256 in base64url (`digestOf`). */
export interface AdminToken {
  readonly name: string;
  readonly digest: string;
}

/** The administrators of the moment; replaced whole when the token file changes. */
export class AdminTokens {
  private readonly tokens: readonly { name: string; digest: Buffer }[];

  constructor(tokens: readonly AdminToken[]) {
    this.tokens = tokens.map(({ name, digest }) => ({
      name,
      digest: Buffer.from(digest, 'base64url'),
    }));
  }

  /** The name behind a token. Looks at every token, so that time says nothing about them. */
  nameOf(credential: string): string | undefined {
    const digest = Buffer.from(digestOf(credential), 'base64url');
    let found: string | undefined;
    for (const token of this.tokens) {
      const same = token.digest.length === digest.length && timingSafeEqual(token.digest, digest);
      if (same && found === undefined) found = token.name;
    }
    return found;
  }
}
