/** What the chain's statements about itself must say, each given the record it stands in. */
import {
  CHAIN_KIND_PREFIX,
  GENESIS_ALGORITHMS,
  HASH_PATTERN,
  KEY_ID_CHARACTERS,
  KEY_ID_PATTERN,
  KIND_CHECKPOINT,
  KIND_GENESIS,
  KIND_KEY_ROTATED,
  KIND_RESTORE_ACCEPTED,
  PUBLIC_KEY_PATTERN,
  ROTATION_PREFIX,
  SIGNATURE_PATTERN,
} from '../evidence/format.js';
import type { JsonMembers } from './canonical-form.js';
import { type Check, shown } from './findings.js';
import type { ReadRecord } from './record-line.js';
import { isSignature, keyIdOf } from './signatures.js';

/** What is wrong with a record. */
export interface StatementFault {
  readonly check: Check;
  readonly expected: string;
  readonly found: string;
}

/** A key as a chain introduces it. */
export interface IntroducedKey {
  readonly id: string;
  /** Hexadecimal. */
  readonly publicKey: string;
}

const CHAIN_KINDS = new Set([
  KIND_GENESIS,
  KIND_CHECKPOINT,
  KIND_KEY_ROTATED,
  KIND_RESTORE_ACCEPTED,
]);

/** Deciders may name their kinds as they like, except below `chain.`, which a version fixes. */
export function isKnownKind(kind: string): boolean {
  return !kind.startsWith(CHAIN_KIND_PREFIX) || CHAIN_KINDS.has(kind);
}

/** The first key, if the record is a genesis in its place; a fault for one of them alone. */
export function readGenesis(read: ReadRecord): {
  readonly key?: IntroducedKey;
  readonly fault?: StatementFault;
} {
  const isGenesis = read.kind === KIND_GENESIS;
  if (isGenesis !== (read.seq === 0)) {
    const expected = isGenesis ? 'record 0' : KIND_GENESIS;
    return { fault: faultOf('genesis', expected, isGenesis ? read.seq : read.kind) };
  }
  if (!isGenesis) return {};
  const { data } = read;
  const publicKey = textOf(data, 'public_key', PUBLIC_KEY_PATTERN);
  const isKnown =
    data['hash'] === GENESIS_ALGORITHMS.hash && data['signature'] === GENESIS_ALGORITHMS.signature;
  if (!hasNames(data, ['hash', 'public_key', 'signature']) || !isKnown || publicKey === undefined) {
    return { fault: faultOf('genesis', 'its algorithms and a public key', data) };
  }
  return { key: { id: keyIdOf(publicKey, KEY_ID_CHARACTERS), publicKey } };
}

/** What is wrong with a statement other than the genesis. `chain` is undefined while not known. */
export function statementFault(
  read: ReadRecord,
  chain: string | undefined,
): StatementFault | undefined {
  switch (read.kind) {
    case KIND_CHECKPOINT:
      return checkpointFault(read, chain);
    case KIND_KEY_ROTATED:
      return rotationFault(read);
    case KIND_RESTORE_ACCEPTED:
      return restoreFault(read);
    default:
      return undefined;
  }
}

/** The next key, if the record introduces one; only for a record without a fault. */
export function readRotation({ kind, data }: ReadRecord): IntroducedKey | undefined {
  if (kind !== KIND_KEY_ROTATED) return undefined;
  return { id: String(data['next_key_id']), publicKey: String(data['next_public_key']) };
}

function checkpointFault(
  { seq, prevHash, data }: ReadRecord,
  chain: string | undefined,
): StatementFault | undefined {
  const stated = textOf(data, 'chain', HASH_PATTERN);
  if (!hasNames(data, ['chain', 'head_hash', 'size']) || stated === undefined) {
    return faultOf('checkpoint', 'chain, head_hash and size', data);
  }
  if (data['size'] !== seq) return faultOf('checkpoint', `the size ${seq}`, data['size']);
  if (data['head_hash'] !== prevHash) {
    return faultOf('checkpoint', `the head ${prevHash}`, data['head_hash']);
  }
  if (chain !== undefined && stated !== chain) {
    return faultOf('checkpoint', `the chain ${chain}`, stated);
  }
  return undefined;
}

function rotationFault({ prevHash, keyId, data }: ReadRecord): StatementFault | undefined {
  const nextId = textOf(data, 'next_key_id', KEY_ID_PATTERN);
  const publicKey = textOf(data, 'next_public_key', PUBLIC_KEY_PATTERN);
  const proof = textOf(data, 'proof', SIGNATURE_PATTERN);
  const isWhole = hasNames(data, ['next_key_id', 'next_public_key', 'proof']);
  if (!isWhole || nextId === undefined || publicKey === undefined || proof === undefined) {
    return faultOf('key_rotated', 'the next key and its proof', data);
  }
  const computedId = keyIdOf(publicKey, KEY_ID_CHARACTERS);
  if (nextId !== computedId) return faultOf('key_rotated', `the key ${computedId}`, nextId);
  if (nextId === keyId) return faultOf('key_rotated', 'another key', nextId);
  const message = `${ROTATION_PREFIX}${prevHash}\n${keyId}\n${nextId}`;
  if (isSignature(publicKey, message, proof)) return undefined;
  return faultOf('key_rotated', 'a proof by the next key', proof);
}

function restoreFault({ seq, data }: ReadRecord): StatementFault | undefined {
  const from = numberOf(data, 'lost_from');
  const to = numberOf(data, 'lost_to');
  const isWhole =
    hasNames(data, ['lost_from', 'lost_hash', 'lost_to']) &&
    textOf(data, 'lost_hash', HASH_PATTERN) !== undefined;
  if (!isWhole || from === undefined || to === undefined) {
    return faultOf('restore_accepted', 'the lost range', data);
  }
  if (from >= 1 && from <= to && from <= seq) return undefined;
  return faultOf('restore_accepted', `a range from 1 to ${seq}`, `${from} to ${to}`);
}

function hasNames(data: JsonMembers, names: readonly string[]): boolean {
  const found = Object.keys(data);
  return found.length === names.length && names.every((name) => found.includes(name));
}

function textOf(data: JsonMembers, name: string, pattern: RegExp): string | undefined {
  const value = Object.hasOwn(data, name) ? data[name] : undefined;
  return typeof value === 'string' && pattern.test(value) ? value : undefined;
}

function numberOf(data: JsonMembers, name: string): number | undefined {
  const value = Object.hasOwn(data, name) ? data[name] : undefined;
  return typeof value === 'number' && Number.isSafeInteger(value) ? value : undefined;
}

function faultOf(check: Check, expected: unknown, found: unknown): StatementFault {
  return { check, expected: shown(expected), found: shown(found) };
}
