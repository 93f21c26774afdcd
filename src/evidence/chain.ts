/**
 * The chain: an event gets its number, its predecessor's hash, its own hash, and then a signature
 * over that. Linking and signing are apart, since the next link needs the hash and never the
 * signature: a batch is linked under the head's lock and signed in parallel.
 */
import { hash } from 'node:crypto';
import { CodedError } from '../runtime/failure.js';
import { decodeEvent } from './event.js';
import {
  CHECKPOINT_AGE_MAX_MS,
  CHECKPOINT_RECORDS_MAX,
  GENESIS_PREV_HASH,
  HASH_PREFIX,
  KIND_GENESIS,
  TIME_PATTERN,
} from './format.js';
import type { SigningKey } from './keyring.js';

/** The newest record of a chain; before record 0, `EMPTY_CHAIN`. */
export interface ChainHead {
  readonly seq: number;
  /** Hexadecimal. */
  readonly hash: string;
}

/** The head of a chain that has no records yet. */
export const EMPTY_CHAIN: ChainHead = { seq: -1, hash: GENESIS_PREV_HASH };

/** A record that lacks only its signature. */
export interface LinkedRecord {
  readonly seq: number;
  readonly ref: string;
  readonly kind: string;
  readonly prevHash: string;
  /** Hexadecimal; its 32 bytes are what is signed. */
  readonly hash: string;
  readonly keyId: string;
  /** The record's canonical text before `hash`, between `hash` and `sig`, and after `sig`. */
  readonly text: readonly [head: string, middle: string, tail: string];
}

/** A finished record. */
export interface ChainRecord {
  readonly seq: number;
  readonly ref: string;
  readonly kind: string;
  readonly prevHash: string;
  readonly hash: string;
  /** The canonical text, without a line end: what is stored, exported and verified, as it is. */
  readonly text: string;
}

/** When and for which key an event is given its place. */
export interface LinkOptions {
  /** RFC 3339, UTC, milliseconds. */
  readonly chainedAt: string;
  /** The chain's current key. */
  readonly keyId: string;
}

/**
 * Gives an encoded event the place after `head`. Pass the result (it has `seq` and `hash`) as the
 * next head. Throws as `decodeEvent` does, and `CodedError` `evidence_invalid` for a record 0 that
 * is no genesis or a genesis elsewhere.
 */
export function linkEvent(head: ChainHead, eventText: string, options: LinkOptions): LinkedRecord {
  const { chainedAt, keyId } = options;
  const { ref, kind, members } = decodeEvent(eventText);
  const seq = head.seq + 1;
  if ((kind === KIND_GENESIS) !== (seq === 0))
    throw invalid('a genesis is record 0, and only that');
  if (!Number.isSafeInteger(seq)) throw invalid('the chain has no numbers left');
  if (!TIME_PATTERN.test(chainedAt)) throw invalid('the time of chaining is not RFC 3339');
  const before =
    `{"at":${members.at},"by":${members.by},` +
    `"chained_at":"${chainedAt}","data":${members.data},`;
  const middle =
    `"key_id":"${keyId}","kind":${members.kind},"masked":${members.masked},` +
    `"prev_hash":"${head.hash}","ref":${members.ref},"seq":${seq},`;
  const tail = `"v":${members.v}}`;
  const digest = hash('sha256', `${HASH_PREFIX}${before}${middle}${tail}`, 'hex');
  return {
    seq,
    ref,
    kind,
    prevHash: head.hash,
    hash: digest,
    keyId,
    text: [before, middle, tail],
  };
}

/** The bytes of a record that are signed: its hash. */
export function signedBytes(record: { readonly hash: string }): Uint8Array {
  return Buffer.from(record.hash, 'hex');
}

/** Completes a record with its signature (64 bytes), wherever that was made. */
export function sealRecord(record: LinkedRecord, signature: Uint8Array): ChainRecord {
  const { seq, ref, kind, prevHash, hash, text } = record;
  const sig = Buffer.from(signature).toString('hex');
  const [before, middle, tail] = text;
  return {
    seq,
    ref,
    kind,
    prevHash,
    hash,
    text: `${before}"hash":"${hash}",${middle}"sig":"${sig}",${tail}`,
  };
}

/** Signs and completes a record in this thread. Throws `signing_key_missing` for another key. */
export function signRecord(record: LinkedRecord, key: SigningKey): ChainRecord {
  if (key.id !== record.keyId) {
    const message = `the record is linked for the key ${record.keyId}, not for ${key.id}`;
    throw new CodedError('signing_key_missing', message);
  }
  return sealRecord(record, key.sign(signedBytes(record)));
}

/** What decides whether a checkpoint is due. Times are milliseconds of one clock. */
export interface CheckpointState {
  readonly head: ChainHead;
  /** The newest checkpoint, or the genesis before there is one. */
  readonly lastCheckpoint: { readonly seq: number; readonly atMs: number };
}

/**
 * Whether a checkpoint is due: `CHECKPOINT_RECORDS_MAX` records since the last one, or anything at
 * all since then and `CHECKPOINT_AGE_MAX_MS`. A chain that stands still makes none.
 */
export function isCheckpointDue({ head, lastCheckpoint }: CheckpointState, nowMs: number): boolean {
  const uncovered = head.seq - lastCheckpoint.seq;
  if (uncovered >= CHECKPOINT_RECORDS_MAX) return true;
  return uncovered > 0 && nowMs - lastCheckpoint.atMs >= CHECKPOINT_AGE_MAX_MS;
}

function invalid(why: string): CodedError {
  return new CodedError('evidence_invalid', `the event cannot be chained: ${why}`);
}
