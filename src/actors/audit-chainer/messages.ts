/** What the audit chainer can be asked, as data that crosses threads. */
import type { Party } from '../../evidence/event.js';
import type { ChainedRecord, FoundEvidence, StoredHead } from '../../storage/evidence-store.js';

/** How the audit chainer refuses, beside the runtime, the storage seam and `EVIDENCE_CODES`. */
export const AUDIT_CODES = [
  /** The chain lacks a checkpoint that was published: nothing is chained. */
  'chain_rewound',
  /** There is nothing to accept. */
  'chain_not_rewound',
  /** The key that the chain goes on with, or is to go on with, is not in the file. */
  'signing_key_missing',
] as const;
/** One of `AUDIT_CODES`. */
export type AuditCode = (typeof AUDIT_CODES)[number];

/** A page of the chain. */
export interface AuditPage {
  readonly records: readonly ChainedRecord[];
  /** Where the next page begins: after this number. Absent at the end. */
  readonly nextAfterSeq?: number;
  readonly head: StoredHead;
  /** The newest number up to which this replica has verified the chain itself; -1 for none. */
  readonly verifiedUpTo: number;
}

/** Reading in the order of the chain; `kind` keeps only records of that kind. */
export interface ReadAudit {
  readonly afterSeq: number;
  readonly limit: number;
  readonly kind?: string;
}

/** Records as they are, for an export: nothing is verified for it, nor asked beside it. */
export type ReadRecords = Omit<ReadAudit, 'kind'>;

/** The newest records, newest first. */
export interface TailAudit {
  readonly limit: number;
  readonly kind?: string;
}

/** A statement that an operator asks for. */
export interface AuditStatement {
  readonly by: Party;
}

/** To the key with that id; absent: to the one that is held beside the current one. */
export interface RotateKey extends AuditStatement {
  readonly nextKeyId?: string;
}

/** A number of a record, or a ref. */
export type EvidenceName = { readonly seq: number } | { readonly ref: string };

/** Reads and their answers. */
export interface AuditReads {
  find: { payload: EvidenceName; answer: FoundEvidence | null };
  page: { payload: ReadAudit; answer: AuditPage };
  records: { payload: ReadRecords; answer: readonly ChainedRecord[] };
  tail: { payload: TailAudit; answer: AuditPage };
}

/** Writes and their answers: the record that was appended. */
export interface AuditWrites {
  checkpoint: { payload: AuditStatement; answer: ChainedRecord };
  rotateKey: { payload: RotateKey; answer: ChainedRecord };
  acceptRestore: { payload: AuditStatement; answer: ChainedRecord };
}

/** What the status page and the metrics say of the chain. */
export interface AuditFacts {
  readonly mode: 'direct' | 'deferred';
  /** How many events wait for their place: `chain_lag_records`. */
  readonly lagRecords: number;
  readonly headSeq: number;
  readonly verifiedUpTo: number;
  /** Batches that this replica has chained, and the records in them. */
  readonly drains: number;
  readonly drained: number;
  /** Drains that failed. */
  readonly errors: number;
  /** Why nothing is chained here: a code and what is wrong; '' while all is well. */
  readonly stopped: string;
}
