/**
 * The signing keys that a process holds: PEM text in, keys out. Pure: whoever calls it reads the
 * file. Several keys are held while one replaces another; any held key verifies, the chain names
 * the current one (DESIGN §4).
 */
import {
  createPrivateKey,
  createPublicKey,
  hash,
  hkdfSync,
  type KeyObject,
  sign,
  verify,
} from 'node:crypto';
import { CodedError } from '../runtime/failure.js';

/** One Ed25519 key with what is derived from it. */
export interface SigningKey {
  /** Names the key in records and MACs: the beginning of the hash of the public key. */
  readonly id: string;
  /** The raw 32 bytes. */
  readonly publicKey: Uint8Array;
  /** Ed25519 (RFC 8032) over `message`: 64 bytes. */
  sign(message: Uint8Array): Uint8Array;
  /** Whether the signature over `message` is by this key. */
  verify(message: Uint8Array, signature: Uint8Array): boolean;
  /**
   * A secret for one purpose: HKDF-SHA256 (RFC 5869) of the key's seed, without salt, with `label`
   * as its info. The same on every replica that holds the key. 32 bytes.
   */
  derive(label: string): Uint8Array;
}

/** All keys of one file. */
export interface Keyring {
  /** The first block, until the chain names another one: see `select`. */
  readonly current: SigningKey;
  /** In the order of the file. */
  readonly keys: readonly SigningKey[];
  /** The key with that id, or undefined when it is not held. */
  find(id: string): SigningKey | undefined;
  /** The same keys with another current one. Throws `CodedError` `signing_key_missing`. */
  select(id: string): Keyring;
  /** What `derive(label)` of the current key gives, with the id to store beside it. */
  derive(label: string): { readonly keyId: string; readonly secret: Uint8Array };
}

/** 128 bits of a hash: two keys of one file never meet, and a record stays short. */
const KEY_ID_DIGITS = 32;
const DERIVED_BYTES = 32;
/** A rotation holds two; more than a few is a mistake, and each verification may try them all. */
export const KEYS_MAX = 8;

const PEM_BLOCK = /-----BEGIN ([A-Z0-9 ]+)-----[^-]*-----END \1-----/g;

/**
 * Reads one or several PEM blocks (PKCS 8, Ed25519, not encrypted). Throws `CodedError`
 * `signing_key_invalid`, which names the block and never its content.
 */
export function parseKeyring(pem: string): Keyring {
  const blocks = [...pem.matchAll(PEM_BLOCK)].map(([block]) => block);
  const rest = pem.replaceAll(PEM_BLOCK, '');
  if (blocks.length === 0) throw invalid('there is no PEM block in it');
  if (rest.includes('-----')) throw invalid('a PEM block in it is cut short');
  if (blocks.length > KEYS_MAX) throw invalid(`it has more than ${KEYS_MAX} keys`);
  const keys = blocks.map((block, index) => readKey(block, index + 1));
  const ids = new Set(keys.map((key) => key.id));
  if (ids.size !== keys.length) throw invalid('it has the same key twice');
  return keyringOf(keys, keys[0] ?? readKey(pem, 1));
}

/** A new key as PEM text, from whatever makes key pairs: the caller owns the randomness. */
export function signingKeyPem(generate: () => { readonly privateKey: KeyObject }): string {
  return generate().privateKey.export({ type: 'pkcs8', format: 'pem' }).toString();
}

function keyringOf(keys: readonly SigningKey[], current: SigningKey): Keyring {
  const find = (id: string): SigningKey | undefined => keys.find((key) => key.id === id);
  return {
    current,
    keys,
    find,
    select: (id) => {
      const key = find(id);
      if (key !== undefined) return keyringOf(keys, key);
      throw new CodedError('signing_key_missing', `the signing key ${id} is not in the file`);
    },
    derive: (label) => ({ keyId: current.id, secret: current.derive(label) }),
  };
}

function readKey(block: string, position: number): SigningKey {
  let privateKey: KeyObject;
  try {
    privateKey = createPrivateKey(block);
  } catch {
    // The library's message can quote the text: it is dropped with the cause.
    throw invalid(`block ${position} is not an unencrypted PKCS 8 private key`);
  }
  if (privateKey.asymmetricKeyType !== 'ed25519') {
    throw invalid(`block ${position} is not an Ed25519 key`);
  }
  const { d: seed = '', x = '' } = privateKey.export({ format: 'jwk' });
  const publicKey = Buffer.from(x, 'base64url');
  const publicObject = createPublicKey(privateKey);
  const secret = Buffer.from(seed, 'base64url');
  return {
    id: hash('sha256', publicKey, 'hex').slice(0, KEY_ID_DIGITS),
    publicKey,
    sign: (message) => sign(null, message, privateKey),
    verify: (message, signature) => verify(null, message, publicObject, signature),
    derive: (label) => new Uint8Array(hkdfSync('sha256', secret, '', label, DERIVED_BYTES)),
  };
}

function invalid(why: string): CodedError {
  return new CodedError('signing_key_invalid', `the signing key file cannot be used: ${why}`);
}
