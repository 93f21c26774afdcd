/**
 * What the chain says of itself: how it began, what it has published, which key is next, what a
 * restore lost. Each function gives an encoded event that is linked, directly and in both write
 * modes, at exactly the head that it was given (ADR-0009 "Genesis and checkpoints stay direct").
 */
import { CodedError } from '../runtime/failure.js';
import type { ChainHead } from './chain.js';
import { encodeStatement, type Party } from './event.js';
import {
  GENESIS_ALGORITHMS,
  KIND_CHECKPOINT,
  KIND_GENESIS,
  KIND_KEY_ROTATED,
  KIND_RESTORE_ACCEPTED,
  ROTATION_PREFIX,
} from './format.js';
import type { SigningKey } from './keyring.js';
import type { Masking } from './masking.js';

/** Who states it, when, and under which ref. */
export interface Statement {
  readonly ref: string;
  readonly at: string;
  readonly by: Party;
  readonly masking: Masking;
}

/** Record 0. The chain's id is its hash. */
export function genesisEvent(statement: Statement, key: SigningKey): string {
  const data = { ...GENESIS_ALGORITHMS, public_key: hexOf(key.publicKey) };
  return encode(statement, KIND_GENESIS, data);
}

/** A checkpoint over all records up to the head: of size n it becomes record n. */
export function checkpointEvent(statement: Statement, chainId: string, head: ChainHead): string {
  const data = { chain: chainId, head_hash: head.hash, size: head.seq + 1 };
  return encode(statement, KIND_CHECKPOINT, data);
}

/**
 * The record after which `next` signs. The current key signs the record as every other; `next`
 * proves that it is held, for this place in this chain only. Throws `CodedError`
 * `evidence_invalid` when both are the same key.
 */
export function rotationEvent(
  statement: Statement,
  head: ChainHead,
  keys: { readonly current: SigningKey; readonly next: SigningKey },
): string {
  const { current, next } = keys;
  if (current.id === next.id) {
    throw new CodedError('evidence_invalid', 'a key is not rotated to itself');
  }
  const proof = next.sign(rotationMessage(head.hash, current.id, next.id));
  return encode(statement, KIND_KEY_ROTATED, {
    next_key_id: next.id,
    next_public_key: hexOf(next.publicKey),
    proof: hexOf(proof),
  });
}

function rotationMessage(headHash: string, currentId: string, nextId: string): Uint8Array {
  return Buffer.from(`${ROTATION_PREFIX}${headHash}\n${currentId}\n${nextId}`);
}

/** A range of records that was published and is no longer in the chain. */
export interface LostRange {
  /** The first record that may be lost: at most the number that the statement's record gets. */
  readonly fromSeq: number;
  /** The last record that is known to be lost: a published checkpoint. */
  readonly toSeq: number;
  /** The hash of that checkpoint. */
  readonly toHash: string;
}

/**
 * The record by which an operator accepts that a restore lost what was published. Throws
 * `CodedError` `evidence_invalid` for a range that is none.
 */
export function restoreAcceptedEvent(
  statement: Statement,
  head: ChainHead,
  lost: LostRange,
): string {
  const { fromSeq, toSeq, toHash } = lost;
  if (fromSeq < 1 || fromSeq > toSeq || fromSeq > head.seq + 1) {
    throw new CodedError('evidence_invalid', 'the lost range is none');
  }
  const data = { lost_from: fromSeq, lost_hash: toHash, lost_to: toSeq };
  return encode(statement, KIND_RESTORE_ACCEPTED, data);
}

function encode(
  { ref, at, by, masking }: Statement,
  kind: string,
  data: Readonly<Record<string, string | number>>,
): string {
  return encodeStatement({ ref, kind, at, by, data }, masking);
}

function hexOf(bytes: Uint8Array): string {
  return Buffer.from(bytes).toString('hex');
}
