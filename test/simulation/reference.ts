/**
 * What one device's life may look like, as API.md and DESIGN promise it: the token, the device that
 * it makes, its credentials, its end. A plain sequential model that shares nothing with the actors;
 * where the store's clock decides, every outcome that it may have decided on is possible.
 */
import type { DeviceView } from '../../src/actors/devices/messages.js';
import type { AnswerValue, Asked, KillSubject } from './door.js';
import { UNSTORABLE } from './simulated-store.js';
import type { Moment } from './store-time.js';

/** A time on the store's clock that is known only so far. */
export interface Span {
  readonly lowMs: number;
  readonly highMs: number;
}

interface TokenFacts {
  /** What works now; a replay of the call that minted it replaces it. */
  readonly text: string;
  readonly expires: Span;
  readonly isVoid: boolean;
  readonly spent: boolean;
  readonly spentKey?: string;
  /** The idempotent call that minted it. */
  readonly mintedBy?: string;
}

interface DeviceFacts {
  /** Absent while no answer has named it. */
  readonly id?: string;
  readonly name: string;
  readonly current: string;
  readonly previous?: string;
  readonly previousUntil: Span;
  readonly unconfirmed: boolean;
  readonly enrolledAtMs?: number;
  readonly revoked?: { readonly reason: string; readonly atMs?: number };
}

interface Remembered {
  readonly body: string;
  readonly superseded?: boolean;
  readonly credential?: string;
}

/** All that the store holds of one life. */
export interface LifeState {
  readonly token?: TokenFacts;
  readonly device?: DeviceFacts;
  /** By kind and id. */
  readonly kills: Readonly<Record<string, { readonly expires?: Span }>>;
  /** Idempotent calls, by kind and key. */
  readonly calls: Readonly<Record<string, Remembered>>;
  readonly saved?: LifeState;
}

/** One thing that may come of a call; without `refused` it is answered with a value. */
export interface Outcome {
  readonly state: LifeState;
  readonly refused?: string;
}

export const NO_LIFE: LifeState = { kills: {}, calls: {} };

/** What a call may depend on beside the state. */
export interface Circumstances {
  readonly moment: Moment;
  readonly user: string;
  /** The secret that the answer holds; if the answer was lost, a name for what nobody knows. */
  readonly secret: string;
}

const over = (until: Span, { highestMs }: Moment): boolean => highestMs >= until.lowMs;
const on = (until: Span, { lowMs }: Moment): boolean => lowMs < until.highMs;
const after = ({ lowMs, highMs }: Moment, seconds: number): Span => ({
  lowMs: lowMs + seconds * 1000,
  highMs: highMs + seconds * 1000,
});

/** Everything that may come of it. */
export function outcomesOf(state: LifeState, asked: Asked, at: Circumstances): Outcome[] {
  const before = rememberedCall(state, asked);
  if (before === 'mismatch' && asked.kind !== 'rotate') {
    return [{ state, refused: 'idempotency_mismatch' }];
  }
  const known = before === 'mismatch' ? undefined : before;
  switch (asked.kind) {
    case 'mint':
      return mint(state, asked, known, at);
    case 'void':
      if (asked.user.includes(UNSTORABLE)) return [{ state, refused: 'internal_error' }];
      return [{ state: known ? state : remember(voided(state), asked) }];
    case 'enroll':
      return enroll(state, asked, known, at);
    case 'authenticate':
      return authenticate(state, asked.credential, at);
    case 'rotate':
      return rotate(state, asked, before, at);
    case 'revoke':
      return revoke(state, asked, known);
    case 'get':
      return withDevice(state, asked.id, () => [{ state }]);
    case 'kill':
      return kill(state, asked, known, at);
    case 'lift':
      return [{ state: known ? state : remember(lifted(state, asked.target), asked) }];
    case 'list':
    case 'killList':
    case 'fail':
      return [{ state }];
  }
}

function mint(
  state: LifeState,
  asked: Asked & { kind: 'mint' },
  before: Remembered | undefined,
  { moment, secret }: Circumstances,
): Outcome[] {
  if (!before) {
    const expires = after(moment, asked.ttlSeconds);
    const name = callName(asked);
    const mintedBy = name === undefined ? {} : { mintedBy: name };
    const token = { text: secret, expires, isVoid: false, spent: false, ...mintedBy };
    return [{ state: remember({ ...state, token }, asked) }];
  }
  const { token } = state;
  const outcomes: Outcome[] = [];
  const isGone = !token || token.isVoid || before.superseded === true;
  if (isGone || over(token.expires, moment)) {
    outcomes.push({ state, refused: 'replay_superseded' });
  }
  if (!isGone && on(token.expires, moment)) {
    outcomes.push({ state: { ...state, token: { ...token, text: secret } } });
  }
  return outcomes;
}

function voided(state: LifeState): LifeState {
  return state.token ? { ...state, token: { ...state.token, isVoid: true } } : state;
}

function enroll(
  state: LifeState,
  asked: Asked & { kind: 'enroll' },
  before: Remembered | undefined,
  { moment, secret }: Circumstances,
): Outcome[] {
  const { token, device } = state;
  const invalid = { state, refused: 'enrollment_token_invalid' };
  if (!token || token.text !== asked.token || token.isVoid) return [invalid];
  const outcomes: Outcome[] = over(token.expires, moment) ? [invalid] : [];
  if (!on(token.expires, moment)) return outcomes;
  if (token.spent) {
    const sameKey = token.spentKey !== undefined && token.spentKey === asked.deviceKey;
    const again = (sameKey || before !== undefined) && device?.unconfirmed && !device.revoked;
    if (!again) return [invalid];
    const renewed = { ...state, device: { ...device, current: secret } };
    return [...outcomes, { state: remember(renewed, asked, { credential: secret }) }];
  }
  if (asked.name.includes(UNSTORABLE)) return [...outcomes, { state, refused: 'internal_error' }];
  const made: LifeState = {
    ...state,
    token: {
      ...token,
      spent: true,
      ...(asked.deviceKey === undefined ? {} : { spentKey: asked.deviceKey }),
    },
    device: {
      name: asked.name,
      current: secret,
      previousUntil: { lowMs: 0, highMs: 0 },
      unconfirmed: asked.deviceKey !== undefined || asked.key !== undefined,
    },
  };
  const minted = token.mintedBy === undefined ? made : supersede(made, token.mintedBy);
  return [...outcomes, { state: remember(minted, asked, { credential: secret }) }];
}

/**
 * What comes of a call that names the device by its id. After a restore the token may have made
 * another device than the one whose id is known; as long as nobody has seen its id, it may be both.
 */
function withDevice(
  state: LifeState,
  id: string,
  decide: (device: DeviceFacts) => Outcome[],
): Outcome[] {
  const { device } = state;
  const missing = { state, refused: 'device_not_found' };
  if (device === undefined || (device.id ?? id) !== id) return [missing];
  return device.id === undefined ? [...decide(device), missing] : decide(device);
}

/** Whether a credential may be taken for live, and whether it may be taken for dead. */
function judge(
  device: DeviceFacts | undefined,
  credential: string,
  moment: Moment,
): { live: boolean; dead: boolean } {
  if (!device) return { live: false, dead: true };
  if (device.current === credential) return { live: true, dead: false };
  if (device.previous !== credential) return { live: false, dead: true };
  return { live: on(device.previousUntil, moment), dead: over(device.previousUntil, moment) };
}

function authenticate(state: LifeState, credential: string, at: Circumstances): Outcome[] {
  const { device } = state;
  const { live, dead } = judge(device, credential, at.moment);
  const outcomes: Outcome[] = dead ? [{ state, refused: 'device_unknown' }] : [];
  if (!live || !device) return outcomes;
  if (device.revoked) return [...outcomes, { state, refused: 'device_revoked' }];
  const kills = Object.entries(state.kills).filter(
    ([name]) => name === `user/${at.user}` || name === `device/${device.id ?? name.slice(7)}`,
  );
  if (kills.some(([, { expires }]) => !expires || on(expires, at.moment))) {
    outcomes.push({ state, refused: 'device_killed' });
  }
  const surely = device.id === undefined ? [] : kills;
  if (surely.some(([, { expires }]) => !expires || !over(expires, at.moment))) return outcomes;
  const used = device.unconfirmed ? { ...state, device: { ...device, unconfirmed: false } } : state;
  return [...outcomes, { state: used }];
}

function rotate(
  state: LifeState,
  asked: Asked & { kind: 'rotate' },
  before: Remembered | 'mismatch' | undefined,
  at: Circumstances,
): Outcome[] {
  const { device } = state;
  const own = asked.credential;
  if (own === undefined) {
    return withDevice(state, asked.id, (found) => rotateDevice(state, found, asked, before, at));
  }
  const { live, dead } = judge(device, own, at.moment);
  const outcomes: Outcome[] = dead ? [{ state, refused: 'device_unknown' }] : [];
  if (!live || !device) return outcomes;
  if (device.id !== asked.id && !device.revoked) {
    outcomes.push({ state, refused: 'not_own_device' });
  }
  if ((device.id ?? asked.id) !== asked.id && !device.revoked) return outcomes;
  return [...outcomes, ...rotateDevice(state, device, asked, before, at)];
}

function rotateDevice(
  state: LifeState,
  device: DeviceFacts,
  asked: Asked & { kind: 'rotate' },
  before: Remembered | 'mismatch' | undefined,
  { moment, secret }: Circumstances,
): Outcome[] {
  const own = asked.credential;
  if (device.revoked) return [{ state, refused: 'device_revoked' }];
  if (before === 'mismatch') return [{ state, refused: 'idempotency_mismatch' }];
  if (before && before.credential !== device.current) {
    return [{ state, refused: 'replay_superseded' }];
  }
  if (!before && own !== undefined && own !== device.current) {
    return [{ state, refused: 'rotation_refused' }];
  }
  const { previous: _, ...rest } = device;
  const renewed = { ...rest, current: secret, unconfirmed: false };
  const replaced: DeviceFacts = before
    ? { ...device, ...renewed }
    : asked.overlapSeconds === 0
      ? { ...renewed, previousUntil: { lowMs: 0, highMs: 0 } }
      : {
          ...renewed,
          previous: device.current,
          previousUntil: after(moment, asked.overlapSeconds),
        };
  const next = remember({ ...state, device: replaced }, asked, { credential: secret });
  return [{ state: next }];
}

function revoke(
  state: LifeState,
  asked: Asked & { kind: 'revoke' },
  before: Remembered | undefined,
): Outcome[] {
  if (before) return [{ state }];
  return withDevice(state, asked.id, (device) => {
    const revoked = device.revoked ?? { reason: asked.reason };
    return [{ state: remember({ ...state, device: { ...device, revoked } }, asked) }];
  });
}

function kill(
  state: LifeState,
  asked: Asked & { kind: 'kill' },
  before: Remembered | undefined,
  { moment }: Circumstances,
): Outcome[] {
  if (before) return [{ state }];
  const { expiresAtMs, target } = asked;
  if (expiresAtMs === undefined) {
    return [{ state: remember(killed(state, target, {}), asked) }];
  }
  const expires = { lowMs: expiresAtMs, highMs: expiresAtMs };
  const outcomes: Outcome[] = over(expires, moment)
    ? [{ state, refused: 'kill_already_expired' }]
    : [];
  if (!on(expires, moment)) return outcomes;
  return [...outcomes, { state: remember(killed(state, target, { expires }), asked) }];
}

function killed(state: LifeState, target: KillSubject, entry: { expires?: Span }): LifeState {
  return { ...state, kills: { ...state.kills, [killName(target)]: entry } };
}

function lifted(state: LifeState, target: KillSubject): LifeState {
  const kills = Object.entries(state.kills).filter(([name]) => name !== killName(target));
  return { ...state, kills: Object.fromEntries(kills) };
}

function killName({ kind, id }: KillSubject): string {
  return `${kind}/${id}`;
}

function callName(asked: Asked): string | undefined {
  if (!('key' in asked) || asked.key === undefined) return undefined;
  return asked.kind === 'enroll'
    ? `enroll ${asked.token} ${asked.key}`
    : `${asked.kind} ${asked.key}`;
}

/** What makes two calls with one key the same call. */
function bodyOf(asked: Asked): string {
  const { kind: _, ...body } = asked;
  return JSON.stringify('credential' in body ? { ...body, credential: '' } : body);
}

function rememberedCall(state: LifeState, asked: Asked): Remembered | 'mismatch' | undefined {
  const name = callName(asked);
  const found = name === undefined ? undefined : state.calls[name];
  return found && found.body !== bodyOf(asked) ? 'mismatch' : found;
}

function remember(state: LifeState, asked: Asked, more: Partial<Remembered> = {}): LifeState {
  const name = callName(asked);
  if (name === undefined) return state;
  return { ...state, calls: { ...state.calls, [name]: { body: bodyOf(asked), ...more } } };
}

function supersede(state: LifeState, name: string): LifeState {
  const call = state.calls[name];
  if (!call) return state;
  return { ...state, calls: { ...state.calls, [name]: { ...call, superseded: true } } };
}

/**
 * The state as it must be if this answer was given: what nobody knew before is learnt, and nothing
 * that was known may be different. Undefined if the answer does not fit.
 */
export function learn(
  state: LifeState,
  asked: Asked,
  value: AnswerValue,
  user: string,
): LifeState | undefined {
  switch (asked.kind) {
    case 'mint':
      return learnExpiry(state, value.expiresAtMs);
    case 'enroll':
    case 'revoke':
    case 'get':
      return value.device && learnView(state, value.device, user, asked.kind === 'enroll');
    case 'authenticate': {
      const { id, user: allowed } = value.allowed ?? { id: '', user: '' };
      if (allowed !== user || !state.device) return undefined;
      if (state.device.id !== undefined && state.device.id !== id) return undefined;
      return state.device.id === id ? state : { ...state, device: { ...state.device, id } };
    }
    default:
      return state;
  }
}

function learnExpiry(state: LifeState, expiresAtMs = 0): LifeState | undefined {
  const { token } = state;
  if (!token || expiresAtMs < token.expires.lowMs || expiresAtMs > token.expires.highMs) {
    return undefined;
  }
  const expires = { lowMs: expiresAtMs, highMs: expiresAtMs };
  return { ...state, token: { ...token, expires } };
}

/** Learns from a device as it is shown; an enrolment's answer never shows a revocation. */
export function learnView(
  state: LifeState,
  view: DeviceView,
  user: string,
  enrolling = false,
): LifeState | undefined {
  const { device } = state;
  if (!device || view.user !== user || view.name !== device.name) return undefined;
  if ((device.id ?? view.id) !== view.id) return undefined;
  if ((device.enrolledAtMs ?? view.enrolledAtMs) !== view.enrolledAtMs) return undefined;
  const known = { ...device, id: view.id, enrolledAtMs: view.enrolledAtMs };
  if (enrolling) return { ...state, device: known };
  const { revoked } = device;
  if (!revoked) return view.revokedAtMs === undefined ? { ...state, device: known } : undefined;
  const { revokedAtMs: atMs, revokedReason: reason } = view;
  if (atMs === undefined || reason !== revoked.reason) return undefined;
  if ((revoked.atMs ?? atMs) !== atMs) return undefined;
  return { ...state, device: { ...known, revoked: { reason, atMs } } };
}

/** A backup was taken, or the store was set back to the one that was taken last. */
export function turned(state: LifeState, kind: 'backup' | 'restore'): LifeState {
  if (kind === 'backup') {
    const { saved: _, ...now } = state;
    return { ...now, saved: now };
  }
  return state.saved ? { ...state.saved, saved: state.saved } : state;
}
