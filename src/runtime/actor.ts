/**
 * What an actor is: a name and handlers that are given everything that waits in a lane as one
 * batch. `ActorCell` runs the handlers of one actor, `ActorHost` all cells of a thread.
 */
import type { LaneBounds } from './lane.js';

/** A read that turns out to need a write: it goes on in the write lane, for the same asker. */
export class Escalate {
  constructor(
    readonly kind: string,
    readonly payload: unknown,
  ) {}
}

/** What an incarnation of an actor may use of the runtime. */
export interface ActorContext {
  /** Sends news, structured-cloneable, to every front thread, before any later answer. */
  readonly publish: (message: unknown) => void;
  /** Puts a write into the actor's own lane; `onAnswer` gets its value or `Failure`, later. */
  readonly offer: (ask: WriteAsk, onAnswer: (answer: unknown) => void) => void;
}

/** One write of a batch, as the handlers see it. */
export interface WriteAsk {
  readonly kind: string;
  readonly payload: unknown;
}

/**
 * One incarnation of an actor. Made by the definition's `create`, opened once, thrown away after a
 * crash. What a handler throws is answered: a `CodedError` as its code, for that ask alone;
 * anything else is a bug and restarts the actor.
 */
export interface ActorHandlers {
  /** Makes the view complete. Rejects while it cannot; the cell tries again with back-off. */
  open(): Promise<void>;
  /**
   * Brings the view up to date before a read batch: the one catch-up of the batch. Throws or
   * rejects with a `CodedError` to fail the batch, with `MustReopen` to start over from `open`.
   */
  refresh(): void | Promise<void>;
  /** Answers one read from the view: a value, a `Failure`, a promise of either, or `Escalate`. */
  read(kind: string, payload: unknown): unknown;
  /** Decides and commits a batch in order; one answer (value or `Failure`) for each, in order. */
  write(batch: readonly WriteAsk[]): Promise<readonly unknown[]>;
  /** What an ask that ran out of time while `running` was being written is answered; optional. */
  expired?(ask: WriteAsk, running: readonly WriteAsk[]): unknown;
  /** Called about every `BACKGROUND_PERIOD_MS` while running, never twice at once; optional. */
  background?(): Promise<void>;
  /** Flushes and lets go. Idempotent; no handler is called after it. */
  close(): Promise<void>;
  /** Facts for the status page: plain data. */
  inspect(): Readonly<Record<string, unknown>>;
}

/**
 * What the runtime must know to run an actor. `create` is called at the start and after every
 * crash, and one incarnation shares nothing with the next. Bounds that are absent are those of
 * `ACTOR_BOUNDS`.
 */
export interface ActorDefinition {
  readonly name: string;
  readonly isWrite: (kind: string) => boolean;
  readonly create: (context: ActorContext) => ActorHandlers;
  readonly bounds?: Partial<ActorBounds>;
}

/** How much may wait for one actor, and how much of it is done at once. */
export interface ActorBounds {
  readonly readLane: LaneBounds;
  readonly writeLane: LaneBounds;
  /** Reads answered after one catch-up; keeps one turn of the loop in the milliseconds. */
  readonly readBatchMax: number;
  /** Writes in one commit: bounds the time under the stream's lock. */
  readonly writeBatchMax: number;
  /** Pause between two rounds of background work. */
  readonly backgroundPeriodMs: number;
}

/** Background work is for flushes that nobody waits for. */
export const BACKGROUND_PERIOD_MS = 1_000;

/**
 * A read lane holds a quarter of a second of the fastest machine's work, a write lane about as long
 * of commits; both far below what memory allows. The reserve lets an operator stop the overload.
 */
export const ACTOR_BOUNDS: ActorBounds = {
  readLane: { depthMax: 32_768, operatorReserve: 0 },
  writeLane: { depthMax: 4_096, operatorReserve: 256 },
  readBatchMax: 4_096,
  writeBatchMax: 512,
  backgroundPeriodMs: BACKGROUND_PERIOD_MS,
};

/** Deadlines when the asker names none. Reads: as long as a catch-up may take. */
export const READ_DEADLINE_MS = 2_500;
/** Writes: longer than the store's lock timeout of 3 s, so that the store's answer comes first. */
export const WRITE_DEADLINE_MS = 6_000;

/** Thrown by `refresh` or `write` when the view is worthless: replay, unready meanwhile. */
export class MustReopen extends Error {
  constructor(
    message: string,
    cause: unknown,
    /** What the asks of the batch are answered. */
    readonly code: 'store_unavailable' | 'outcome_unknown' = 'store_unavailable',
  ) {
    super(message, { cause });
    this.name = 'MustReopen';
  }
}
