/** Verifies a chain in files with all cores of the machine. */
import { availableParallelism } from 'node:os';
import { openCpuPool } from '../../runtime/cpu-pool.js';
import { findChainFiles, readLines } from '../../verify/chain-files.js';
import type { Pins } from '../../verify/chain-verifier.js';
import type { VerificationResult } from '../../verify/findings.js';
import { verifyLines } from '../../verify/verify-lines.js';

/** How far a verification is. */
export interface Progress {
  readonly records: number;
  readonly bytesRead: number;
  readonly bytes: number;
}

/** Work in hand for each worker, one batch being checked and some waiting: none ever idles. */
const BATCHES_PER_WORKER = 4;

/**
 * Verifies an export or a directory of segments. Rejects when it cannot be read; whatever is wrong
 * with the chain is in the result.
 */
export async function verifyPath(
  path: string,
  pins: Pins,
  onProgress?: (progress: Progress) => void,
): Promise<VerificationResult> {
  const { paths, bytes, endsAtHead } = await findChainFiles(path);
  const workers = availableParallelism();
  const pool = openCpuPool(new URL('../../verify/signatures.js', import.meta.url), workers);
  try {
    return await verifyLines(readLines(paths), {
      pins,
      endsAtHead,
      checkSignatures: (batch) => pool.run<number>('firstBadSignature', batch),
      batchesMax: workers * BATCHES_PER_WORKER,
      ...(onProgress === undefined
        ? {}
        : { onProgress: (progress) => onProgress({ ...progress, bytes }) }),
    });
  } finally {
    await pool.close();
  }
}
