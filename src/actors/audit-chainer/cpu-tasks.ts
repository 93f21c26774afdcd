/** What the audit chainer has done off its thread, on a CPU pool: signing, checking signatures. */
import { parseKeyring } from '../../evidence/keyring.js';

export { firstBadSignature } from '../../verify/signatures.js';

/** A batch of hashes (hexadecimal) to be signed by one key of a file. */
export interface SignBatch {
  /** The text of the key file: the pool's threads read no files. */
  readonly pem: string;
  readonly keyId: string;
  readonly hashes: readonly string[];
}

/** Reading a key costs as much as signing a few hashes with it. */
let parsed: { pem: string; keyring: ReturnType<typeof parseKeyring> } | undefined;

/** One signature for each hash, in their order. Throws `CodedError` `signing_key_missing`. */
export function signHashes({ pem, keyId, hashes }: SignBatch): Uint8Array[] {
  if (parsed?.pem !== pem) parsed = { pem, keyring: parseKeyring(pem) };
  const key = parsed.keyring.select(keyId).current;
  return hashes.map((hash) => key.sign(Buffer.from(hash, 'hex')));
}
