/** Typed functions with which the rest of the process asks the devices actor. */
import { type ActorRef, type AnswerSink, type AskOptions, askForValue } from '../../runtime/ask.js';
import type {
  DevicePage,
  DeviceReads,
  DeviceView,
  DeviceWrites,
  Enroll,
  Enrolled,
  ListDevices,
  MayRotate,
  MintedToken,
  MintToken,
  Revoke,
  Rotate,
  Rotated,
  VoidedTokens,
  VoidTokens,
} from './messages.js';

/** The name by which the actor is placed and asked. */
export const DEVICES_ACTOR = 'devices';

type Kinds = DeviceReads & DeviceWrites;

/**
 * One method for each message, and nothing else. All but `authenticate` reject with a `CodedError`:
 * a code of `DEVICE_CODES`, of the runtime or of the store. What stops a device or its tokens is
 * asked as an operator, so that a full mailbox does not refuse it.
 */
export class DevicesClient {
  constructor(private readonly ref: ActorRef) {}

  /**
   * The hot path. The sink gets a packed answer (`allowedId`, `allowedUser`) or a `Failure`:
   * `device_unknown`, `device_revoked`, or a code of the runtime or the store.
   */
  authenticate(credentialDigest: string, sink: AnswerSink): void {
    this.ref.ask('authenticate', credentialDigest, sink);
  }
  /** Asked before `enroll`: a guess is refused here, and never becomes a write. */
  mayEnroll(input: Enroll): Promise<true> {
    return this.value('mayEnroll', input);
  }
  /** Asked before a device's own `rotate`, for the same reason. */
  mayRotate(input: MayRotate): Promise<true> {
    return this.value('mayRotate', input);
  }
  list(page: ListDevices): Promise<DevicePage> {
    return this.value('list', page);
  }
  get(id: string): Promise<DeviceView> {
    return this.value('get', { id });
  }
  mintToken(input: MintToken): Promise<MintedToken> {
    return this.value('mintToken', input);
  }
  voidTokens(input: VoidTokens): Promise<VoidedTokens> {
    return this.value('voidTokens', input, { operator: true });
  }
  enroll(input: Enroll): Promise<Enrolled> {
    return this.value('enroll', input);
  }
  revoke(input: Revoke): Promise<DeviceView> {
    return this.value('revoke', input, { operator: true });
  }
  rotate(input: Rotate): Promise<Rotated> {
    return this.value('rotate', input);
  }

  private value<Kind extends keyof Kinds>(
    kind: Kind,
    payload: Kinds[Kind]['payload'],
    options?: AskOptions,
  ): Promise<Kinds[Kind]['answer']> {
    return askForValue(this.ref, kind, payload, options);
  }
}
