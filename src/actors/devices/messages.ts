/** What the devices actor can be asked, as data. Kinds are the keys of these two maps. */
import type { Idempotency } from '../idempotency.js';

export type { Idempotency };

/** Who is behind a call that devices and admins may both make. */
export type Caller =
  | { readonly kind: 'admin'; readonly name: string }
  | { readonly kind: 'device'; readonly credentialDigest: string };

/** Mints a token with which one device may enrol for `user` within `ttlSeconds`. */
export interface MintToken {
  readonly user: string;
  readonly ttlSeconds: number;
  readonly by: string;
  readonly idempotency?: Idempotency;
}

/** The token in the clear, here and never again; it expires on the store's clock. */
export interface MintedToken {
  readonly token: string;
  readonly expiresAtMs: number;
}

/** Voids the tokens of a user that were minted up to now; the user's devices stay. */
export interface VoidTokens {
  readonly user: string;
  readonly by: string;
  readonly idempotency?: Idempotency;
}

/** Every token of the user minted at or before this time is void. */
export interface VoidedTokens {
  readonly voidedUpToMs: number;
}

/**
 * Redeems a token for a device. The same token again gets the same device, as long as it comes with
 * the same `deviceKey` or `idempotency` and the device has not authenticated; else the code is
 * `enrollment_token_invalid`.
 */
export interface Enroll {
  /** SHA-256 of the token, as `digestOf` makes it. */
  readonly tokenDigest: string;
  readonly name: string;
  readonly platform: string;
  /** base64url of the raw Ed25519 public key; the proof was verified before this is sent. */
  readonly deviceKey?: string;
  readonly idempotency?: Idempotency;
}

/** The device and its credential in the clear, here and never again. */
export interface Enrolled {
  readonly device: DeviceView;
  readonly credential: string;
}

/** Shuts a device out for good. Revoking it again changes nothing, its reason included. */
export interface Revoke {
  readonly id: string;
  readonly reason: string;
  readonly by: string;
  readonly idempotency?: Idempotency;
}

/**
 * Gives a device another credential; the old one works for `overlapSeconds` more. Codes:
 * `rotation_refused` for an old credential, `not_own_device`, `device_revoked`.
 */
export interface Rotate {
  readonly id: string;
  readonly overlapSeconds: number;
  readonly caller: Caller;
  readonly idempotency?: Idempotency;
}

/**
 * Whether a device may rotate the device with this id. Codes: `device_unknown`, `device_revoked`,
 * `not_own_device`.
 */
export interface MayRotate {
  readonly credentialDigest: string;
  readonly id: string;
}

/** The new credential in the clear, here and never again. */
export interface Rotated {
  readonly credential: string;
}

/** The first authentication of a device whose enrolment could still be asked for again. */
export interface ConfirmFirstUse {
  readonly credentialDigest: string;
}

/** One page of the devices, or of one user's, in the order of their enrolment. */
export interface ListDevices {
  readonly limit: number;
  /** Ordinal of the last device of the page before; 0 for the first page. */
  readonly after: number;
  readonly user?: string;
}

/** A page, and the history whose ordinals it names: a cursor is good only within its epoch. */
export interface DevicePage {
  readonly items: readonly DeviceView[];
  /** Ordinal to go on after; absent on the last page. */
  readonly next?: number;
  readonly epoch: string;
}

/** One device; `device_not_found` if there is none with this id. */
export interface GetDevice {
  readonly id: string;
}

/** A device as callers see it: without digests. Times are in ms since the Unix epoch. */
export interface DeviceView {
  readonly id: string;
  readonly user: string;
  readonly name: string;
  readonly platform: string;
  readonly enrolledAtMs: number;
  readonly revokedAtMs?: number;
  readonly revokedReason?: string;
  /** Exact to a minute. */
  readonly lastSeenAtMs?: number;
}

/** Reads: the payload and the answer of each kind. */
export interface DeviceReads {
  /** The credential's digest in; `AllowedDevice` packed by `packAllowed` out. */
  authenticate: { payload: string; answer: string };
  /** To be asked before `enroll`, and before `rotate` for a device; see their client. */
  mayEnroll: { payload: Enroll; answer: true };
  mayRotate: { payload: MayRotate; answer: true };
  list: { payload: ListDevices; answer: DevicePage };
  get: { payload: GetDevice; answer: DeviceView };
}

/** Writes: the payload and the answer of each kind. */
export interface DeviceWrites {
  mintToken: { payload: MintToken; answer: MintedToken };
  voidTokens: { payload: VoidTokens; answer: VoidedTokens };
  enroll: { payload: Enroll; answer: Enrolled };
  revoke: { payload: Revoke; answer: DeviceView };
  rotate: { payload: Rotate; answer: Rotated };
  confirmFirstUse: { payload: ConfirmFirstUse; answer: string };
}

/** Codes that the devices actor answers with, beside those of the runtime and the store. */
export const DEVICE_CODES = [
  'device_unknown',
  'device_revoked',
  'device_killed',
  'device_not_found',
  'enrollment_token_invalid',
  'rotation_refused',
  'not_own_device',
  'idempotency_mismatch',
  'idempotency_in_progress',
  'replay_superseded',
] as const;
/** The same codes as a type, so that the HTTP catalogue cannot leave one of them out. */
export type DeviceCode = (typeof DEVICE_CODES)[number];

/** Length of `dev_` and a UUID: where a packed answer splits. */
const DEVICE_ID_LENGTH = 40;

/** The answer to `authenticate` as one string, since one string is the cheapest thing to send. */
export function packAllowed(id: string, user: string): string {
  return id + user;
}

/** The device's id in a packed answer. */
export function allowedId(packed: string): string {
  return packed.slice(0, DEVICE_ID_LENGTH);
}

/** The device's user in a packed answer. */
export function allowedUser(packed: string): string {
  return packed.slice(DEVICE_ID_LENGTH);
}
