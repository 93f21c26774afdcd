/**
 * What each write means: pure decisions on the overlay. Every function first finds out whether it
 * may, throwing a `CodedError` if not; then records what it will do, which may throw as well; and
 * only then changes the overlay.
 */
import { CodedError } from '../../runtime/failure.js';
import { uuidV7 } from '../../runtime/random.js';
import { actTime, adminParty, deviceParty, tokenParty } from '../act-kinds.js';
import {
  type Idempotency,
  idempotencyChange,
  idempotencyKvKey,
  superseded,
} from '../idempotency.js';
import { digestOf, mintSecret } from '../secrets.js';
import type {
  Caller,
  ConfirmFirstUse,
  DeviceView,
  DeviceWrites,
  Enroll,
  Enrolled,
  MintedToken,
  MintToken,
  Revoke,
  Rotate,
  Rotated,
  VoidedTokens,
  VoidTokens,
} from './messages.js';
import { packAllowed } from './messages.js';
import type { DevicesOverlay } from './overlay.js';
import type { Device, Revocation } from './state.js';

/** What is stored of an enrolment token, under its digest, until it expires. */
export interface TokenRow {
  readonly user: string;
  /** The user's last void before it was minted: any later one voids it, whatever clocks do. */
  readonly voidedBeforeMs: number;
  readonly expiresAtMs: number;
  /** Set when it was redeemed; by whom it may be asked for again. */
  readonly spent?: { readonly deviceId: string; readonly deviceKey?: string };
  /** The idempotent call that minted it, which must not mint another once it is spent. */
  readonly mintedBy?: { readonly key: string; readonly bodyHmac: string };
  /**
   * Ref of the evidence of its minting, by which all evidence knows the token. Absent from those
   * that were minted before there was evidence.
   */
  readonly mintedIn?: string;
}

/** What an idempotency row keeps of a call that minted a secret. */
interface MintedBefore {
  readonly tokenDigest: string;
  readonly row: TokenRow;
}

interface CredentialBefore {
  readonly deviceId: string;
  readonly digest: string;
}

/** The KV key of a token's row, by the digest of the token: the token itself is nowhere stored. */
export function enrollmentTokenKvKey(tokenDigest: string): string {
  return `enrollment-token/${tokenDigest}`;
}

/** The KV rows that a write's decision reads. */
export function kvKeysOf(kind: string, payload: unknown): string[] {
  const { idempotency } = payload as { idempotency?: Idempotency };
  const keys = idempotency ? [idempotencyKvKey(idempotency)] : [];
  if (kind === 'enroll') keys.push(enrollmentTokenKvKey((payload as Enroll).tokenDigest));
  return keys;
}

/** The decision for each kind of write. Having one is what makes a kind a write. */
export const decideWrite: {
  [Kind in keyof DeviceWrites]: (
    overlay: DevicesOverlay,
    payload: DeviceWrites[Kind]['payload'],
  ) => DeviceWrites[Kind]['answer'];
} = { mintToken, voidTokens, enroll, revoke, rotate, confirmFirstUse };

function mintToken(overlay: DevicesOverlay, input: MintToken): MintedToken {
  const { nowMs } = overlay;
  const before = overlay.values.answered<MintedBefore>(input.idempotency);
  // A token that nobody can enrol with is not handed out as if it were good.
  const isVoid = before && overlay.voidedUpToMs(input.user) > before.row.voidedBeforeMs;
  if (before && (isVoid || before.row.expiresAtMs <= nowMs)) throw superseded();
  const token = mintSecret('enroll', overlay.random);
  const tokenDigest = digestOf(token);
  const row = before ? reissuedRow(overlay, input, before.row) : newTokenRow(overlay, input);
  if (before)
    overlay.values.change({ op: 'delete', key: enrollmentTokenKvKey(before.tokenDigest) });
  putToken(overlay, tokenDigest, row);
  overlay.values.remember(input.idempotency, { tokenDigest, row } satisfies MintedBefore);
  return { token, expiresAtMs: row.expiresAtMs };
}

function newTokenRow(overlay: DevicesOverlay, input: MintToken): TokenRow {
  const { user, ttlSeconds, by, idempotency } = input;
  const expiresAtMs = overlay.nowMs + ttlSeconds * 1000;
  const mintedIn = overlay.evidence.record({
    kind: 'enrollment-token.minted',
    by: adminParty(by),
    data: { user, expiresAt: actTime(expiresAtMs) },
  });
  const mintedBy = idempotency && {
    key: idempotencyKvKey(idempotency),
    bodyHmac: idempotency.bodyHmac,
  };
  return {
    user,
    voidedBeforeMs: overlay.voidedUpToMs(user),
    expiresAtMs,
    ...(mintedBy ? { mintedBy } : {}),
    mintedIn,
  };
}

/** The row that was, for another token: nothing of it changes. */
function reissuedRow(overlay: DevicesOverlay, { by }: MintToken, row: TokenRow): TokenRow {
  const { user, expiresAtMs, mintedIn = null } = row;
  overlay.evidence.record({
    kind: 'enrollment-token.reissued',
    by: adminParty(by),
    data: { user, expiresAt: actTime(expiresAtMs), mintedIn },
  });
  return row;
}

function putToken(overlay: DevicesOverlay, tokenDigest: string, row: TokenRow): void {
  const key = enrollmentTokenKvKey(tokenDigest);
  const value = JSON.stringify(row);
  overlay.values.change({ op: 'put', key, value, expiresAtMs: row.expiresAtMs });
}

function voidTokens(overlay: DevicesOverlay, input: VoidTokens): VoidedTokens {
  const before = overlay.values.answered<VoidedTokens>(input.idempotency);
  if (before) return before;
  // Every void moves the mark, also one after the store's clock was set back.
  const voidedUpToMs = Math.max(overlay.nowMs, overlay.voidedUpToMs(input.user) + 1);
  overlay.evidence.record({
    kind: 'enrollment-tokens.voided',
    by: adminParty(input.by),
    data: { user: input.user, voidedUpTo: actTime(voidedUpToMs) },
  });
  overlay.voidTokens(input.user, voidedUpToMs);
  overlay.values.remember(input.idempotency, { voidedUpToMs });
  return { voidedUpToMs };
}

function enroll(overlay: DevicesOverlay, input: Enroll): Enrolled {
  const before = overlay.values.answered<CredentialBefore>(input.idempotency);
  const row = tokenRow(overlay, input.tokenDigest);
  if (row.spent) {
    const sameKey = row.spent.deviceKey !== undefined && row.spent.deviceKey === input.deviceKey;
    const sameCall = before !== undefined && before.deviceId === row.spent.deviceId;
    if (!sameKey && !sameCall) throw tokenInvalid();
    return enrollAgain(overlay, input, row, row.spent.deviceId);
  }
  const credential = mintSecret('device', overlay.random);
  const device = newDevice(overlay, input, row, digestOf(credential));
  overlay.putDevice(device);
  const spent = {
    deviceId: device.id,
    ...(input.deviceKey === undefined ? {} : { deviceKey: input.deviceKey }),
  };
  putToken(overlay, input.tokenDigest, { ...row, spent });
  if (row.mintedBy) {
    const { key, bodyHmac } = row.mintedBy;
    overlay.values.change(idempotencyChange(key, { bodyHmac, superseded: true }, overlay.nowMs));
  }
  rememberCredential(overlay, input.idempotency, device);
  return { device: viewOf(device, undefined), credential };
}

function newDevice(
  overlay: DevicesOverlay,
  input: Enroll,
  { user, mintedIn }: TokenRow,
  digest: string,
): Device {
  const { name, platform, deviceKey = null } = input;
  const id = `dev_${uuidV7(overlay.random, overlay.nowMs)}`;
  overlay.evidence.record({
    kind: 'device.enrolled',
    by: tokenParty(mintedIn),
    data: { device: id, user, name, platform, deviceKey },
  });
  return {
    ordinal: overlay.nextOrdinal(),
    id,
    user,
    name: overlay.evidence.mask('name', name),
    platform: overlay.evidence.mask('platform', platform),
    enrolledAtMs: overlay.nowMs,
    digest,
    previousDigest: undefined,
    previousUntilMs: 0,
    unconfirmed: input.deviceKey !== undefined || input.idempotency !== undefined,
  };
}

/** The answer to the first redemption was lost: the same device, with a rotated credential. */
function enrollAgain(
  overlay: DevicesOverlay,
  input: Enroll,
  { mintedIn }: TokenRow,
  deviceId: string,
): Enrolled {
  const device = overlay.device(deviceId);
  if (!device?.unconfirmed || overlay.revocation(deviceId)) throw tokenInvalid();
  overlay.evidence.record({
    kind: 'device.enrolled-again',
    by: tokenParty(mintedIn),
    data: { device: device.id, user: device.user },
  });
  const credential = mintSecret('device', overlay.random);
  const renewed: Device = { ...device, digest: digestOf(credential) };
  overlay.putDevice(renewed);
  rememberCredential(overlay, input.idempotency, renewed);
  return { device: viewOf(renewed, undefined), credential };
}

/** A live token's row. Expiry is the store's to judge; a void is ours. */
function tokenRow(overlay: DevicesOverlay, tokenDigest: string): TokenRow {
  const entry = overlay.values.get(enrollmentTokenKvKey(tokenDigest));
  if (!entry) throw tokenInvalid();
  const row = JSON.parse(entry.value) as TokenRow;
  if (!isTokenLive(row, overlay.voidedUpToMs(row.user), overlay.nowMs)) throw tokenInvalid();
  return row;
}

/** Neither expired nor void; `voidedUpToMs` is the user's last void, or 0. */
export function isTokenLive(row: TokenRow, voidedUpToMs: number, nowMs: number): boolean {
  return row.expiresAtMs > nowMs && voidedUpToMs <= row.voidedBeforeMs;
}

function tokenInvalid(): CodedError {
  return new CodedError(
    'enrollment_token_invalid',
    'The token is unknown, spent, void or expired.',
  );
}

function revoke(overlay: DevicesOverlay, input: Revoke): DeviceView {
  const before = overlay.values.answered<DeviceView>(input.idempotency);
  if (before) return before;
  const device = knownDevice(overlay, input.id);
  const revocation = overlay.revocation(input.id) ?? newRevocation(overlay, input, device);
  const view = viewOf(device, revocation);
  overlay.values.remember(input.idempotency, view);
  return view;
}

function newRevocation(overlay: DevicesOverlay, input: Revoke, device: Device): Revocation {
  const { id, reason, by } = input;
  overlay.evidence.record({
    kind: 'device.revoked',
    by: adminParty(by),
    data: { device: id, user: device.user, reason },
  });
  const masked = overlay.evidence.mask('reason', reason);
  const revocation: Revocation = { id, reason: masked, by, atMs: overlay.nowMs };
  overlay.revoke(revocation);
  return revocation;
}

function rotate(overlay: DevicesOverlay, input: Rotate): Rotated {
  const device = rotatedDevice(overlay, input.caller, input.id);
  const before = overlay.values.answered<CredentialBefore>(input.idempotency);
  if (before && before.digest !== device.digest) throw superseded();
  if (!before && !isCurrent(input.caller, device)) {
    throw new CodedError('rotation_refused', 'An old credential cannot start another rotation.');
  }
  const credential = mintSecret('device', overlay.random);
  const digest = digestOf(credential);
  const replaced = before ? {} : overlapOf(device.digest, input.overlapSeconds, overlay.nowMs);
  const rotated: Device = { ...device, ...replaced, digest, unconfirmed: false };
  recordRotation(overlay, input.caller, rotated, before !== undefined);
  overlay.putDevice(rotated);
  rememberCredential(overlay, input.idempotency, rotated);
  return { credential };
}

function recordRotation(
  overlay: DevicesOverlay,
  caller: Caller,
  rotated: Device,
  isAgain: boolean,
): void {
  const { id: device, user, previousDigest, previousUntilMs } = rotated;
  const by = caller.kind === 'admin' ? adminParty(caller.name) : deviceParty(device);
  if (isAgain) {
    overlay.evidence.record({ kind: 'device.reissued', by, data: { device, user } });
    return;
  }
  const oldWorksUntil = previousDigest === undefined ? null : actTime(previousUntilMs);
  overlay.evidence.record({
    kind: 'device.rotated',
    by,
    data: { device, user, oldWorksUntil },
  });
}

function overlapOf(
  digest: string,
  overlapSeconds: number,
  nowMs: number,
): Pick<Device, 'previousDigest' | 'previousUntilMs'> {
  if (overlapSeconds === 0) return { previousDigest: undefined, previousUntilMs: 0 };
  return { previousDigest: digest, previousUntilMs: nowMs + overlapSeconds * 1000 };
}

function rotatedDevice(overlay: DevicesOverlay, caller: Caller, id: string): Device {
  if (caller.kind === 'device') {
    const own = overlay.deviceByCredential(caller.credentialDigest);
    if (!own) throw new CodedError('device_unknown', 'No device has this credential.');
    if (overlay.revocation(own.id)) throw revoked();
    if (own.id !== id) throw new CodedError('not_own_device', 'A device may rotate only itself.');
    return own;
  }
  const device = knownDevice(overlay, id);
  if (overlay.revocation(id)) throw revoked();
  return device;
}

function isCurrent(caller: Caller, device: Device): boolean {
  return caller.kind === 'admin' || caller.credentialDigest === device.digest;
}

function confirmFirstUse(overlay: DevicesOverlay, input: ConfirmFirstUse): string {
  const device = overlay.deviceByCredential(input.credentialDigest);
  if (!device) throw new CodedError('device_unknown', 'No device has this credential.');
  if (overlay.revocation(device.id)) throw revoked();
  // Asked again under the lock: the kill may be younger than the read that sent this here.
  if (overlay.isKilled(device)) {
    throw new CodedError('device_killed', 'The device or its user is on the kill list.');
  }
  if (device.unconfirmed) overlay.putDevice({ ...device, unconfirmed: false });
  return packAllowed(device.id, device.user);
}

function knownDevice(overlay: DevicesOverlay, id: string): Device {
  const device = overlay.device(id);
  if (!device) throw new CodedError('device_not_found', 'There is no device with this id.');
  return device;
}

function revoked(): CodedError {
  return new CodedError('device_revoked', 'The device was revoked.');
}

function rememberCredential(
  overlay: DevicesOverlay,
  idempotency: Idempotency | undefined,
  device: Device,
): void {
  overlay.values.remember(idempotency, {
    deviceId: device.id,
    digest: device.digest,
  } satisfies CredentialBefore);
}

/** A device as callers see it. */
export function viewOf(device: Device, revocation: Revocation | undefined): DeviceView {
  const { id, user, name, platform, enrolledAtMs } = device;
  return {
    id,
    user,
    name,
    platform,
    enrolledAtMs,
    ...(revocation ? { revokedAtMs: revocation.atMs, revokedReason: revocation.reason } : {}),
  };
}
