/** What the decisions actor can be asked, as data that crosses threads. */
import type { PolicyIssue } from '../../policy/issue.js';
import type { PolicyRequest } from '../../policy/policy.js';
import type { Idempotency } from '../idempotency.js';

/** Who asks for a decision, as the server knows it. */
export type DecisionCaller =
  | { readonly type: 'gateway'; readonly id: string }
  | { readonly type: 'admin'; readonly id: string }
  | { readonly type: 'device'; readonly id: string; readonly user: string };

/** May this principal do this? */
export interface Decide {
  readonly request: PolicyRequest;
  readonly caller: DecisionCaller;
  /** The ref of an approved decision to be redeemed. */
  readonly approval?: string;
  readonly idempotency?: Idempotency;
}

export type DecisionWord = 'allow' | 'deny' | 'needs_approval';

/** A decision; its evidence is durable. */
export interface Decided {
  readonly decision: DecisionWord;
  readonly reasons: readonly string[];
  /** Of its evidence; of an approval too, where one is needed. */
  readonly ref: string;
  /** Whether the evidence still waits for its place in the chain. */
  readonly pending: boolean;
}

/** A person's answer to a decision that needs approval. */
export interface Settle {
  readonly ref: string;
  readonly by: string;
  readonly reason: string;
  readonly idempotency?: Idempotency;
}

/** Where an approval stands. */
export interface ApprovalView {
  readonly status: 'pending' | 'approved' | 'denied' | 'redeemed' | 'expired';
  /** Who settled it, and when on the store's clock (ms since the Unix epoch). */
  readonly by?: string;
  readonly atMs?: number;
  readonly expiresAtMs: number;
}

/** What settling came to: done now, or done before by somebody. */
export interface Settled {
  readonly isDone: boolean;
  readonly approval: ApprovalView;
}

/** Asks for a decision that was made; `caller` absent: an administrator, who may see all. */
export interface GetDecision {
  readonly ref: string;
  readonly caller?: { readonly type: string; readonly id: string };
}

/** A decision as it was made. */
export interface DecisionView {
  readonly decision: DecisionWord;
  readonly approval?: ApprovalView;
}

/** An outcome of looking at the policy directory, to be recorded and then to be in force. */
export interface NotePolicy {
  readonly digest: string;
}

/** Reads and their answers. */
export interface DecisionReads {
  get: { payload: GetDecision; answer: DecisionView | null };
}

/** Writes and their answers. */
export interface DecisionWrites {
  decide: { payload: Decide; answer: Decided };
  approve: { payload: Settle; answer: Settled };
  deny: { payload: Settle; answer: Settled };
  /** The actor's own. */
  notePolicy: { payload: NotePolicy; answer: true };
}

/** Codes that the decisions actor answers with, beside those of the runtime and the store. */
export const DECISION_CODES = [
  'principal_not_own',
  'approval_unknown',
  'approval_own',
  'idempotency_mismatch',
] as const;
/** One of `DECISION_CODES`. */
export type DecisionCode = (typeof DECISION_CODES)[number];

/** What the status page says of the policy. */
export interface PolicyFacts {
  /** Of the policy in force; null: there is none. */
  readonly digest: string | null;
  readonly policies: number;
  /** Whether `--policy-dir` was given: without a policy in force the replica is then unready. */
  readonly configured: boolean;
  /** Outcomes of reading the directory since the start. */
  readonly accepted: number;
  readonly refused: number;
  /** Why the newest content of the directory is not in force; empty while it is. */
  readonly issues: readonly PolicyIssue[];
}
