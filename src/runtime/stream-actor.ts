/**
 * The handlers of an actor that follows and writes streams: coalesced catch-up, group commit on an
 * overlay, replay. What the actor means is its behaviour: pure state and transitions.
 *
 * Rules kept here (DESIGN §2):
 * - One cursor for each stream; a record at or below it is dropped, since a slow catch-up may come
 *   back after a commit has moved the cursor.
 * - What the lock lets through is applied before anything is decided; what is decided is applied
 *   only after its commit; after an unknown outcome the cursor stays and the next catch-up tells.
 * - A batch that the store refuses is halved until the one that does not fit fails alone.
 */
import { type ActorContext, type ActorHandlers, MustReopen, type WriteAsk } from './actor.js';
import { CodedError, describe, isFailure, toFailure } from './failure.js';
import type { Log } from './log.js';
import {
  HISTORY_CHANGED,
  type StoreTypes,
  type StreamCatchUp,
  type StreamStore,
  WRITE_REFUSED,
} from './stream-store.js';

/** What is known when reads are answered. */
export interface ReadView<T extends StoreTypes> {
  readonly position: T['position'];
  /** The store's clock at the catch-up behind this batch. */
  readonly storeTimeMs: number;
}

/** Decides one batch on an overlay of the state; thrown away if the commit fails. */
export interface Overlay<T extends StoreTypes> {
  /**
   * Decides one write, in lane order: returns its answer, throws a `CodedError` to refuse it. It
   * must change the overlay only after it can no longer throw.
   */
  decide(kind: string, payload: unknown): unknown;
  changes(): T['changes'];
  /** Called once, after the commit: for what is not in the store. Must not throw. */
  committed?(): void;
}

/**
 * What one kind of actor means: what its state is, how a record changes it, what it answers. It
 * knows neither cursors nor commits; `StreamActor` does.
 */
export interface StreamBehaviour<State, T extends StoreTypes> {
  /** Streams that the state is made of, in the order they are replayed. */
  readonly follows: readonly string[];
  /** Those of them that this actor appends to. */
  readonly writes: readonly string[];
  emptyState(): State;
  /** Pure but for `state`. Throws a `CodedError` for a record it does not know. */
  apply(state: State, record: T['record']): void;
  /** See `ActorHandlers.read`. */
  read(state: State, kind: string, payload: unknown, view: ReadView<T>): unknown;
  /** What deciding these writes needs to read under the lock. */
  needs(batch: readonly WriteAsk[], state: State): T['needs'];
  overlay(state: State, locked: T['locked']): Overlay<T>;
  expired?(ask: WriteAsk, running: readonly WriteAsk[]): unknown;
  background?(state: State): Promise<void>;
  /** Writes that are due by the store's clock, looked for in the background; none: empty. */
  due?(state: State, storeTimeMs: number): readonly WriteAsk[];
  /**
   * What every front thread should hear since the last call, if anything; `routine` when called
   * after a round of background work, so that subscribers can tell how fresh they are.
   */
  news?(state: State, view: ReadView<T>, routine: boolean): unknown;
  /** Writes what must not be lost by an orderly stop. */
  close?(): Promise<void>;
  inspect(state: State): Readonly<Record<string, unknown>>;
}

/** A replay says how far it is each time this many records have been applied. */
const REPLAY_PROGRESS_RECORDS = 100_000;
/** How old an answer of the store may be that others have overtaken: above its bounds for one. */
const OVERTAKEN_MAX_MS = 10_000;
/** Catch-up pages in one refresh: beyond it the view is replayed rather than chased. */
const CATCH_UP_PAGES_MAX = 1_000;

/**
 * Runs a behaviour on a store. A failure of the store is answered with its own code, but a changed
 * history or a record that cannot be applied is a `MustReopen`, and a write that is refused even
 * alone is a bug, answered `internal_error`.
 */
export class StreamActor<State, T extends StoreTypes> implements ActorHandlers {
  private state: State;
  private position: T['position'] | undefined;
  private storeTimeMs = 0;
  private replayedRecords = 0;
  /** Writes that are due and were offered, not answered yet. */
  private dueOffered = 0;
  /** Settles when all pages of a long catch-up have been applied, or could not be read. */
  private paging: Promise<void> | undefined;

  constructor(
    private readonly name: string,
    private readonly behaviour: StreamBehaviour<State, T>,
    private readonly store: StreamStore<T>,
    private readonly log: Log,
    private readonly context: ActorContext,
  ) {
    this.state = behaviour.emptyState();
  }

  async open(): Promise<void> {
    const { behaviour, store, log } = this;
    const state = behaviour.emptyState();
    let applied = 0;
    const position = await store.replay(behaviour.follows, (records) => {
      const before = Math.floor(applied / REPLAY_PROGRESS_RECORDS);
      for (const record of records) behaviour.apply(state, record);
      applied += records.length;
      if (Math.floor(applied / REPLAY_PROGRESS_RECORDS) > before) {
        log.info({ actor: this.name, records: applied }, 'Replaying.');
      }
    });
    this.state = state;
    this.position = position;
    this.replayedRecords = applied;
    // What a replay brought is no news: subscribers ask for the whole when they must.
    behaviour.news?.(state, { position, storeTimeMs: 0 }, false);
    await this.refresh();
    log.info({ actor: this.name, records: applied }, 'The view is complete.');
  }

  refresh(): void | Promise<void> {
    let caughtUp: ReturnType<StreamStore<T>['catchUp']>;
    try {
      caughtUp = this.store.catchUp(this.known());
    } catch (error) {
      return this.catchUpFailed(error);
    }
    if (caughtUp instanceof Promise) {
      return caughtUp.then(
        (result) => this.apply(result),
        (error: unknown) => this.catchUpFailed(error),
      );
    }
    return this.apply(caughtUp);
  }

  read(kind: string, payload: unknown): unknown {
    return this.behaviour.read(this.state, kind, payload, {
      position: this.known(),
      storeTimeMs: this.storeTimeMs,
    });
  }

  async write(batch: readonly WriteAsk[]): Promise<readonly unknown[]> {
    try {
      return await this.commit(batch);
    } catch (error) {
      if (error instanceof MustReopen) throw error;
      if (error instanceof CodedError && error.code === HISTORY_CHANGED) {
        return this.historyChanged(error);
      }
      if (error instanceof CodedError && error.code !== WRITE_REFUSED) {
        return batch.map(() => toFailure(error));
      }
      if (batch.length === 1) {
        this.log.error(
          { actor: this.name, kind: batch[0]?.kind, error: describe(error) },
          'A write failed alone.',
        );
        return [toFailure(error instanceof CodedError ? new Error('refused') : error)];
      }
    }
    return this.writeHalves(batch);
  }

  private async writeHalves(batch: readonly WriteAsk[]): Promise<readonly unknown[]> {
    const half = Math.ceil(batch.length / 2);
    const first = await this.write(batch.slice(0, half));
    try {
      return [...first, ...(await this.write(batch.slice(half)))];
    } catch (error) {
      if (!(error instanceof MustReopen)) throw error;
      // The first half is committed: nobody of the batch may be told that nothing happened.
      throw new MustReopen(error.message, error.cause, 'outcome_unknown');
    }
  }

  expired(ask: WriteAsk, running: readonly WriteAsk[]): unknown {
    return this.behaviour.expired?.(ask, running);
  }

  /** Keeps an idle view warm and notices a changed history without traffic. */
  async background(): Promise<void> {
    await this.refresh();
    this.offerDue();
    await this.behaviour.background?.(this.state);
    this.tell(true);
  }

  /** In the lane as all writes are, so that a drain waits for them. */
  private offerDue(): void {
    if (this.dueOffered > 0) return;
    const due = this.behaviour.due?.(this.state, this.storeTimeMs) ?? [];
    this.dueOffered = due.length;
    for (const ask of due) {
      this.context.offer(ask, (answer) => {
        this.dueOffered -= 1;
        if (!isFailure(answer)) return;
        const { kind } = ask;
        this.log.warn({ actor: this.name, kind, error: answer }, 'A write that is due failed.');
      });
    }
  }

  async close(): Promise<void> {
    if (this.position === undefined) return;
    this.position = undefined;
    try {
      await this.behaviour.close?.();
    } catch (error) {
      this.log.warn({ actor: this.name, error: describe(error) }, 'A last flush failed.');
    }
  }

  inspect(): Readonly<Record<string, unknown>> {
    const cursors = Object.entries(this.position?.cursors ?? {});
    return {
      epoch: this.position?.epoch ?? '',
      cursors: Object.fromEntries(cursors.map(([stream, cursor]) => [stream, cursor.id])),
      replayedRecords: this.replayedRecords,
      ...this.behaviour.inspect(this.state),
    };
  }

  private async commit(batch: readonly WriteAsk[]): Promise<unknown[]> {
    const { behaviour, store } = this;
    let answers: unknown[] = [];
    let decided: Overlay<T> | undefined;
    const unit = {
      streams: behaviour.writes,
      position: this.known(),
      ...behaviour.needs(batch, this.state),
    };
    const committed = await store.commit(unit, (locked) => {
      this.applyAll(locked.records, locked.position);
      const overlay = behaviour.overlay(this.state, locked);
      decided = overlay;
      answers = batch.map((ask) => {
        try {
          return overlay.decide(ask.kind, ask.payload);
        } catch (error) {
          if (error instanceof CodedError) return toFailure(error);
          throw error;
        }
      });
      return overlay.changes();
    });
    decided?.committed?.();
    this.applyCommitted(committed);
    return answers;
  }

  /** It is done: whatever goes wrong now, nobody may be told otherwise or do it again. */
  private applyCommitted(committed: Awaited<ReturnType<StreamStore<T>['commit']>>): void {
    try {
      this.applyAll(committed.records, committed.position);
      this.noteTime(committed.storeTimeMs);
      this.tell(false);
    } catch (cause) {
      const message = 'What was committed cannot be applied.';
      throw new MustReopen(message, cause, 'outcome_unknown');
    }
  }

  private apply(result: StreamCatchUp<T['position'], T['record']>): void | Promise<void> {
    this.applyAll(result.records, result.position);
    this.noteTime(result.storeTimeMs);
    if (result.more || this.paging) return this.allPages(result.more);
    this.tell(false);
  }

  /**
   * A store's clock that was ahead and is put right must be followed, as the decisions follow it:
   * until a restart, whatever they make to end at some time would have ended here already.
   */
  private noteTime(storeTimeMs: number): void {
    const behindMs = this.storeTimeMs - storeTimeMs;
    if (behindMs < 0 || behindMs > OVERTAKEN_MAX_MS) this.storeTimeMs = storeTimeMs;
  }

  private tell(routine: boolean): void {
    if (!this.behaviour.news) return;
    const view = { position: this.known(), storeTimeMs: this.storeTimeMs };
    const news = this.behaviour.news(this.state, view, routine);
    if (news !== undefined) this.context.publish(news);
  }

  /**
   * One after the other, and whoever catches up meanwhile waits for it, even with nothing more to
   * read itself: between two pages the cursor may have passed a record whose newer version is on a
   * page to come, so that a catch-up that brought the older one had it dropped as known.
   */
  private async allPages(more: boolean): Promise<void> {
    while (this.paging) await this.paging;
    if (more) {
      this.paging = this.nextPages().finally(() => {
        this.paging = undefined;
      });
      await this.paging;
    }
    this.tell(false);
  }

  private async nextPages(): Promise<void> {
    for (let page = 0; page < CATCH_UP_PAGES_MAX; page += 1) {
      let result: StreamCatchUp<T['position'], T['record']>;
      try {
        result = await this.store.catchUp(this.known());
      } catch (error) {
        return this.catchUpFailed(error);
      }
      this.applyAll(result.records, result.position);
      if (!result.more) return;
    }
    throw new MustReopen('The stream grows faster than it can be followed.', undefined);
  }

  /** Applies what is new and moves the cursors; never backwards. */
  private applyAll(records: readonly T['record'][], reached: T['position']): void {
    if (records.length === 0 && reached === this.position) return;
    const cursors = { ...this.known().cursors };
    try {
      for (const record of records) {
        if (record.id <= (cursors[record.stream]?.id ?? 0)) continue;
        this.behaviour.apply(this.state, record);
      }
    } catch (cause) {
      throw new MustReopen('A record cannot be applied.', cause);
    }
    for (const [stream, cursor] of Object.entries(reached.cursors)) {
      if (cursor.id > (cursors[stream]?.id ?? 0)) cursors[stream] = cursor;
    }
    this.position = { ...reached, cursors };
  }

  private known(): T['position'] {
    if (this.position === undefined) {
      throw new CodedError('store_unavailable', 'The view is not complete yet.');
    }
    return this.position;
  }

  private async catchUpFailed(error: unknown): Promise<void> {
    if (error instanceof CodedError && error.code === HISTORY_CHANGED) {
      await this.historyChanged(error);
    }
    throw error;
  }

  private async historyChanged(cause: CodedError): Promise<never> {
    await this.store.replaceEpoch(this.known().epoch);
    throw new MustReopen('The history of the store changed.', cause);
  }
}
