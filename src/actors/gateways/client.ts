/** Typed functions with which the rest of the process asks the gateways actor. */
import { type ActorRef, type AnswerSink, type AskOptions, askForValue } from '../../runtime/ask.js';
import type {
  CreatedGateway,
  CreateGateway,
  GatewayList,
  GatewayReads,
  GatewayReport,
  GatewayWrites,
  ListGateways,
  RemovedGateway,
  RemoveGateway,
  RotatedGateway,
  RotateGateway,
} from './messages.js';

/** The name by which the actor is placed and asked. */
export const GATEWAYS_ACTOR = 'gateways';

type Kinds = GatewayReads & GatewayWrites;

/** All but `authenticate` reject with a `CodedError`. */
export class GatewaysClient {
  constructor(private readonly ref: ActorRef) {}

  /**
   * The sink gets the gateway's id or a `Failure`: `token_unknown`, or a code of the runtime or the
   * store. Whoever opens a stream on the answer must know it by the digest in the same turn, or an
   * `ended` that follows finds nothing to close.
   */
  authenticate(tokenDigest: string, sink: AnswerSink): void {
    this.ref.ask('authenticate', tokenDigest, sink);
  }

  list(input: ListGateways): Promise<GatewayList> {
    return this.value('list', input);
  }

  /** Resolves after a catch-up, whose news are on their way to the front threads by then. */
  catchUp(): Promise<true> {
    return this.value('catchUp', null);
  }

  /** What one front thread has open; see `GatewayReport`. */
  report(input: GatewayReport): Promise<true> {
    return this.value('report', input);
  }

  create(input: CreateGateway): Promise<CreatedGateway> {
    return this.value('create', input);
  }

  rotate(input: RotateGateway): Promise<RotatedGateway> {
    return this.value('rotate', input);
  }

  /** Uses the operators' reserve: overload never refuses the one who stops it. */
  remove(input: RemoveGateway): Promise<RemovedGateway> {
    return this.value('remove', input, { operator: true });
  }

  private value<Kind extends keyof Kinds>(
    kind: Kind,
    payload: Kinds[Kind]['payload'],
    options?: AskOptions,
  ): Promise<Kinds[Kind]['answer']> {
    return askForValue(this.ref, kind, payload, options);
  }
}
