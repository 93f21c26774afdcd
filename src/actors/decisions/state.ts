/**
 * What decisions are made on: what is killed, which policy is in force, and the documents of
 * approvals. A plain decision leaves its evidence and nothing else.
 */

import type { PolicyFile, PolicyIssue } from '../../policy/issue.js';
import {
  acceptPolicy,
  type Policy,
  type PolicyOutcome,
  policyDigest,
} from '../../policy/policy.js';
import { CodedError } from '../../runtime/failure.js';
import type { StoredDocument } from '../../storage/store.js';
import { isInForce, type KillListState } from '../kill-list/state.js';
import type { ApprovalView, DecisionCaller, PolicyFacts } from './messages.js';

/** The kind of the documents of approvals; their ids are refs. */
export const APPROVAL_KIND = 'approval';

/** What is kept of a decision that needs approval. Nothing of it has to be masked. */
export interface Approval {
  /** By which the same request is recognised. */
  readonly requestHmac: string;
  /** `user`: of a device that asked; neither it nor that user may settle it. */
  readonly caller: { readonly type: string; readonly id: string; readonly user?: string };
  readonly status: 'pending' | 'approved' | 'denied' | 'redeemed';
  readonly by?: string;
  readonly atMs?: number;
}

/** A document taken apart; it lives as long as the approval can be given and redeemed. */
export function approvalOf(document: StoredDocument): Approval {
  return JSON.parse(document.body) as Approval;
}

/** As callers see it. */
export function approvalView(approval: Approval, expiresAtMs: number): ApprovalView {
  const { status, by, atMs } = approval;
  return {
    status,
    ...(by === undefined ? {} : { by }),
    ...(atMs === undefined ? {} : { atMs }),
    expiresAtMs,
  };
}

/** Which of the parties is killed, as `kind/id`; undefined: none of them. */
export function killedParty(
  kills: KillListState,
  parties: ReadonlyArray<{ readonly type: string; readonly id: string }>,
  storeTimeMs: number,
): string | undefined {
  for (const { type, id } of parties) {
    const kind = type.slice(type.lastIndexOf(':') + 1).toLowerCase();
    const name = kind === 'user' ? id.normalize('NFC').toLowerCase() : id;
    const entry = kills.find(kind, name);
    if (entry !== undefined && isInForce(entry, storeTimeMs)) return `${kind}/${name}`;
  }
  return undefined;
}

/** Whom a kill can stop, beside principal and resource: the device that asks, and its user. */
export function partiesOf(caller: DecisionCaller): { type: string; id: string }[] {
  if (caller.type !== 'device') return [{ type: caller.type, id: caller.id }];
  return [
    { type: 'device', id: caller.id },
    { type: 'user', id: caller.user },
  ];
}

/**
 * The policy of one process. What was read is first recorded and then in force: `noted` is called
 * when its evidence is durable. A refused one leaves the last good policy in force.
 */
export class PolicyHolder {
  inForce: Policy | undefined;
  private outcome: PolicyOutcome | undefined;
  private seenDigest: string | undefined;
  private lookedAtDigest: string | undefined;
  private accepted = 0;
  private refused = 0;
  private issues: readonly PolicyIssue[] = [];

  /** `configured`: whether there is a directory to read at all. */
  constructor(private readonly configured: boolean) {}

  /**
   * What the directory holds now. It counts when it was the same twice, so that files that are
   * being written one by one are not taken for a policy.
   */
  read(files: readonly PolicyFile[]): void {
    const digest = policyDigest(files);
    const isStable = digest === this.seenDigest;
    this.seenDigest = digest;
    if (!isStable || digest === this.lookedAtDigest) return;
    this.lookedAtDigest = digest;
    this.outcome = acceptPolicy(files);
  }

  /** The directory cannot be read: as if a policy were refused, but with another reason. */
  unreadable(message: string): void {
    const digest = `unreadable: ${message}`;
    const isStable = digest === this.seenDigest;
    this.seenDigest = digest;
    if (!isStable || digest === this.lookedAtDigest) return;
    this.lookedAtDigest = digest;
    const place = { file: '.', line: 1, column: 1 };
    const issue: PolicyIssue = { severity: 'error', code: 'file_invalid', ...place, message };
    this.outcome = { policy: undefined, digest: '', issues: [issue] };
  }

  /** What has not been recorded yet. */
  get unnoted(): PolicyOutcome | undefined {
    return this.outcome;
  }

  /** The evidence of that outcome is durable. */
  noted(outcome: PolicyOutcome): void {
    if (this.outcome === outcome) this.outcome = undefined;
    this.issues = outcome.issues;
    if (outcome.policy === undefined) {
      this.refused += 1;
      return;
    }
    this.accepted += 1;
    // One that was read and never in force is kept: its record may be on its way.
    if (this.inForce !== outcome.policy) this.inForce?.release();
    this.inForce = outcome.policy;
  }

  facts(): PolicyFacts {
    const { inForce, configured, accepted, refused, issues } = this;
    return {
      digest: inForce?.digest ?? null,
      policies: inForce?.policies ?? 0,
      configured,
      accepted,
      refused,
      issues,
    };
  }
}

/** For a ref under which no approval waits, whatever the reason. */
export function approvalUnknown(): CodedError {
  const message = 'No approval is known under this ref: it was never needed, or it has expired.';
  return new CodedError('approval_unknown', message);
}
