/**
 * How far this replica has verified the chain itself: begun by whoever looks at the chain, kept
 * only while its last hash reads back unchanged (ADR-0021 "Audit export and rotation").
 */
import type { CpuPool } from '../../runtime/cpu-pool.js';
import type { Log } from '../../runtime/log.js';
import type { EvidenceStore } from '../../storage/evidence-store.js';
import { ChainVerifier, type SignatureClaim } from '../../verify/chain-verifier.js';
import { CLAIM_BYTES, type SignatureBatch } from '../../verify/signatures.js';

/** Some 20 ms of one core: what a look at the chain may cost whoever shares the thread. */
const STEP_RECORDS = 256;

/** Verifies from record 0 on, one step after the other, never two at once. */
export class VerifiedPrefix {
  /** The newest number that is verified; -1 before the first. */
  upTo = -1;
  private hash = '';
  private verifier = new ChainVerifier({});
  /** Nothing is verified behind what was found wrong. */
  private isBroken = false;
  private running: Promise<void> | undefined;
  private closed = false;

  constructor(
    private readonly store: EvidenceStore,
    private readonly pool: CpuPool,
    private readonly log: Log,
  ) {}

  /** Checks that what was verified is still there, and goes on towards the head by itself. */
  async look(): Promise<number> {
    await this.recheck();
    await this.step();
    this.goOn();
    return this.upTo;
  }

  close(): void {
    this.closed = true;
  }

  private async recheck(): Promise<void> {
    if (this.upTo < 0) return;
    const [record] = await this.store.page(this.upTo - 1, 1);
    if (record?.seq === this.upTo && record.hash === this.hash) return;
    this.log.warn({ upTo: this.upTo }, 'The verified chain reads back changed: verifying again.');
    this.upTo = -1;
    this.hash = '';
    this.isBroken = false;
    this.verifier = new ChainVerifier({});
  }

  private goOn(): void {
    if (this.running !== undefined) return;
    this.running = this.toTheHead()
      .catch(() => undefined)
      .finally(() => {
        this.running = undefined;
      });
  }

  private async toTheHead(): Promise<void> {
    while (!this.closed && (await this.step()) === STEP_RECORDS);
  }

  private stepping: Promise<number> | undefined;

  /** How many records were verified. */
  private step(): Promise<number> {
    this.stepping ??= this.verifyNext().finally(() => {
      this.stepping = undefined;
    });
    return this.stepping;
  }

  private async verifyNext(): Promise<number> {
    if (this.isBroken) return 0;
    const records = await this.store.page(this.upTo, STEP_RECORDS);
    const claims: SignatureClaim[] = [];
    for (const { text } of records) {
      const step = this.verifier.accept(text);
      if (step === undefined) continue;
      if ('status' in step) return this.found(step.seq, step.check);
      claims.push(step);
    }
    const bad = await this.firstBad(claims);
    if (bad !== undefined) return this.found(bad, 'signature');
    const last = records.at(-1);
    if (last === undefined) return 0;
    this.upTo = last.seq;
    this.hash = last.hash;
    return records.length;
  }

  private found(seq: number, check: string): 0 {
    this.isBroken = true;
    this.log.error({ seq, check }, 'The evidence chain does not verify: run halo-verify.');
    return 0;
  }

  /** The least number whose signature is wrong. */
  private async firstBad(claims: readonly SignatureClaim[]): Promise<number | undefined> {
    for (const batch of sameKey(claims)) {
      const index = await this.pool.run<number>('firstBadSignature', signatureBatch(batch));
      if (index >= 0) return batch[index]?.seq;
    }
    return undefined;
  }
}

function sameKey(claims: readonly SignatureClaim[]): SignatureClaim[][] {
  const batches: SignatureClaim[][] = [];
  for (const claim of claims) {
    const last = batches.at(-1);
    if (last?.[0]?.publicKey === claim.publicKey) last.push(claim);
    else batches.push([claim]);
  }
  return batches;
}

function signatureBatch(claims: readonly SignatureClaim[]): SignatureBatch {
  const bytes = new Uint8Array(claims.length * CLAIM_BYTES);
  for (const [index, { hash, signature }] of claims.entries()) {
    bytes.set(Buffer.from(hash + signature, 'hex'), index * CLAIM_BYTES);
  }
  return { publicKey: claims[0]?.publicKey ?? '', claims: bytes, count: claims.length };
}
