/**
 * `Idempotency-Key` on a mutation, for every actor: what is kept of a call so that the same call
 * again is answered the same (DESIGN §3). The row is committed with the change itself.
 */
import { hash } from 'node:crypto';
import type { WriteAsk } from '../runtime/actor.js';
import { CodedError, type Failure, failure } from '../runtime/failure.js';
import type { KvChange, KvEntry } from '../storage/store.js';

/** An `Idempotency-Key` as the front thread passes it on. */
export interface Idempotency {
  /**
   * Who asks: `admin:<name>`, `enrollment:<token digest>` or `device:<id in the path>`, since a
   * device's key must outlive the credential it was sent with.
   */
  readonly principal: string;
  /** Method, path and the client's key, joined by a space. */
  readonly call: string;
  /** HMAC of the canonical body, hexadecimal. */
  readonly bodyHmac: string;
}

/** How long a key is remembered. */
export const IDEMPOTENCY_TTL_MS = 24 * 3600 * 1000;

/** What a row holds. `superseded`: what the call made was used or replaced since. */
export interface IdempotencyRow<Answer> {
  readonly bodyHmac: string;
  /** The answer without its secrets; secrets are stored only as digests. */
  readonly answer?: Answer;
  readonly superseded?: true;
}

/** The KV key of the row: principal and call are hashed, so that no length or character matters. */
export function idempotencyKvKey(idempotency: Idempotency): string {
  const { principal, call } = idempotency;
  return `idempotency/${hash('sha256', JSON.stringify([principal, call]), 'base64url')}`;
}

/** The KV rows that deciding a batch reads for its idempotent calls. */
export function idempotencyKvKeys(batch: readonly WriteAsk[]): string[] {
  const calls = batch.map(idempotencyIn).filter((call) => call !== undefined);
  return [...new Set(calls.map(idempotencyKvKey))];
}

/**
 * For an ask that ran out of time: someone whose own first call is still being written is told so,
 * rather than to try again.
 */
export function stillInProgress(ask: WriteAsk, running: readonly WriteAsk[]): Failure | undefined {
  const own = idempotencyIn(ask);
  if (!own) return undefined;
  const isOwn = (other: Idempotency | undefined): boolean =>
    other?.call === own.call && other.principal === own.principal;
  if (!running.map(idempotencyIn).some(isOwn)) return undefined;
  return failure('idempotency_in_progress', 'The first call with this key is still running.', 1);
}

function idempotencyIn(ask: WriteAsk): Idempotency | undefined {
  return (ask.payload as { readonly idempotency?: Idempotency }).idempotency;
}

/**
 * The stored answer for a call made before, `undefined` for a new one. Throws
 * `idempotency_mismatch` for another body and `replay_superseded` when the answer would be a lie.
 */
export function storedAnswer<Answer>(
  idempotency: Idempotency,
  entry: KvEntry | undefined,
): Answer | undefined {
  if (!entry) return undefined;
  const row = JSON.parse(entry.value) as IdempotencyRow<Answer>;
  if (row.bodyHmac !== idempotency.bodyHmac) {
    throw new CodedError(
      'idempotency_mismatch',
      'This Idempotency-Key was used with another body.',
    );
  }
  if (row.superseded) throw superseded();
  return row.answer;
}

/** What the call made cannot be handed out again: it was used, replaced or has expired. */
export function superseded(): CodedError {
  return new CodedError(
    'replay_superseded',
    'What this call made was used or replaced since and cannot be handed out again.',
  );
}

/**
 * Remembers a call under its KV key; `nowMs` is the store's clock under the lock. A `put`, so that
 * a later change can mark the row as superseded.
 */
export function idempotencyChange(
  key: string,
  row: IdempotencyRow<unknown>,
  nowMs: number,
): KvChange {
  const value = JSON.stringify(row);
  return { op: 'put', key, value, expiresAtMs: nowMs + IDEMPOTENCY_TTL_MS };
}
