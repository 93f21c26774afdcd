/**
 * The front thread's part without HTTP: what a client may ask, put to the production clients of the
 * actors, with the production rule about what is stale.
 */
import { DEVICES_ACTOR, DevicesClient } from '../../src/actors/devices/client.js';
import { allowedId, allowedUser, type DeviceView } from '../../src/actors/devices/messages.js';
import type { Idempotency } from '../../src/actors/idempotency.js';
import { KILL_LIST_ACTOR, KillListClient } from '../../src/actors/kill-list/client.js';
import type { KillEntry } from '../../src/actors/kill-list/messages.js';
import { LIMITER_ACTOR, LimiterClient } from '../../src/actors/limiter/client.js';
import { digestOf } from '../../src/actors/secrets.js';
import type { ActorChannel } from '../../src/runtime/actor-channel.js';
import type { Clock } from '../../src/runtime/clock.js';
import { CodedError, isFailure } from '../../src/runtime/failure.js';
import { isStale } from '../../src/runtime/freshness.js';

/** What a client asks; `key` is its idempotency key. */
export type Asked =
  | {
      readonly kind: 'mint';
      readonly user: string;
      readonly ttlSeconds: number;
      readonly key?: string;
    }
  | { readonly kind: 'void'; readonly user: string; readonly key?: string }
  | {
      readonly kind: 'enroll';
      readonly token: string;
      readonly name: string;
      readonly deviceKey?: string;
      readonly key?: string;
    }
  | { readonly kind: 'authenticate'; readonly credential: string }
  | {
      readonly kind: 'rotate';
      readonly id: string;
      readonly overlapSeconds: number;
      /** The device's own; absent when an admin asks. */
      readonly credential?: string;
      readonly key?: string;
    }
  | { readonly kind: 'revoke'; readonly id: string; readonly reason: string; readonly key?: string }
  | { readonly kind: 'get'; readonly id: string }
  | {
      readonly kind: 'list';
      readonly limit: number;
      readonly after: number;
      readonly user?: string;
    }
  | {
      readonly kind: 'kill';
      readonly target: KillSubject;
      readonly reason: string;
      readonly expiresAtMs?: number;
      readonly key?: string;
    }
  | { readonly kind: 'lift'; readonly target: KillSubject; readonly key?: string }
  | { readonly kind: 'killList' }
  /** A failed authentication is counted; asked by the front thread itself. */
  | { readonly kind: 'fail'; readonly address: string };

/** What is killed here; only these two concern devices. */
export interface KillSubject {
  readonly kind: 'device' | 'user';
  readonly id: string;
}

/** All that the answers hold which is looked at here, under one roof. */
export interface AnswerValue {
  readonly token?: string;
  readonly expiresAtMs?: number;
  readonly credential?: string;
  readonly device?: DeviceView;
  /** Who was let in. */
  readonly allowed?: { readonly id: string; readonly user: string };
  readonly items?: readonly DeviceView[];
  readonly next?: number;
  readonly epoch?: string;
  readonly version?: number;
  readonly entry?: KillEntry;
  readonly entries?: readonly KillEntry[];
}

/** What came back: a value, or the code of a problem. */
export type Answer = { readonly value: AnswerValue } | { readonly code: string };

/** One front thread's way to the actors of its process. */
export class Door {
  private readonly devices: DevicesClient;
  private readonly kills: KillListClient;
  private readonly limiter: LimiterClient;

  constructor(
    channel: ActorChannel,
    private readonly clock: Clock,
  ) {
    this.devices = new DevicesClient(channel.ref(DEVICES_ACTOR));
    this.kills = new KillListClient(channel.ref(KILL_LIST_ACTOR));
    this.limiter = new LimiterClient(channel.ref(LIMITER_ACTOR));
  }

  /** Asks, and calls `settle` in the turn in which the answer leaves the process. */
  pass(asked: Asked, settle: (answer: Answer) => void): void {
    if (asked.kind === 'authenticate') {
      this.authenticate(asked.credential, settle);
      return;
    }
    if (asked.kind === 'fail') {
      const attempt = { class: 'device', address: asked.address } as const;
      this.limiter.failed(attempt, {
        answered: (answer) => settle(isFailure(answer) ? { code: answer.failure } : { value: {} }),
      });
      return;
    }
    this.value(asked).then(
      (value) => settle({ value }),
      (error: unknown) => settle({ code: codeOf(error) }),
    );
  }

  private authenticate(credential: string, settle: (answer: Answer) => void): void {
    this.devices.authenticate(digestOf(credential), {
      answered: (answer, freshSinceMs) => {
        if (isFailure(answer)) settle({ code: answer.failure });
        else if (isStale(freshSinceMs, this.clock.monotonicMs())) settle({ code: 'stale' });
        else {
          const packed = answer as string;
          settle({ value: { allowed: { id: allowedId(packed), user: allowedUser(packed) } } });
        }
      },
    });
  }

  private async value(
    asked: Exclude<Asked, { kind: 'authenticate' | 'fail' }>,
  ): Promise<AnswerValue> {
    const { devices, kills } = this;
    const more = idempotencyOf(asked);
    switch (asked.kind) {
      case 'mint':
        return devices.mintToken({
          user: asked.user,
          ttlSeconds: asked.ttlSeconds,
          by: 'root',
          ...more,
        });
      case 'void':
        await devices.voidTokens({ user: asked.user, by: 'root', ...more });
        return {};
      case 'enroll': {
        const enrolment = {
          tokenDigest: digestOf(asked.token),
          name: asked.name,
          platform: 'simulated',
          ...(asked.deviceKey === undefined ? {} : { deviceKey: asked.deviceKey }),
          ...more,
        };
        await devices.mayEnroll(enrolment);
        return devices.enroll(enrolment);
      }
      case 'rotate':
        if (asked.credential !== undefined) {
          const credentialDigest = digestOf(asked.credential);
          await devices.mayRotate({ credentialDigest, id: asked.id });
        }
        return devices.rotate({
          id: asked.id,
          overlapSeconds: asked.overlapSeconds,
          caller:
            asked.credential === undefined
              ? { kind: 'admin', name: 'root' }
              : { kind: 'device', credentialDigest: digestOf(asked.credential) },
          ...more,
        });
      case 'revoke': {
        const { id, reason } = asked;
        return { device: await devices.revoke({ id, reason, by: 'root', ...more }) };
      }
      case 'get':
        return { device: await devices.get(asked.id) };
      case 'list':
        return devices.list(asked);
      case 'kill': {
        const { target, reason, expiresAtMs } = asked;
        const expiry = expiresAtMs === undefined ? {} : { expiresAtMs };
        return kills.kill({ ...target, reason, by: 'root', ...expiry, ...more });
      }
      case 'lift':
        return kills.lift({ ...asked.target, by: 'root', ...more });
      case 'killList':
        return kills.list();
    }
  }
}

/** Principal, call and body as the HTTP front makes them out of a request. */
function idempotencyOf(asked: Asked): { readonly idempotency?: Idempotency } {
  if (!('key' in asked) || asked.key === undefined) return {};
  const { key, ...body } = asked;
  const principal =
    asked.kind === 'enroll'
      ? `enrollment:${digestOf(asked.token)}`
      : asked.kind === 'rotate' && asked.credential !== undefined
        ? `device:${asked.id}`
        : 'admin:root';
  const text = JSON.stringify(asked.kind === 'rotate' ? { ...body, credential: '' } : body);
  return { idempotency: { principal, call: `${asked.kind} ${key}`, bodyHmac: digestOf(text) } };
}

function codeOf(error: unknown): string {
  return error instanceof CodedError ? error.code : 'internal_error';
}
