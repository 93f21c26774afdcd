/**
 * The decisions actor.
 *
 * Owns no stream: a decision is its evidence, and one that needs a person is a document that
 * expires. Follows the kill list, so that what is killed is denied before any policy. Messages:
 * `messages.ts`. Decisions: `overlay.ts`. A batch of them is one commit.
 *
 * Holds the policy of this process, read from `--policy-dir` at the start and again with each round
 * of background work; a change is recorded before it is in force (`state.ts`).
 *
 * Crash: the kill list is replayed; the policy stays what it was, since reading it again may find
 * another. Bounds: lanes are the runtime's; `DECISIONS_BATCH_MAX` decisions a commit.
 */
import type { ActorDefinition, WriteAsk } from '../../runtime/actor.js';
import type { Log } from '../../runtime/log.js';
import { type ReadView, StreamActor, type StreamBehaviour } from '../../runtime/stream-actor.js';
import type { DocumentKey, Locked, Store, StoredRecord } from '../../storage/store.js';
import type { EvidenceRecorder } from '../evidence.js';
import { idempotencyKvKeys, stillInProgress } from '../idempotency.js';
import { applyKillRecord, KILL_LIST_STREAM, KillListState } from '../kill-list/state.js';
import type { PolicySource } from '../policy-directory.js';
import type { StorageTypes } from '../storage-types.js';
import { DECISIONS_ACTOR } from './client.js';
import { decodedDecision } from './decision-events.js';
import type { Decide, DecisionView, DecisionWrites, GetDecision, Settle } from './messages.js';
import { DecisionsOverlay } from './overlay.js';
import { APPROVAL_KIND, approvalOf, approvalView, PolicyHolder } from './state.js';

/** What the actor is given: its thread's store and whatever a simulation replaces. */
export interface DecisionsEnvironment {
  readonly store: Store;
  readonly log: Log;
  readonly evidence: EvidenceRecorder;
  /** Undefined: no `--policy-dir`, and every decision is `deny`. */
  readonly policySource: PolicySource | undefined;
}

const FOLLOWS = [KILL_LIST_STREAM];
const WRITES: readonly string[] = [];
/** A commit of ten milliseconds of deciding, so that nobody waits long behind it. */
const DECISIONS_BATCH_MAX = 128;
/** How often the directory is looked at; a new policy counts when it was the same twice. */
const POLICY_PERIOD_MS = 500;
const WRITE_KINDS: Readonly<Record<keyof DecisionWrites, true>> = {
  decide: true,
  approve: true,
  deny: true,
  notePolicy: true,
};

/** The decisions actor for a host; see the head of this file. */
export function decisionsActor(environment: DecisionsEnvironment): ActorDefinition {
  const { store, log, policySource } = environment;
  const holder = new PolicyHolder(policySource !== undefined);
  return {
    name: DECISIONS_ACTOR,
    isWrite: isDecisionWrite,
    bounds: { writeBatchMax: DECISIONS_BATCH_MAX, backgroundPeriodMs: POLICY_PERIOD_MS },
    create: (context) =>
      new StreamActor<KillListState, StorageTypes>(
        DECISIONS_ACTOR,
        new DecisionsBehaviour(environment, holder),
        store,
        log,
        context,
      ),
  };
}

/** Which kinds go to the write lane. */
export function isDecisionWrite(kind: string): boolean {
  return Object.hasOwn(WRITE_KINDS, kind);
}

class DecisionsBehaviour implements StreamBehaviour<KillListState, StorageTypes> {
  readonly follows = FOLLOWS;
  readonly writes = WRITES;

  constructor(
    private readonly environment: DecisionsEnvironment,
    private readonly holder: PolicyHolder,
  ) {}

  emptyState(): KillListState {
    return new KillListState();
  }

  apply(state: KillListState, record: StoredRecord): void {
    applyKillRecord(state, record);
  }

  read(
    _state: KillListState,
    kind: string,
    payload: unknown,
    view: ReadView<StorageTypes>,
  ): unknown {
    if (kind === 'get') return this.get(payload as GetDecision, view.storeTimeMs);
    throw new RangeError(`The decisions actor knows no message of kind ${kind}.`);
  }

  needs(batch: readonly WriteAsk[]): StorageTypes['needs'] {
    return { kv: idempotencyKvKeys(batch), documents: batch.flatMap(documentsOf) };
  }

  overlay(state: KillListState, locked: Locked): DecisionsOverlay {
    const { store, evidence } = this.environment;
    const isDeferred = store.evidence.mode === 'deferred';
    return new DecisionsOverlay(state, locked, evidence, this.holder, isDeferred);
  }

  expired = stillInProgress;

  async background(): Promise<void> {
    const { policySource } = this.environment;
    if (policySource === undefined) return;
    const files = await policySource.read().catch((error: unknown) => error as Error);
    if (files instanceof Error) this.holder.unreadable(files.message);
    else this.holder.read(files);
    const refused = this.holder.unnoted;
    if (refused !== undefined && refused.policy === undefined) {
      const [issue] = refused.issues;
      this.environment.log.error({ issue }, 'The policy is refused; the last good one stays.');
    }
  }

  due(): readonly WriteAsk[] {
    const { unnoted } = this.holder;
    if (unnoted === undefined) return [];
    return [{ kind: 'notePolicy', payload: { digest: unnoted.digest } }];
  }

  inspect(): Readonly<Record<string, unknown>> {
    return { ...this.holder.facts() };
  }

  /** The decision from its evidence, the approval from its document. */
  private async get(
    { ref, caller }: GetDecision,
    storeTimeMs: number,
  ): Promise<DecisionView | null> {
    const { store } = this.environment;
    const found = await store.evidence.find(ref);
    if (found === undefined) return null;
    const decided = decodedDecision(found.pending ? found.event.text : found.record.text);
    if (decided === undefined) return null;
    const { by, decision, expiresAtMs } = decided;
    if (caller !== undefined && (caller.type !== by.type || caller.id !== by.id)) return null;
    if (expiresAtMs === undefined) return { decision };
    const [document] = await store.documents([{ kind: APPROVAL_KIND, id: ref }]);
    if (document === undefined || expiresAtMs <= storeTimeMs) {
      return { decision, approval: { status: 'expired', expiresAtMs } };
    }
    return { decision, approval: approvalView(approvalOf(document), expiresAtMs) };
  }
}

function documentsOf({ kind, payload }: WriteAsk): DocumentKey[] {
  const ref = kind === 'decide' ? (payload as Decide).approval : (payload as Partial<Settle>).ref;
  return ref === undefined ? [] : [{ kind: APPROVAL_KIND, id: ref }];
}
