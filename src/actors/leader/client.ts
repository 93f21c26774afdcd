/** Typed functions with which the rest of the process asks the leader actor. */
import { type ActorRef, askForValue } from '../../runtime/ask.js';
import type { AskedToStepDown, LeaseFacts, StepDown, TermFacts } from './messages.js';

/** The name by which the actor is placed and asked. */
export const LEADER_ACTOR = 'leader';

/** All reject with a `CodedError`: of `LEADER_CODES`, of the runtime or of the store. */
export class LeaderClient {
  constructor(private readonly ref: ActorRef) {}

  /** In the order of their names. */
  leases(): Promise<readonly LeaseFacts[]> {
    return askForValue(this.ref, 'leases', {});
  }

  /** Newest first, `TERMS_KEPT` at most. */
  terms(lease: string): Promise<readonly TermFacts[]> {
    return askForValue(this.ref, 'terms', { lease });
  }

  /** Resolves when it is asked for; the holder ends its term when it hears of it. */
  stepDown(input: StepDown): Promise<AskedToStepDown> {
    return askForValue(this.ref, 'stepDown', input);
  }
}
