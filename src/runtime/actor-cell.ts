/**
 * Runs one actor: its two lanes, its batches, its deadlines and its restarts.
 *
 *   offer → read lane  → take all → refresh once → answer each
 *         → write lane → take all → write (one commit) → answer each
 *
 * States: opening → running → (crash) restarting → opening …; stopped is final. In every state but
 * running an ask is answered at once, so nothing waits on a view that is not complete.
 */
import {
  ACTOR_BOUNDS,
  type ActorBounds,
  type ActorContext,
  type ActorDefinition,
  type ActorHandlers,
  Escalate,
  MustReopen,
  WRITE_DEADLINE_MS,
  type WriteAsk,
} from './actor.js';
import { ActorMetrics, type ActorSnapshot, type CellState } from './actor-metrics.js';
import { type Clock, delay, repeat, type Timer } from './clock.js';
import { CodedError, describe, type Failure, failure, isFailure, toFailure } from './failure.js';
import { Lane, type Letter } from './lane.js';
import type { Log } from './log.js';
import type { Random } from './random.js';
import { backoffMs, RESTART_BOUNDS, RestartIntensity } from './restart-policy.js';
import { Waiters } from './waiters.js';

/** What the cells of one thread share; a simulation passes its own clock, randomness and log. */
export interface CellEnvironment {
  readonly clock: Clock;
  readonly random: Random;
  readonly log: Log;
  /** News of an actor for every front thread; a host provides it. */
  readonly publish?: (actor: string, message: unknown) => void;
  /** Too many restarts: the process should end. Called once. */
  readonly onExhausted: (actor: string, cause: unknown) => void;
}

/** How long an `overloaded` caller should wait: a lane drains in less. */
const OVERLOADED_RETRY_AFTER_SECONDS = 1;
/** How late an expired ask may be answered: little beside the shortest deadline. */
const EXPIRY_PERIOD_MS = 100;

/**
 * One actor from its first opening to its end. What goes wrong inside it is answered to the asks
 * that it concerns, as a `Failure`; only restarts that did not help are told to anyone else.
 */
export class ActorCell {
  private readonly context: ActorContext;
  private handlers: ActorHandlers;
  private readonly readLane: Lane;
  private readonly writeLane: Lane;
  private readonly bounds: ActorBounds;
  private readonly metrics = new ActorMetrics();
  private readonly intensity = new RestartIntensity(RESTART_BOUNDS);
  private state: CellState = 'opening';
  private reason: Failure = failure('store_unavailable', 'The view is not complete yet.', 1);
  private reading: readonly Letter[] | undefined;
  private writing: readonly Letter[] | undefined;
  private backgroundTimer: Timer | undefined;
  private expiryTimer: Timer | undefined;
  /** Reads that were answered by a promise, which no batch waits for. */
  private promised = 0;
  private readonly emptied = new Waiters();
  private readonly batchEnded = new Waiters();

  constructor(
    private readonly definition: ActorDefinition,
    private readonly environment: CellEnvironment,
  ) {
    this.bounds = { ...ACTOR_BOUNDS, ...definition.bounds };
    this.readLane = new Lane(this.bounds.readLane);
    this.writeLane = new Lane(this.bounds.writeLane);
    this.context = {
      publish: (message) => environment.publish?.(definition.name, message),
      offer: (ask, onAnswer) => this.offerOwn(ask, onAnswer),
    };
    this.handlers = definition.create(this.context);
  }

  get name(): string {
    return this.definition.name;
  }

  isWrite(kind: string): boolean {
    return this.definition.isWrite(kind);
  }

  /** Opens the view; resolves when it is complete for the first time, however long that takes. */
  async open(): Promise<void> {
    await this.openUntilComplete();
    if (this.isStopped()) return;
    const { clock } = this.environment;
    const { backgroundPeriodMs } = this.bounds;
    this.backgroundTimer = repeat(clock, backgroundPeriodMs, () => this.background());
    // Whoever waits behind a long commit is answered in time, and never run.
    this.expiryTimer = repeat(clock, EXPIRY_PERIOD_MS, () => {
      this.expireIn(this.readLane);
      this.expireIn(this.writeLane);
    });
  }

  /** Queues one ask. Call `run` after the last of a message. */
  offer(letter: Letter): void {
    if (this.state !== 'running') {
      this.answer(letter, this.reason, 0);
      return;
    }
    const lane = this.definition.isWrite(letter.kind) ? this.writeLane : this.readLane;
    if (lane.offer(letter)) return;
    this.metrics.rejected += 1;
    this.answer(
      letter,
      failure('overloaded', `The mailbox is full.`, OVERLOADED_RETRY_AFTER_SECONDS),
      0,
    );
  }

  /** Something that the actor asks of itself; like an operator's, overload does not refuse it. */
  private offerOwn({ kind, payload }: WriteAsk, onAnswer: (answer: unknown) => void): void {
    const arrivedMs = this.environment.clock.monotonicMs();
    const deadlineMs = arrivedMs + WRITE_DEADLINE_MS;
    const to = { reply: (_: number, answer: unknown) => onAnswer(answer) };
    this.offer({ kind, payload, deadlineMs, arrivedMs, operator: true, to, index: 0 });
    this.run();
  }

  /** Starts whatever can start. Cheap when nothing can. */
  run(): void {
    this.runReads();
    this.runWrites();
    if (this.reading || this.writing) return;
    this.batchEnded.release();
    const isEmpty = this.readLane.depth === 0 && this.writeLane.depth === 0;
    if (isEmpty && this.promised === 0) this.emptied.release();
  }

  /** Resolves once nothing waits, runs or is promised. Stop the senders first. */
  drained(): Promise<void> {
    const emptied = this.emptied.wait();
    this.run();
    return emptied;
  }

  /** Answers whatever still waits, lets a running commit end, closes the view. Idempotent. */
  async close(): Promise<void> {
    if (this.state === 'stopped') return;
    this.stopTaking('stopped', failure('actor_restarted', 'The server is shutting down.', 1));
    this.backgroundTimer?.cancel();
    this.expiryTimer?.cancel();
    await this.settled();
    await this.handlers.close();
    this.emptied.release();
  }

  /** Figures since the cell was made: restarts of the actor do not reset them. */
  snapshot(): ActorSnapshot {
    return {
      name: this.name,
      state: this.state,
      ...(this.state === 'running' ? {} : { reason: this.reason.failure }),
      readDepth: this.readLane.depth,
      writeDepth: this.writeLane.depth,
      ...this.metrics.snapshot(),
      facts: this.handlers.inspect(),
    };
  }

  private runReads(): void {
    while (!this.reading && this.state === 'running' && this.readLane.depth > 0) {
      const batch = this.takeLive(this.readLane, this.bounds.readBatchMax);
      if (batch.length === 0) continue;
      this.metrics.readBatch.observe(batch.length);
      const startedMs = this.environment.clock.monotonicMs();
      let refreshed: void | Promise<void>;
      try {
        this.metrics.catchUps += 1;
        refreshed = this.handlers.refresh();
      } catch (error) {
        this.readsFailed(batch, error);
        continue;
      }
      if (!(refreshed instanceof Promise)) {
        this.answerReads(batch, startedMs);
        continue;
      }
      this.reading = batch;
      void refreshed
        .then(
          () => this.answerReads(batch, startedMs),
          (error: unknown) => this.readsFailed(batch, error),
        )
        .finally(() => {
          this.reading = undefined;
          this.run();
        });
    }
  }

  private answerReads(batch: readonly Letter[], startedMs: number): void {
    const { handlers, metrics } = this;
    for (let position = 0; position < batch.length; position += 1) {
      const letter = batch[position] as Letter;
      metrics.readWaitMs.observe(startedMs - letter.arrivedMs);
      let answer: unknown;
      try {
        answer = handlers.read(letter.kind, letter.payload);
      } catch (error) {
        if (!(error instanceof CodedError)) {
          this.crashed(error, batch.slice(position));
          return;
        }
        answer = toFailure(error);
      }
      if (answer instanceof Object) this.answerLater(letter, answer, startedMs);
      else this.answer(letter, answer, startedMs);
    }
    metrics.readHandleMs.observe(this.environment.clock.monotonicMs() - startedMs);
  }

  /** The less frequent answers: a promise, a change of lane, or a plain object after all. */
  private answerLater(letter: Letter, answer: object, startedMs: number): void {
    if (answer instanceof Escalate) {
      this.offer({ ...letter, kind: answer.kind, payload: answer.payload });
    } else if (answer instanceof Promise) {
      this.promised += 1;
      void answer
        .then(
          (value: unknown) => this.answer(letter, value, startedMs),
          (error: unknown) => this.answer(letter, this.explained(error), 0),
        )
        .finally(() => {
          this.promised -= 1;
          this.run();
        });
    } else {
      this.answer(letter, answer, isFailure(answer) ? 0 : startedMs);
    }
  }

  private readsFailed(batch: readonly Letter[], error: unknown): void {
    this.metrics.catchUpFailures += 1;
    this.batchFailed(batch, error);
  }

  private batchFailed(batch: readonly Letter[], error: unknown, code?: string): void {
    if (error instanceof MustReopen) this.reopen(error, batch);
    else if (error instanceof CodedError) this.answerAll(batch, toFailure(error));
    else this.crashed(error, batch, code);
  }

  private runWrites(): void {
    if (this.writing || this.state !== 'running' || this.writeLane.depth === 0) return;
    const batch = this.takeLive(this.writeLane, this.bounds.writeBatchMax);
    if (batch.length === 0) return;
    this.metrics.writeBatch.observe(batch.length);
    const startedMs = this.environment.clock.monotonicMs();
    for (const letter of batch) this.metrics.writeWaitMs.observe(startedMs - letter.arrivedMs);
    this.writing = batch;
    void this.write(batch, startedMs).finally(() => {
      this.writing = undefined;
      this.run();
    });
  }

  private async write(batch: readonly Letter[], startedMs: number): Promise<void> {
    try {
      const answers = await this.handlers.write(batch);
      this.metrics.commits += 1;
      batch.forEach((letter, position) => {
        this.answer(letter, answers[position], startedMs);
      });
    } catch (error) {
      this.batchFailed(batch, error, 'outcome_unknown');
    }
    this.metrics.writeHandleMs.observe(this.environment.clock.monotonicMs() - startedMs);
  }

  /** Takes a batch and answers what has waited too long instead of running it. */
  private takeLive(lane: Lane, countMax: number): Letter[] {
    this.expireIn(lane);
    return lane.take(countMax);
  }

  private expireIn(lane: Lane): void {
    for (const letter of lane.takeExpired(this.environment.clock.monotonicMs())) {
      this.metrics.expired += 1;
      const answer =
        this.handlers.expired?.(letter, this.writing ?? []) ??
        failure('deadline_exceeded', 'The request waited too long and was not run.', 1);
      this.answer(letter, answer, 0);
    }
  }

  /** A bug: everything pending is answered, the view is thrown away and made anew. */
  private crashed(cause: unknown, batch: readonly Letter[], code = 'actor_restarted'): void {
    const { clock, log, onExhausted } = this.environment;
    log.error({ actor: this.name, error: describe(cause) }, 'An actor crashed and is restarted.');
    this.answerAll(batch, failure(code, 'The actor crashed while it handled the request.', 1));
    if (this.state !== 'running') return;
    this.metrics.restarts += 1;
    this.stopTaking('restarting', failure('actor_restarted', 'The actor is being restarted.', 1));
    const crashes = this.intensity.crashed(clock.monotonicMs());
    if (crashes === 'exhausted') {
      this.state = 'stopped';
      onExhausted(this.name, cause);
      return;
    }
    void this.replaceHandlers(crashes);
  }

  /** The view is worthless but nothing is broken: not a crash, and not counted as one. */
  private reopen(error: MustReopen, batch: readonly Letter[]): void {
    this.environment.log.warn(
      { actor: this.name, error: describe(error) },
      'The view does not fit the store any more and is replayed from zero.',
    );
    const unavailable = failure('store_unavailable', 'The view is being replayed.', 1);
    this.answerAll(batch, { ...unavailable, failure: error.code });
    if (this.state !== 'running') return;
    this.stopTaking('opening', unavailable);
    void this.replaceHandlers(0);
  }

  private async replaceHandlers(crashes: number): Promise<void> {
    const { clock, random } = this.environment;
    if (crashes > 0) await delay(clock, backoffMs(crashes, RESTART_BOUNDS, random));
    await this.settled();
    await this.handlers.close().catch(() => undefined);
    if (this.state === 'stopped') return;
    this.handlers = this.definition.create(this.context);
    await this.openUntilComplete();
  }

  private async openUntilComplete(): Promise<void> {
    const { clock, random, log } = this.environment;
    for (let failures = 0; this.state !== 'stopped'; ) {
      try {
        await this.handlers.open();
        if (this.isStopped()) return;
        this.state = 'running';
        this.run();
        return;
      } catch (error) {
        failures += 1;
        log.error({ actor: this.name, error: describe(error) }, 'An actor cannot open its view.');
        this.reason = { ...toFailure(error), failure: 'store_unavailable', retryAfterSeconds: 1 };
        await delay(clock, backoffMs(failures, RESTART_BOUNDS, random));
      }
    }
  }

  /** Method, not field: the compiler must not narrow what another turn of the loop may change. */
  private isStopped(): boolean {
    return this.state === 'stopped';
  }

  private stopTaking(state: CellState, reason: Failure): void {
    this.state = state;
    this.reason = reason;
    this.answerAll(this.readLane.take(Number.MAX_SAFE_INTEGER), reason);
    this.answerAll(this.writeLane.take(Number.MAX_SAFE_INTEGER), reason);
  }

  /** Resolves when no batch of the present handlers runs any more. */
  private async settled(): Promise<void> {
    if (this.reading || this.writing) await this.batchEnded.wait();
  }

  private async background(): Promise<void> {
    if (this.state !== 'running') return;
    try {
      await this.handlers.background?.();
    } catch (error) {
      if (error instanceof CodedError) {
        const fields = { actor: this.name, error: describe(error) };
        this.environment.log.warn(fields, 'Background work failed; it goes on.');
      } else this.batchFailed([], error);
    }
  }

  private explained(error: unknown): Failure {
    if (!(error instanceof CodedError)) {
      this.environment.log.error({ actor: this.name, error: describe(error) }, 'A read failed.');
    }
    return toFailure(error);
  }

  private answerAll(batch: readonly Letter[], answer: Failure): void {
    for (const letter of batch) this.answer(letter, answer, 0);
  }

  private answer(letter: Letter, answer: unknown, freshSinceMs: number): void {
    letter.to.reply(letter.index, answer, freshSinceMs);
  }
}
