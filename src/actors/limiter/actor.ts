/**
 * The limiter of failed authentications.
 *
 * Owns no stream: what this replica has seen is in memory (`state.ts`), what all replicas have seen
 * is counters in the store (`shared-budget.ts`). An address has `FAILURE_BURST` failures of a class
 * in a window on all replicas together; whichever of the two budgets is used up first blocks it
 * here. It is asked only after an attempt has failed, so that a valid credential passes from any
 * address, and whoever is blocked costs one look-up and no write.
 *
 * Messages: `messages.ts`. `failed` is answered from memory where the address is blocked; otherwise
 * it goes on as a write, and a batch of writes is one statement in the store.
 *
 * Crash: what this replica has seen is forgotten; the shared counters stay, and block whoever had
 * used them up at the next failure.
 *
 * Bounds: below, in `state.ts` (memory) and in `shared-budget.ts` (time and writes). It never waits
 * longer than `STORE_WAIT_MAX_MS` for the store, and works without it.
 */
import {
  type ActorDefinition,
  type ActorHandlers,
  Escalate,
  type WriteAsk,
} from '../../runtime/actor.js';
import type { Clock } from '../../runtime/clock.js';
import { type Failure, failure } from '../../runtime/failure.js';
import type { Log } from '../../runtime/log.js';
import type { Store } from '../../storage/store.js';
import { LIMITER_ACTOR } from './client.js';
import {
  type FailedAttempt,
  type FailureClass,
  type LimiterFacts,
  WITHIN_BUDGET,
} from './messages.js';
import { SharedBudget } from './shared-budget.js';
import { BLOCK_MS, FAILURE_BURST, LocalBudget } from './state.js';

/** What the actor is given: its thread's store and whatever a simulation replaces. */
export interface LimiterEnvironment {
  readonly store: Pick<Store, 'count'>;
  readonly clock: Clock;
  readonly log: Log;
}

/** What a failure becomes that is not answered from memory. */
const COUNT = 'count';

/**
 * It may share its thread with the devices actor, and a flood of guesses must not hold that up: the
 * longest turn is a full read lane of look-ups, or the counts of one write batch, both a few ms.
 */
const LIMITER_BOUNDS = {
  readLane: { depthMax: 8_192, operatorReserve: 0 },
  writeLane: { depthMax: 8_192, operatorReserve: 0 },
  readBatchMax: 1_024,
  writeBatchMax: 512,
} satisfies ActorDefinition['bounds'];

/** The limiter for a host; see the head of this file. */
export function limiterActor(environment: LimiterEnvironment): ActorDefinition {
  return {
    name: LIMITER_ACTOR,
    isWrite: isLimiterWrite,
    create: () => new Limiter(environment),
    bounds: LIMITER_BOUNDS,
  };
}

/** Which kinds go to the write lane. */
export function isLimiterWrite(kind: string): boolean {
  return kind === COUNT;
}

/** One failure of a batch, after the local budget has judged it. */
interface Judged {
  readonly key: string;
  /** Which of the batch's counted failures of its key it is, from 1; 0: it was blocked already. */
  readonly nth: number;
}

class Limiter implements ActorHandlers {
  private readonly local = new LocalBudget();
  private readonly shared: SharedBudget;
  private readonly failures: Record<FailureClass, number> = {
    device: 0,
    enrolment: 0,
    gateway: 0,
    admin: 0,
  };

  constructor(private readonly environment: LimiterEnvironment) {
    const { store, clock, log } = environment;
    this.shared = new SharedBudget(store, clock, log, (counts) => this.blockUsedUp(counts));
  }

  async open(): Promise<void> {
    // Nothing is replayed, so that it works before the store does.
  }

  refresh(): void {
    // What it knows of other replicas, the writes bring back.
  }

  read(kind: string, payload: unknown): unknown {
    if (kind !== 'failed') throw new RangeError(`The limiter knows no message of kind ${kind}.`);
    const attempt = payload as FailedAttempt;
    const leftMs = this.local.blockedForMs(keyOf(attempt), this.environment.clock.monotonicMs());
    if (leftMs === 0) return new Escalate(COUNT, attempt);
    this.failures[attempt.class] += 1;
    return tooMany(leftMs);
  }

  async write(batch: readonly WriteAsk[]): Promise<readonly unknown[]> {
    const counted = new Map<string, number>();
    const judged = batch.map((ask) => this.judge(ask.payload as FailedAttempt, counted));
    const totals = counted.size === 0 ? counted : await this.shared.count(counted);
    this.blockUsedUp(totals);
    const nowMs = this.environment.clock.monotonicMs();
    return judged.map(({ key, nth }) => {
      const total = totals.get(key);
      const inBatch = counted.get(key) ?? 0;
      const isOver = nth === 0 || (total !== undefined && total - inBatch + nth > FAILURE_BURST);
      return isOver ? tooMany(this.local.blockedForMs(key, nowMs) || BLOCK_MS) : WITHIN_BUDGET;
    });
  }

  async close(): Promise<void> {
    // What is counted is in the store already, or only for this replica.
  }

  inspect(): Readonly<Record<string, unknown>> {
    this.local.forgetEnded(this.environment.clock.monotonicMs());
    const facts: LimiterFacts = {
      blocked: this.local.blocked,
      tracked: this.local.tracked,
      evicted: this.local.evicted,
      failures: { ...this.failures },
      storeErrors: this.shared.errors,
      writesDropped: this.shared.dropped,
    };
    return { ...facts };
  }

  private judge(attempt: FailedAttempt, counted: Map<string, number>): Judged {
    const key = keyOf(attempt);
    const nowMs = this.environment.clock.monotonicMs();
    this.failures[attempt.class] += 1;
    if (this.local.blockedForMs(key, nowMs) > 0) return { key, nth: 0 };
    this.local.fail(key, nowMs);
    const nth = (counted.get(key) ?? 0) + 1;
    counted.set(key, nth);
    return { key, nth };
  }

  private blockUsedUp(totals: ReadonlyMap<string, number>): void {
    const nowMs = this.environment.clock.monotonicMs();
    for (const [key, total] of totals) if (total >= FAILURE_BURST) this.local.block(key, nowMs);
  }
}

function keyOf({ class: failureClass, address }: FailedAttempt): string {
  return `${failureClass}/${address}`;
}

function tooMany(leftMs: number): Failure {
  return failure(
    'too_many_failures',
    'Too many attempts from this address have failed.',
    Math.ceil(leftMs / 1000),
  );
}
