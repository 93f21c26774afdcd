/** Verifies a chain, wherever it lies, with all cores of the machine. */
import { availableParallelism } from 'node:os';
import { join } from 'node:path';
import { openCpuPool } from '../../runtime/cpu-pool.js';
import { type ChainRow, EvidenceReader } from '../../storage/postgres/evidence-reader.js';
import { findChainFiles, readLines } from '../../verify/chain-files.js';
import type { Pins } from '../../verify/chain-verifier.js';
import type { VerificationResult } from '../../verify/findings.js';
import { OutboxVerifier } from '../../verify/outbox-rules.js';
import { type LineChunk, type VerifyOptions, verifyLines } from '../../verify/verify-lines.js';

/** How far a verification is. */
export interface Progress {
  readonly records: number;
  /** Of everything that there is to read: 0 to 1. */
  readonly done: number;
}

/** Where a chain lies. */
export type ChainPlace =
  /** An export, or a directory of segments. */
  | { readonly kind: 'path'; readonly path: string }
  /** The data directory of a server, which may be running. */
  | { readonly kind: 'data-dir'; readonly dataDir: string }
  | { readonly kind: 'database'; readonly url: string; readonly insecureTls: boolean };

type OnProgress = ((progress: Progress) => void) | undefined;

/** Where the segments lie in a data directory. */
const SEGMENTS = 'chain';
/** Work in hand for each worker, one batch being checked and some waiting: none ever idles. */
const BATCHES_PER_WORKER = 4;

/** Rejects when it cannot be read; whatever is wrong with the chain is in the result. */
export function verifyChain(
  place: ChainPlace,
  pins: Pins,
  onProgress?: (progress: Progress) => void,
): Promise<VerificationResult> {
  switch (place.kind) {
    case 'path':
      return verifyFiles(place.path, false, pins, onProgress);
    case 'data-dir':
      return verifyFiles(join(place.dataDir, SEGMENTS), true, pins, onProgress);
    case 'database':
      return verifyDatabase(place, pins, onProgress);
  }
}

async function verifyFiles(
  path: string,
  isWritten: boolean,
  pins: Pins,
  onProgress: OnProgress,
): Promise<VerificationResult> {
  const { paths, bytes, endsAtHead } = await findChainFiles(path);
  const options = { pins, endsAtHead };
  return withWorkers(readLines(paths, isWritten), options, onProgress, bytes);
}

async function verifyDatabase(
  { url, insecureTls }: { readonly url: string; readonly insecureTls: boolean },
  pins: Pins,
  onProgress: OnProgress,
): Promise<VerificationResult> {
  const reader = await EvidenceReader.open({ url, insecureTls });
  try {
    const outbox = new OutboxVerifier();
    const { head, lastSeq } = await reader.table((rows) => {
      for (const row of rows) outbox.accept(row);
    });
    const lines = tableLines(reader.rows(lastSeq));
    const options = { pins, endsAtHead: true, head };
    const result = await withWorkers(lines, options, onProgress, lastSeq + 1);
    return { ...withOutbox(result, outbox), pending: outbox.pending };
  } finally {
    await reader.close();
  }
}

/** What is wrong with the chain itself comes first; a missing beginning or end comes last. */
function withOutbox(result: VerificationResult, outbox: OutboxVerifier): VerificationResult {
  const finding = outbox.finding((result.head?.seq ?? -1) + 1);
  const isGood = result.status === 'verified' || result.status === 'incomplete';
  if (finding === undefined || !isGood) return result;
  return { ...result, status: finding.status, isPinned: false, finding };
}

/** Progress is counted in records here, and in bytes where there are bytes. */
async function* tableLines(pages: AsyncGenerator<readonly ChainRow[]>): AsyncGenerator<LineChunk> {
  let bytesRead = 0;
  for await (const rows of pages) {
    bytesRead += rows.length;
    yield { lines: rows.map(({ record }) => record), columns: rows, bytesRead, isTorn: false };
  }
}

/** `whole` is what `bytesRead` comes to at the end. */
async function withWorkers(
  chunks: AsyncIterable<LineChunk>,
  options: Pick<VerifyOptions, 'pins' | 'endsAtHead' | 'head'>,
  onProgress: OnProgress,
  whole: number,
): Promise<VerificationResult> {
  const workers = availableParallelism();
  const pool = openCpuPool(new URL('../../verify/signatures.js', import.meta.url), workers);
  try {
    return await verifyLines(chunks, {
      ...options,
      checkSignatures: (batch) => pool.run<number>('firstBadSignature', batch),
      batchesMax: workers * BATCHES_PER_WORKER,
      ...(onProgress === undefined
        ? {}
        : {
            onProgress: ({ records, bytesRead }) =>
              onProgress({ records, done: whole === 0 ? 1 : bytesRead / whole }),
          }),
    });
  } finally {
    await pool.close();
  }
}
