/**
 * The verifier: a state machine that is fed one line after another and keeps only what the next one
 * needs. It does no input or output, and leaves the signatures, which cost a hundred times as much
 * as everything else, as claims to whoever drives it.
 */
import { GENESIS_PREV_HASH, KIND_CHECKPOINT } from '../evidence/format.js';
import { type Check, type Finding, shown, type VerificationResult } from './findings.js';
import { isFault, type ReadRecord, readRecordLine } from './record-line.js';
import {
  type IntroducedKey,
  isKnownKind,
  readGenesis,
  readRotation,
  type StatementFault,
  statementFault,
} from './statement-rules.js';

/** What the auditor knows from elsewhere than the chain. */
export interface Pins {
  /** A key that must have signed the chain from its beginning, or have been introduced in it. */
  readonly key?: IntroducedKey;
  /** A checkpoint that was published. */
  readonly checkpoint?: PinnedCheckpoint;
}

/** A checkpoint record as it was published. */
export interface PinnedCheckpoint {
  readonly seq: number;
  readonly hash: string;
  readonly chain: string;
}

/** A signature that has to be checked: by `publicKey`, over the 32 bytes of `hash`. */
export interface SignatureClaim {
  readonly seq: number;
  readonly publicKey: string;
  readonly hash: string;
  readonly signature: string;
}

/** How the input ended. */
export interface InputEnd {
  /** After the last line end there was more: a line that was cut. */
  readonly isTorn: boolean;
  /** A live chain, whose head is its end; an export ends with a checkpoint instead. */
  readonly endsAtHead: boolean;
  /** Of a database: what it says of its newest record. */
  readonly head?: { readonly seq: number; readonly hash: string };
}

/** What a table says of a record, beside the record itself. */
export interface RecordColumns {
  readonly seq: number;
  readonly ref: string;
  readonly prevHash: string;
  readonly hash: string;
}

/** See the head of this file. After a finding it must not be fed again. */
export class ChainVerifier {
  private firstSeq: number | undefined;
  private last: ReadRecord | undefined;
  private records = 0;
  private chain: string | undefined;
  private keyId: string | undefined;
  /** Undefined while the beginning, and with it the key, is missing. */
  private publicKey: string | undefined;
  private isKeySeen = false;
  private isCheckpointSeen = false;
  private finding: Finding | undefined;

  constructor(private readonly pins: Pins) {}

  /**
   * Takes the next line, without its line end; undefined for one that is no text. Returns the claim
   * that remains to be checked, if the key is known, or the finding that ends the verification.
   * Columns, where there are any, must repeat what the record says.
   */
  accept(line: string | undefined, columns?: RecordColumns): SignatureClaim | Finding | undefined {
    const read = readRecordLine(line);
    if (isFault(read)) return this.find(this.nextSeq(), read);
    const fault =
      this.linkFault(read) ??
      this.kindFault(read) ??
      this.keyFault(read) ??
      this.stated(read) ??
      (columns && columnFault(read, columns));
    if (fault !== undefined) return this.find(this.last ? this.nextSeq() : read.seq, fault);
    const { publicKey } = this;
    const pinned = this.pinFault(read);
    this.firstSeq ??= read.seq;
    if (pinned !== undefined) return this.find(read.seq, pinned);
    this.last = read;
    this.records += 1;
    this.followRotation(read);
    if (publicKey === undefined) return undefined;
    return { seq: read.seq, publicKey, hash: read.hash, signature: read.signature };
  }

  /**
   * The result, once every claim was checked. `badSignatureSeq` is the least number whose signature
   * was wrong; what was found after it no longer matters.
   */
  finish(end: InputEnd, badSignatureSeq?: number): VerificationResult {
    const finding = this.lastFinding(end, badSignatureSeq);
    const isGood = finding === undefined || finding.status === 'incomplete';
    const before = isGood ? this.records : finding.seq - (this.firstSeq ?? 0);
    const head = isGood ? this.last : undefined;
    return {
      status: finding?.status ?? 'verified',
      isPinned: isGood && this.isPinned(),
      records: Math.max(0, Math.min(this.records, before)),
      ...(this.chain === undefined ? {} : { chain: this.chain }),
      ...(head === undefined ? {} : { head: { seq: head.seq, hash: head.hash } }),
      ...(finding === undefined ? {} : { finding }),
    };
  }

  private lastFinding(end: InputEnd, badSignatureSeq: number | undefined): Finding | undefined {
    const { finding } = this;
    if (badSignatureSeq !== undefined && (finding === undefined || badSignatureSeq < finding.seq)) {
      const found = 'a signature that is not';
      return tampered(badSignatureSeq, 'signature', "by the chain's key over hash", found);
    }
    return (
      finding ??
      this.pinnedKeyFinding() ??
      this.headFinding(end) ??
      this.beginningFinding() ??
      this.endFinding(end)
    );
  }

  private headFinding({ head }: InputEnd): Finding | undefined {
    const last = this.last ?? { seq: -1, hash: '' };
    if (head === undefined || (head.seq === last.seq && head.hash === last.hash)) return undefined;
    const seq = head.seq === last.seq ? head.seq : Math.min(head.seq, last.seq) + 1;
    const found = last.seq < 0 ? 'no record' : `record ${last.seq} ${last.hash}`;
    return tampered(Math.max(0, seq), 'head', `the head ${head.seq} ${head.hash}`, found);
  }

  private pinnedKeyFinding(): Finding | undefined {
    const { key } = this.pins;
    if (key === undefined || this.isKeySeen || this.firstSeq !== 0) return undefined;
    return tampered(0, 'pinned_key', key.id, 'a chain that never names it');
  }

  private beginningFinding(): Finding | undefined {
    if (this.firstSeq === 0) return undefined;
    const found = this.firstSeq === undefined ? 'no record' : `record ${this.firstSeq}`;
    return incomplete(0, 'beginning', 'record 0', found);
  }

  private endFinding({ isTorn, endsAtHead }: InputEnd): Finding | undefined {
    const next = this.nextSeq();
    if (isTorn) return incomplete(next, 'end', 'a line end', 'a line that was cut');
    const pinned = this.pins.checkpoint?.seq ?? -1;
    if (pinned >= next) return incomplete(next, 'end', `the checkpoint ${pinned}`, 'the end');
    if (endsAtHead || this.last?.kind === KIND_CHECKPOINT) return undefined;
    return incomplete(next, 'end', 'a checkpoint at the end', shown(this.last?.kind));
  }

  private isPinned(): boolean {
    const { key, checkpoint } = this.pins;
    if (key === undefined && checkpoint === undefined) return false;
    return (
      (key === undefined || this.isKeySeen) && (checkpoint === undefined || this.isCheckpointSeen)
    );
  }

  private nextSeq(): number {
    return this.last === undefined ? 0 : this.last.seq + 1;
  }

  private find(seq: number, fault: StatementFault): Finding {
    this.finding = { status: 'tampered', ...fault, seq };
    return this.finding;
  }

  private linkFault(read: ReadRecord): StatementFault | undefined {
    const { last } = this;
    if (last !== undefined && read.seq !== last.seq + 1) {
      return faultOf('seq', last.seq + 1, read.seq);
    }
    const isBeginning = last !== undefined || read.seq === 0;
    const previous = last?.hash ?? GENESIS_PREV_HASH;
    if (isBeginning && read.prevHash !== previous) {
      return faultOf('prev_hash', previous, read.prevHash);
    }
    if (read.hash !== read.computedHash) return faultOf('hash', read.computedHash, read.hash);
    return undefined;
  }

  private kindFault(read: ReadRecord): StatementFault | undefined {
    return isKnownKind(read.kind) ? undefined : faultOf('kind', 'a known kind', read.kind);
  }

  /** Learns the first key, from the genesis or from the pin, and holds every record to the key. */
  private keyFault(read: ReadRecord): StatementFault | undefined {
    const genesis = readGenesis(read);
    if (genesis.fault !== undefined) return genesis.fault;
    if (genesis.key !== undefined) {
      this.chain = read.hash;
      this.useKey(genesis.key.id, genesis.key.publicKey);
    } else if (this.keyId === undefined) {
      const { key } = this.pins;
      this.useKey(read.keyId, read.keyId === key?.id ? key.publicKey : undefined);
    }
    if (read.keyId !== this.keyId) return faultOf('key_id', this.keyId, read.keyId);
    return undefined;
  }

  private useKey(id: string, publicKey: string | undefined): void {
    this.keyId = id;
    this.publicKey = publicKey;
    if (publicKey !== undefined && publicKey === this.pins.key?.publicKey) this.isKeySeen = true;
  }

  private stated(read: ReadRecord): StatementFault | undefined {
    const fault = statementFault(read, this.chain);
    if (fault === undefined && read.kind === KIND_CHECKPOINT) {
      this.chain ??= String(read.data['chain']);
    }
    return fault;
  }

  private pinFault(read: ReadRecord): StatementFault | undefined {
    const { checkpoint } = this.pins;
    if (checkpoint === undefined) return undefined;
    if (this.chain !== undefined && this.chain !== checkpoint.chain) {
      return faultOf('pinned_checkpoint', `the chain ${checkpoint.chain}`, this.chain);
    }
    if (read.seq !== checkpoint.seq) return undefined;
    if (read.hash !== checkpoint.hash) {
      return faultOf('pinned_checkpoint', checkpoint.hash, read.hash);
    }
    this.isCheckpointSeen = true;
    return undefined;
  }

  private followRotation(read: ReadRecord): void {
    const next = readRotation(read);
    if (next !== undefined) this.useKey(next.id, next.publicKey);
  }
}

function columnFault(read: ReadRecord, columns: RecordColumns): StatementFault | undefined {
  for (const name of ['seq', 'ref', 'prevHash', 'hash'] as const) {
    if (columns[name] === read[name]) continue;
    return faultOf('columns', `${name} ${read[name]}`, columns[name]);
  }
  return undefined;
}

function faultOf(check: Check, expected: unknown, found: unknown): StatementFault {
  return { check, expected: shown(expected), found: shown(found) };
}

function tampered(seq: number, check: Check, expected: string, found: string): Finding {
  return { status: 'tampered', seq, check, expected, found };
}

function incomplete(seq: number, check: Check, expected: string, found: string): Finding {
  return { status: 'incomplete', seq, check, expected, found };
}
