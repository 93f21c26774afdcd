/**
 * The leader: who leads, who has led, and who is asked not to.
 *
 * Owns the history of every lease's terms (`state.ts`): each term begins with a write under its
 * own fence, so that a replica which was deposed before it could act leaves no trace of a term.
 * Owns no stream. Leases themselves are the elector's (`runtime/elector.ts`), on the main thread.
 *
 * Messages: `messages.ts`. What is read is asked of the store, so that every replica says the same.
 *
 * Crash: what follows the terms is not of the incarnation and goes on; it ends when the thread
 * closes. Bounds: `TERMS_KEPT` terms of a lease.
 */
import type { ActorDefinition, ActorHandlers, WriteAsk } from '../../runtime/actor.js';
import { type Clock, delay } from '../../runtime/clock.js';
import { CodedError, toFailure } from '../../runtime/failure.js';
import type { LeaseRow } from '../../runtime/lease.js';
import { type ActiveTerm, FENCED, type ThreadTerms } from '../../runtime/thread-terms.js';
import { STEP_DOWN_PREFIX } from '../../storage/lease-table.js';
import { documentName, LEASES_HINT, type Store } from '../../storage/store.js';
import { adminParty } from '../act-kinds.js';
import { BatchEvidence } from '../batch-evidence.js';
import type { EvidenceRecorder } from '../evidence.js';
import { LEADER_ACTOR } from './client.js';
import type {
  AskedToStepDown,
  LeaderReads,
  LeaderWrites,
  LeaseFacts,
  StepDown,
  TermFacts,
} from './messages.js';
import { termsKey, termsOf, withTerm } from './state.js';

/** What the actor is given: its thread's store and terms, and the leases of the process. */
export interface LeaderEnvironment {
  readonly store: Store;
  readonly clock: Clock;
  readonly terms: ThreadTerms;
  readonly leases: readonly string[];
  readonly evidence: EvidenceRecorder;
}

/** The store could not be written when a term began. */
const AGAIN_MS = 500;
/** An elector that could not ask for so long has lost its lease anyhow. */
const ASKED_FOR_MS = 600_000;
/** Only people and their tools ask. */
const BOUNDS = {
  readLane: { depthMax: 64, operatorReserve: 0 },
  writeLane: { depthMax: 16, operatorReserve: 0 },
  readBatchMax: 8,
  writeBatchMax: 1,
  backgroundPeriodMs: 0,
} satisfies ActorDefinition['bounds'];

/** The leader for a host; see the head of this file. */
export function leaderActor(environment: LeaderEnvironment): ActorDefinition {
  const histories = new Histories(environment);
  return {
    name: LEADER_ACTOR,
    isWrite: isLeaderWrite,
    create: () => new Leader(environment, histories),
    bounds: BOUNDS,
  };
}

/** Whether a message of that kind changes something. */
export function isLeaderWrite(kind: string): boolean {
  return kind === ('stepDown' satisfies keyof LeaderWrites);
}

/** What follows the terms of a thread, and outlives an incarnation of the actor. */
class Histories {
  private ends: readonly (() => Promise<void>)[] = [];

  constructor(private readonly environment: LeaderEnvironment) {}

  begin(): void {
    const { terms, leases } = this.environment;
    this.ends = leases.map((lease) => terms.follow(lease, (term) => this.began(term)));
  }

  async end(): Promise<void> {
    const { ends } = this;
    this.ends = [];
    await Promise.all(ends.map((end) => end()));
  }

  /** See `TermWork`. Rejects with `fenced` alone. */
  private async began(term: ActiveTerm): Promise<void> {
    while (!term.signal.aborted) {
      try {
        await this.write(term);
        return;
      } catch (error) {
        if (error instanceof CodedError && error.code === FENCED) throw error;
        await delay(this.environment.clock, AGAIN_MS);
      }
    }
  }

  private async write({ fence }: ActiveTerm): Promise<void> {
    const { store } = this.environment;
    const key = termsKey(fence.lease);
    const position = await store.replay([], () => undefined);
    const unit = { streams: [], position, documents: [key], fence };
    await store.commit(unit, ({ documents, storeTimeMs }) => {
      const known = termsOf(documents.get(documentName(key)));
      const terms = withTerm(known, fence, storeTimeMs);
      if (terms === known) return {};
      const body = JSON.stringify({ terms });
      return { documents: [{ op: 'put', ...key, body, expiresAtMs: null }] };
    });
  }
}

class Leader implements ActorHandlers {
  constructor(
    private readonly environment: LeaderEnvironment,
    private readonly histories: Histories,
  ) {}

  async open(): Promise<void> {
    this.histories.begin();
  }

  refresh(): void {
    // Nothing is answered from memory.
  }

  read(kind: string, payload: unknown): unknown {
    switch (kind as keyof LeaderReads) {
      case 'leases':
        return this.leases().catch(toFailure);
      case 'terms':
        return this.terms((payload as { lease: string }).lease).catch(toFailure);
      default:
        throw new RangeError(`The leader knows no message of kind ${kind}.`);
    }
  }

  async write(batch: readonly WriteAsk[]): Promise<readonly unknown[]> {
    const answers: unknown[] = [];
    for (const { payload } of batch) {
      answers.push(await this.stepDown(payload as StepDown).catch(toFailure));
    }
    return answers;
  }

  close(): Promise<void> {
    return this.histories.end();
  }

  inspect(): Readonly<Record<string, unknown>> {
    return {};
  }

  private async leases(): Promise<readonly LeaseFacts[]> {
    return (await this.environment.store.leases()).map(leaseFacts);
  }

  private async terms(lease: string): Promise<readonly TermFacts[]> {
    await this.leaseNamed(lease);
    const [document] = await this.environment.store.documents([termsKey(lease)]);
    return termsOf(document);
  }

  /** The row that the holder's next claim looks at, and a hint that it should ask now. */
  private async stepDown({ lease, by }: StepDown): Promise<AskedToStepDown> {
    const { store, evidence } = this.environment;
    const { holder, token, remainingMs } = await this.leaseNamed(lease);
    if (remainingMs === 0) throw new CodedError('lease_not_held', 'Nobody has the lease now.');
    const position = await store.replay([], () => undefined);
    await store.commit({ streams: [], position }, ({ storeTimeMs }) => {
      const acts = new BatchEvidence(evidence, storeTimeMs);
      const data = { lease, holder, token };
      acts.record({ kind: 'leader.step-down-asked', by: adminParty(by), data });
      const expiresAtMs = storeTimeMs + ASKED_FOR_MS;
      const key = STEP_DOWN_PREFIX + lease;
      return {
        kv: [{ op: 'put', key, value: String(token), expiresAtMs }],
        hints: [LEASES_HINT],
        evidence: acts.events,
      };
    });
    return { lease, holder, token };
  }

  private async leaseNamed(lease: string): Promise<LeaseFacts> {
    const found = (await this.leases()).find((one) => one.lease === lease);
    if (found === undefined) throw new CodedError('lease_unknown', 'There is no such lease.');
    return found;
  }
}

function leaseFacts({ lease, holder, token, remainingMs }: LeaseRow): LeaseFacts {
  return { lease, holder, token, remainingMs: Math.max(0, Math.round(remainingMs)) };
}
