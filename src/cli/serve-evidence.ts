/** What a server needs before it may record: its keys, and a place for what it publishes. */
import { constants } from 'node:fs';
import { access, mkdir } from 'node:fs/promises';
import { dirname } from 'node:path';
import { sharedEvidenceNumbers, type ThreadEvidenceData } from '../actors/thread-evidence.js';
import type { Keyring } from '../evidence/keyring.js';
import { CodedError } from '../runtime/failure.js';
import type { Random } from '../runtime/random.js';
import type { ServeOptions } from './serve-options.js';
import { openSigningKeyFile } from './signing-key-file.js';

/** Held by the main thread; `data` is what each actor thread gets. */
export interface ServerEvidence {
  readonly keyring: Keyring;
  readonly data: ThreadEvidenceData;
}

/** Throws `CodedError`: as `openSigningKeyFile`, or `checkpoint_file_unwritable`. */
export async function openServerEvidence(
  options: Pick<ServeOptions, 'signingKeyFile' | 'makeSigningKey' | 'checkpointFile'>,
  replica: ThreadEvidenceData['replica'],
  random: Random,
): Promise<ServerEvidence> {
  const { signingKeyFile, makeSigningKey, checkpointFile } = options;
  const { keyring, pem } = await openSigningKeyFile(signingKeyFile, makeSigningKey, random);
  await requireWritable(checkpointFile);
  const shared = sharedEvidenceNumbers();
  return { keyring, data: { signingKeyPem: pem, checkpointFile, shared, replica } };
}

/** What was published binds only if it is remembered: refused at the start, not at the first. */
async function requireWritable(path: string): Promise<void> {
  try {
    await mkdir(dirname(path), { recursive: true, mode: 0o700 });
    await access(dirname(path), constants.W_OK);
  } catch (cause) {
    const message =
      `${dirname(path)} cannot be written: name a place for the published checkpoints ` +
      'with --checkpoint-file';
    throw new CodedError('checkpoint_file_unwritable', message, { cause });
  }
}
