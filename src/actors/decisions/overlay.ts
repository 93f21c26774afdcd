/** One batch of decisions and of what people say to them, on copies laid over the documents. */
import { canonicalJson } from '../../evidence/canonical-json.js';
import type { Party } from '../../evidence/event.js';
import type { PolicyOutcome, PolicyRequest, PolicyVerdict } from '../../policy/policy.js';
import { CodedError } from '../../runtime/failure.js';
import type { Overlay } from '../../runtime/stream-actor.js';
import {
  type Changes,
  type DocumentChange,
  documentName,
  type Locked,
} from '../../storage/store.js';
import { actTime, adminParty, SERVER } from '../act-kinds.js';
import { BatchEvidence } from '../batch-evidence.js';
import { BatchValues } from '../batch-values.js';
import type { EvidenceRecorder } from '../evidence.js';
import type { Idempotency } from '../idempotency.js';
import type { KillListState } from '../kill-list/state.js';
import type { StorageTypes } from '../storage-types.js';
import type { Decide, Decided, DecisionWrites, Settle, Settled } from './messages.js';
import {
  APPROVAL_KIND,
  type Approval,
  approvalOf,
  approvalUnknown,
  approvalView,
  killedParty,
  type PolicyHolder,
  partiesOf,
} from './state.js';

/** Keeps the HMACs of requests apart from all others. */
const REQUEST_LABEL = 'decision-request';
/** Faults of a policy that its evidence names; a policy with more is not read one by one. */
const ISSUES_RECORDED_MAX = 20;
const MESSAGE_RECORDED_MAX = 1_000;

interface Live {
  readonly approval: Approval;
  readonly expiresAtMs: number;
}

/** What a decision comes to before it is recorded. */
interface Outcome extends PolicyVerdict {
  /** The approval that it consumes. */
  readonly redeems?: string;
}

/** Decides on what the lock let through; thrown away if the commit fails. */
export class DecisionsOverlay implements Overlay<StorageTypes> {
  private readonly documents = new Map<string, Live | undefined>();
  private readonly documentChanges: DocumentChange[] = [];
  private readonly values: BatchValues;
  private readonly evidence: BatchEvidence;
  private noted: PolicyOutcome | undefined;

  constructor(
    private readonly kills: KillListState,
    private readonly locked: Locked,
    private readonly recorder: EvidenceRecorder,
    private readonly holder: PolicyHolder,
    private readonly isDeferred: boolean,
  ) {
    this.values = new BatchValues(locked);
    this.evidence = new BatchEvidence(recorder, locked.storeTimeMs);
  }

  decide(kind: string, payload: unknown): unknown {
    const decide = this.decisions[kind as keyof DecisionWrites] as (input: unknown) => unknown;
    return decide(payload);
  }

  changes(): Changes {
    return {
      kv: this.values.changes,
      documents: this.documentChanges,
      evidence: this.evidence.events,
    };
  }

  /** The batch is durable: what it recorded of the policy is in force from here on. */
  committed(): void {
    if (this.noted !== undefined) this.holder.noted(this.noted);
  }

  private readonly decisions: {
    [Kind in keyof DecisionWrites]: (
      input: DecisionWrites[Kind]['payload'],
    ) => DecisionWrites[Kind]['answer'];
  } = {
    decide: (input) => this.once(input.idempotency, () => this.decideOne(input)),
    approve: (input) => this.once(input.idempotency, () => this.settle(input, 'approved')),
    deny: (input) => this.once(input.idempotency, () => this.settle(input, 'denied')),
    notePolicy: () => this.notePolicy(),
  };

  private decideOne(input: Decide): Decided {
    const { request, caller } = input;
    const policy = this.holder.inForce;
    if (caller.type === 'device' && policy?.isOwn(request.principal, caller) === false) {
      const message = 'A device may ask for itself, its user, and principals that are theirs.';
      throw new CodedError('principal_not_own', message);
    }
    const outcome = this.outcome(input);
    const { decision, reasons, redeems } = outcome;
    const expiresAtMs =
      decision === 'needs_approval' && policy !== undefined
        ? this.locked.storeTimeMs + policy.approvalTtlMs
        : undefined;
    const ref = this.evidence.record({
      kind: 'decision.made',
      by: { type: caller.type, id: caller.id },
      data: {
        principal: uidOf(request.principal),
        action: request.action,
        resource: { ...uidOf(request.resource), attrs: request.resource.attrs ?? {} },
        context: request.context ?? {},
        decision,
        reasons: [...reasons],
        policy: policy?.digest ?? null,
        approval: redeems ?? null,
        expiresAt: actTime(expiresAtMs),
      },
    });
    if (expiresAtMs !== undefined) this.await(ref, input, expiresAtMs);
    if (redeems !== undefined) this.redeem(redeems);
    return { decision, reasons, ref, pending: this.isDeferred };
  }

  private outcome({ request, caller, approval }: Decide): Outcome {
    const policy = this.holder.inForce;
    if (policy === undefined) return { decision: 'deny', reasons: ['no_policy'] };
    const parties = [request.principal, request.resource, ...partiesOf(caller)];
    const killed = killedParty(this.kills, parties, this.locked.storeTimeMs);
    if (killed !== undefined) return { decision: 'deny', reasons: [`killed:${killed}`] };
    const verdict = policy.decide(request, { type: caller.type, id: caller.id });
    if (verdict.decision !== 'needs_approval' || approval === undefined) return verdict;
    const unusable = this.unusable(approval, { request, caller });
    if (unusable !== undefined) return { decision: 'deny', reasons: [unusable] };
    return { decision: 'allow', reasons: verdict.reasons, redeems: approval };
  }

  /** Why that approval does not let this request through; undefined when it does. */
  private unusable(ref: string, { request, caller }: Decide): string | undefined {
    const live = this.live(ref);
    if (live === undefined) return 'approval_unknown';
    const { approval } = live;
    const isSame = this.recorder.isHmac(REQUEST_LABEL, canonical(request), approval.requestHmac);
    const isCaller = approval.caller.type === caller.type && approval.caller.id === caller.id;
    if (!isSame || !isCaller) return 'approval_of_another_request';
    return approval.status === 'approved' ? undefined : `approval_${approval.status}`;
  }

  private await(ref: string, { request, caller }: Decide, expiresAtMs: number): void {
    const approval: Approval = {
      requestHmac: this.recorder.hmac(REQUEST_LABEL, canonical(request)),
      caller: { ...caller },
      status: 'pending',
    };
    this.put(ref, { approval, expiresAtMs });
  }

  private redeem(ref: string): void {
    const live = this.live(ref);
    if (live === undefined) throw new RangeError('An approval that was just read is gone.');
    this.put(ref, { ...live, approval: { ...live.approval, status: 'redeemed' } });
  }

  private settle({ ref, by, reason }: Settle, status: 'approved' | 'denied'): Settled {
    const live = this.live(ref);
    if (live === undefined) throw approvalUnknown();
    const { approval, expiresAtMs } = live;
    const { type, id, user } = approval.caller;
    if ((type === 'admin' && id === by) || user === by) {
      throw new CodedError('approval_own', 'Whoever asked may not settle the approval.');
    }
    if (approval.status !== 'pending') {
      return { isDone: false, approval: approvalView(approval, expiresAtMs) };
    }
    const kind = status === 'approved' ? 'decision.approved' : 'decision.denied';
    this.evidence.record({ kind, by: adminParty(by), data: { decision: ref, reason } });
    const settled: Approval = { ...approval, status, by, atMs: this.locked.storeTimeMs };
    this.put(ref, { approval: settled, expiresAtMs });
    return { isDone: true, approval: approvalView(settled, expiresAtMs) };
  }

  private notePolicy(): true {
    const outcome = this.holder.unnoted;
    if (outcome === undefined || this.noted !== undefined) return true;
    const { digest, policy, issues } = outcome;
    if (policy === undefined) {
      this.evidence.record({
        kind: 'policy.refused',
        by: SERVER,
        data: {
          digest,
          inForce: this.holder.inForce?.digest ?? null,
          issues: issues.slice(0, ISSUES_RECORDED_MAX).map(({ message, ...issue }) => {
            return { ...issue, message: message.slice(0, MESSAGE_RECORDED_MAX) };
          }),
        },
      });
    } else {
      const { policies } = policy;
      this.evidence.record({ kind: 'policy.accepted', by: SERVER, data: { digest, policies } });
    }
    this.noted = outcome;
    return true;
  }

  private live(ref: string): Live | undefined {
    const name = documentName({ kind: APPROVAL_KIND, id: ref });
    if (this.documents.has(name)) return this.documents.get(name);
    const stored = this.locked.documents.get(name);
    if (stored === undefined) return undefined;
    return { approval: approvalOf(stored), expiresAtMs: stored.expiresAtMs ?? 0 };
  }

  private put(ref: string, live: Live): void {
    const key = { kind: APPROVAL_KIND, id: ref };
    const { approval, expiresAtMs } = live;
    this.documents.set(documentName(key), live);
    const body = JSON.stringify(approval);
    this.documentChanges.push({ op: 'put', ...key, body, expiresAtMs });
  }

  /** The same call again gets the answer of the first. */
  private once<Answer>(idempotency: Idempotency | undefined, decide: () => Answer): Answer {
    const before = this.values.answered<Answer>(idempotency);
    if (before) return before;
    const answer = decide();
    this.values.remember(idempotency, answer);
    return answer;
  }
}

function uidOf({ type, id }: Party): { type: string; id: string } {
  return { type, id };
}

/** The same request has the same text, in whatever order its fields came. */
function canonical({ principal, action, resource, context }: PolicyRequest): string {
  return canonicalJson({
    principal: uidOf(principal),
    action,
    resource: { ...uidOf(resource), attrs: resource.attrs ?? {} },
    context: context ?? {},
  });
}
