/** `Idempotency-Key`: what the actor needs to know a request again. */
import { createHmac } from 'node:crypto';
import type { Idempotency } from '../actors/devices/messages.js';
import { canonicalJson } from './json-body.js';
import { HttpProblem } from './problem-details.js';

/** As long as any key in use; it becomes part of a row's key in the store. */
export const IDEMPOTENCY_KEY_LENGTH_MAX = 255;
const VISIBLE_ASCII = /^[!-~]+$/;

/** Throws `headers_invalid` (400); undefined when the request has no key. */
export function checkedIdempotencyKey(header: string | undefined): string | undefined {
  if (header === undefined) return undefined;
  if (header.length > IDEMPOTENCY_KEY_LENGTH_MAX || !VISIBLE_ASCII.test(header)) {
    throw new HttpProblem('headers_invalid', {
      detail: `Idempotency-Key is 1 to ${IDEMPOTENCY_KEY_LENGTH_MAX} visible ASCII characters.`,
    });
  }
  return header;
}

/** One mutation as it came in; `path` is canonical, with its parameters encoded. */
export interface KeyedCall {
  readonly method: string;
  readonly path: string;
  readonly key: string;
  /** The body as it was received, parsed; undefined for none. */
  readonly body: unknown;
}

/** The body is compared by HMAC, since a plain hash of guessable fields can be reversed. */
export function idempotencyOf(call: KeyedCall, principal: string, hmacKey: Buffer): Idempotency {
  const body = call.body === undefined ? '' : canonicalJson(call.body);
  return {
    principal,
    call: `${call.method} ${call.path} ${call.key}`,
    bodyHmac: createHmac('sha256', hmacKey).update(body, 'utf8').digest('hex'),
  };
}
