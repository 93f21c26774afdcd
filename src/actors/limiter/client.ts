/** The typed function with which the rest of the process asks the limiter. */
import type { ActorRef, AnswerSink } from '../../runtime/ask.js';
import type { FailedAttempt } from './messages.js';

/** The name by which the actor is placed and asked. */
export const LIMITER_ACTOR = 'limiter';

/** Asked only after an attempt has failed: whoever is let in never waits for the limiter. */
export class LimiterClient {
  constructor(private readonly ref: ActorRef) {}

  /**
   * Counts one failure. The sink gets `WITHIN_BUDGET`, or a `Failure`: `too_many_failures` with the
   * time that is left, or a code of the runtime when the limiter cannot be asked.
   */
  failed(attempt: FailedAttempt, sink: AnswerSink): void {
    this.ref.ask('failed', attempt, sink);
  }
}
