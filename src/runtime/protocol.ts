/**
 * The wire between threads on the hot path: one file, literal types, one message for each
 * direction. The control surface is another thing (`thread-control.ts`, comlink).
 */

/** Front to actor thread: asks of one kind that arrived in one turn of the event loop. */
export interface AskMessage {
  readonly type: 'ask';
  /** Counts up per port; answers name it. */
  readonly group: number;
  readonly actor: string;
  readonly kind: string;
  readonly operator: boolean;
  /** Monotonic time, which all threads share, after which none of them must be run. */
  readonly deadlineMs: number;
  readonly payloads: readonly unknown[];
}

/** Actor thread to every front: news of an actor, in order with its answers on the same port. */
export interface PublishMessage {
  readonly type: 'publish';
  readonly actor: string;
  readonly message: unknown;
}

/** Everything that goes from an actor thread to a front. */
export type FromActorThread = AnswerMessage | PublishMessage;

/** Actor thread to front: answers to asks of one group. */
export interface AnswerMessage {
  readonly type: 'answer';
  readonly group: number;
  /** Which asks of the group these are; absent: all of them, in order. */
  readonly indexes?: readonly number[];
  readonly answers: readonly unknown[];
  /** See `AnswerSink.answered`; the oldest of the answers'. */
  readonly freshSinceMs: number;
}
