/**
 * How one asks an actor, whatever carries the question: a MessagePort from a front thread, a direct
 * call inside one thread, or a simulated bus.
 */
import type { Clock } from './clock.js';
import { CodedError, type Failure, isFailure } from './failure.js';

/** Receives exactly one call for each ask, in the thread that asked, after `ask` has returned. */
export interface AnswerSink {
  /**
   * `answer` is the actor's value or a `Failure`. `freshSinceMs` is the monotonic time at which the
   * catch-up behind a read, or the batch of a write, began; 0 for a failure, which does not age.
   */
  answered(answer: unknown, freshSinceMs: number): void;
}

/** What is unusual about one ask; most have none of it. */
export interface AskOptions {
  /** How many ms the caller will wait, queueing included. Default: the actor's for the lane. */
  readonly deadlineMs?: number;
  /** May use the write lane's reserve: for whoever stops things (kill, revoke). */
  readonly operator?: boolean;
}

/** One actor, as seen from anywhere in the process. Never throws: what goes wrong is an answer. */
export interface ActorRef {
  readonly actor: string;
  /**
   * Queues the ask until the end of this turn of the event loop; all asks of one turn travel in one
   * message. `payload` must be structured-cloneable.
   */
  ask(kind: string, payload: unknown, sink: AnswerSink, options?: AskOptions): void;
}

/** Answers an ask that goes nowhere: never within `ask`, whose caller is not ready for it then. */
export function refuseLater(clock: Clock, sink: AnswerSink, refusal: Failure): void {
  clock.afterTurn(() => sink.answered(refusal, 0));
}

/**
 * The same as a promise, for everything that is not the hot path: resolves with the value, rejects
 * with a `CodedError` for a failure.
 */
export function askForValue<Value>(
  ref: ActorRef,
  kind: string,
  payload: unknown,
  options?: AskOptions,
): Promise<Value> {
  return new Promise((resolve, reject) => {
    const sink: AnswerSink = {
      answered: (answer) => {
        if (isFailure(answer)) {
          reject(
            new CodedError(answer.failure, answer.detail ?? answer.failure, {
              ...(answer.retryAfterSeconds === undefined
                ? {}
                : { retryAfterSeconds: answer.retryAfterSeconds }),
            }),
          );
        } else {
          resolve(answer as Value);
        }
      },
    };
    ref.ask(kind, payload, sink, options);
  });
}
