/** The file behind `--signing-key-file`. */
import { generateKeyPairSync } from 'node:crypto';
import { type Keyring, parseKeyring, signingKeyPem } from '../evidence/keyring.js';
import { CodedError } from '../runtime/failure.js';
import type { Random } from '../runtime/random.js';
import { hasCode, readOrMakePrivateFile, readText } from './private-file.js';

/**
 * Reads the keys; makes a file with a new one where it is missing and `makeIfMissing`. Throws
 * `CodedError` `signing_key_invalid` or `signing_key_missing`.
 */
export async function openSigningKeyFile(
  path: string,
  makeIfMissing: boolean,
  random: Random,
): Promise<{ readonly keyring: Keyring; readonly pem: string; readonly made: boolean }> {
  if (makeIfMissing) {
    const makePem = (): string => signingKeyPem(() => generateKeyPairSync('ed25519'));
    const { text, made } = await readOrMakePrivateFile(path, makePem, random);
    return { keyring: parseKeyring(text), pem: text, made };
  }
  try {
    const pem = await readText(path);
    return { keyring: parseKeyring(pem), pem, made: false };
  } catch (error) {
    if (!hasCode(error, 'ENOENT')) throw error;
    throw new CodedError(
      'signing_key_missing',
      `there is no signing key in ${path}: all replicas need the same file (PEM, PKCS 8, Ed25519)`,
    );
  }
}
