/** Typed functions with which the rest of the process asks the decisions actor. */
import { type ActorRef, askForValue } from '../../runtime/ask.js';
import type {
  Decide,
  Decided,
  DecisionReads,
  DecisionView,
  DecisionWrites,
  GetDecision,
  Settle,
  Settled,
} from './messages.js';

/** The name by which the actor is placed and asked. */
export const DECISIONS_ACTOR = 'decisions';

type Kinds = DecisionReads & DecisionWrites;

/** All reject with a `CodedError`: one of `DECISION_CODES`, of the runtime or of the store. */
export class DecisionsClient {
  constructor(private readonly ref: ActorRef) {}

  decide(input: Decide): Promise<Decided> {
    return this.value('decide', input);
  }

  approve(input: Settle): Promise<Settled> {
    return this.value('approve', input);
  }

  deny(input: Settle): Promise<Settled> {
    return this.value('deny', input);
  }

  /** Undefined for a ref that is no decision, or somebody else's. */
  async get(input: GetDecision): Promise<DecisionView | undefined> {
    return (await this.value('get', input)) ?? undefined;
  }

  private value<Kind extends keyof Kinds>(
    kind: Kind,
    payload: Kinds[Kind]['payload'],
  ): Promise<Kinds[Kind]['answer']> {
    return askForValue(this.ref, kind, payload);
  }
}
