/**
 * Drives a verification: lines in, signatures to workers in batches, a result out. Memory is
 * bounded by the batches in flight, whatever the length of the chain.
 */
import {
  ChainVerifier,
  type InputEnd,
  type Pins,
  type RecordColumns,
  type SignatureClaim,
} from './chain-verifier.js';
import type { VerificationResult } from './findings.js';
import { CLAIM_BYTES, type SignatureBatch } from './signatures.js';

/** Lines as they are read. */
export interface LineChunk {
  /** Without their line ends; undefined for one that is not UTF-8 or too long. */
  readonly lines: ReadonlyArray<string | undefined>;
  /** Of a table: what stands beside each of the lines. */
  readonly columns?: readonly RecordColumns[];
  /** How much of the input has been read with it. */
  readonly bytesRead: number;
  /** Only in the last one: after the last line end there was more. */
  readonly isTorn: boolean;
}

/** How to verify. */
export interface VerifyOptions {
  readonly pins: Pins;
  /** See `InputEnd`. */
  readonly endsAtHead: boolean;
  readonly head?: InputEnd['head'];
  /** The index of the first bad signature of a batch, or −1. Several are asked at once. */
  readonly checkSignatures: (batch: SignatureBatch) => Promise<number>;
  /** How many batches may be asked at once. */
  readonly batchesMax: number;
  /** Called after each chunk. */
  readonly onProgress?: (progress: {
    readonly records: number;
    readonly bytesRead: number;
  }) => void;
}

/** Some 50 ms of a worker: the hand-over costs nothing beside it, and progress stays lively. */
const BATCH_CLAIMS = 512;

/** Verifies a chain. Rejects with what reading or checking rejects with. */
export async function verifyLines(
  chunks: AsyncIterable<LineChunk>,
  options: VerifyOptions,
): Promise<VerificationResult> {
  const verifier = new ChainVerifier(options.pins);
  const claims = new ClaimBatches(options.checkSignatures, options.batchesMax);
  const { endsAtHead, head } = options;
  const known = { endsAtHead, ...(head === undefined ? {} : { head }) };
  let end: InputEnd = { isTorn: false, ...known };
  let records = 0;
  for await (const chunk of chunks) {
    const { lines, bytesRead, isTorn } = chunk;
    end = { isTorn, ...known };
    const isGood = await acceptAll(verifier, claims, chunk);
    if (!isGood || claims.badSeq !== undefined) break;
    records += lines.length;
    options.onProgress?.({ records, bytesRead });
  }
  await claims.settle();
  return verifier.finish(end, claims.badSeq);
}

/** Whether all of these lines were accepted. */
async function acceptAll(
  verifier: ChainVerifier,
  claims: ClaimBatches,
  { lines, columns }: LineChunk,
): Promise<boolean> {
  for (const [index, line] of lines.entries()) {
    const step = verifier.accept(line, columns?.[index]);
    if (step === undefined) continue;
    if ('status' in step) return false;
    if (claims.add(step)) await claims.room();
  }
  return true;
}

/** Claims on their way to the workers. Claims of one batch follow each other and have one key. */
class ClaimBatches {
  /** The least number whose signature was wrong. */
  badSeq: number | undefined;
  private readonly inFlight = new Set<Promise<void>>();
  private failure: { readonly error: unknown } | undefined;
  private claims = new Uint8Array(BATCH_CLAIMS * CLAIM_BYTES);
  private count = 0;
  private firstSeq = 0;
  private publicKey = '';

  constructor(
    private readonly check: VerifyOptions['checkSignatures'],
    private readonly batchesMax: number,
  ) {}

  /** Returns whether there may be no room for more: then wait for `room`. */
  add({ seq, publicKey, hash, signature }: SignatureClaim): boolean {
    const hasOtherKey = this.count > 0 && publicKey !== this.publicKey;
    if (hasOtherKey) this.send();
    if (this.count === 0) {
      this.firstSeq = seq;
      this.publicKey = publicKey;
    }
    const start = this.count * CLAIM_BYTES;
    const claim = Buffer.from(this.claims.buffer, start, CLAIM_BYTES);
    claim.write(hash, 'hex');
    claim.write(signature, hash.length / 2, 'hex');
    this.count += 1;
    if (this.count === BATCH_CLAIMS) this.send();
    return hasOtherKey || this.count === 0;
  }

  /** Waits until another batch may be sent. Rejects with what a check rejected with. */
  async room(): Promise<void> {
    while (this.inFlight.size >= this.batchesMax) await Promise.race(this.inFlight);
    if (this.failure !== undefined) throw this.failure.error;
  }

  /** Sends the rest and waits for everything. */
  async settle(): Promise<void> {
    if (this.count > 0) this.send();
    await Promise.all(this.inFlight);
    if (this.failure !== undefined) throw this.failure.error;
  }

  private send(): void {
    const { publicKey, firstSeq, claims, count } = this;
    this.claims = new Uint8Array(BATCH_CLAIMS * CLAIM_BYTES);
    this.count = 0;
    const checked = this.check({ publicKey, claims, count }).then(
      (index) => {
        if (index >= 0) this.badSeq = Math.min(this.badSeq ?? Infinity, firstSeq + index);
      },
      (error: unknown) => {
        this.failure ??= { error };
      },
    );
    const done = checked.finally(() => this.inFlight.delete(done));
    this.inFlight.add(done);
  }
}
