/**
 * What the devices actor knows: records as they are stored, and the pure transitions they cause.
 * Each record is the full state of its key, so that replaying only the newest of each key ends in
 * the same view as having seen them all. A revocation and a void have keys of their own and are
 * sticky: no later device record can undo them.
 */
import { decodeEnvelope, encodeEnvelope, type Format } from '../../storage/envelope.js';
import type { Append, StoredRecord } from '../../storage/store.js';
import { StoreError } from '../../storage/store-error.js';
import { applyKillRecord, isInForce, KILL_LIST_STREAM, KillListState } from '../kill-list/state.js';

/** The one stream that this actor follows and appends to. */
export const DEVICES_STREAM = 'devices';

/** A device as it is stored. Its revocation is a record of its own, as the file's head says. */
export interface Device {
  /** Counts up from 1 over all devices: the order of lists, the same on every replica. */
  readonly ordinal: number;
  readonly id: string;
  readonly user: string;
  readonly name: string;
  readonly platform: string;
  readonly enrolledAtMs: number;
  /** Digest of the credential that works. */
  readonly digest: string;
  /** Digest of the one before, which works until `previousUntilMs` on the store's clock. */
  readonly previousDigest: string | undefined;
  readonly previousUntilMs: number;
  /** Its enrolment may still be asked for again; ends with the first authentication. */
  readonly unconfirmed: boolean;
}

/** A device in the view, with what this view alone remembers of it; never stored. */
export interface KnownDevice extends Device {
  /** The answer to `authenticate`, made at the first one. */
  packed: string | undefined;
  /** Unix time in seconds of the sighting that was noted last; 0 before the first. */
  notedAtSeconds: number;
}

/** Since when a device is shut out, why, and by which admin. */
export interface Revocation {
  readonly id: string;
  readonly atMs: number;
  readonly reason: string;
  readonly by: string;
}

/** Tokens of the user minted before this void are void; each void has a greater `upToMs`. */
export interface TokenVoid {
  readonly user: string;
  readonly upToMs: number;
}

/** Everything that the stream can hold, decoded. */
export type DevicesRecord =
  | { readonly type: 'device'; readonly device: Device }
  | { readonly type: 'revocation'; readonly revocation: Revocation }
  | { readonly type: 'token-void'; readonly void: TokenVoid };

/**
 * The whole view, indexed for each question that is asked of it. `applyRecord` alone changes it,
 * but for what `KnownDevice` says is this view's own.
 */
export class DevicesState {
  readonly byId = new Map<string, KnownDevice>();
  /** Current and previous credentials. */
  readonly byDigest = new Map<string, KnownDevice>();
  /** Ordinals per user: one number while there is one, which is the usual case. */
  readonly byUser = new Map<string, number | number[]>();
  readonly byOrdinal: (KnownDevice | undefined)[] = [undefined];
  readonly revocations = new Map<string, Revocation>();
  readonly voids = new Map<string, number>();
  /** What is killed: devices and users are refused, the rest concerns gateways. */
  readonly kills = new KillListState();

  get nextOrdinal(): number {
    return this.byOrdinal.length;
  }

  /** The user's ordinals in order. */
  ordinalsOf(user: string): readonly number[] {
    const ordinals = this.byUser.get(user);
    return ordinals === undefined ? [] : typeof ordinals === 'number' ? [ordinals] : ordinals;
  }
}

/** The transition: what one record of the stream does to the state. */
export function applyRecord(state: DevicesState, stored: StoredRecord): void {
  if (stored.stream === KILL_LIST_STREAM) {
    applyKillRecord(state.kills, stored);
    return;
  }
  const record = decodeRecord(stored.body);
  if (record.type === 'device') applyDevice(state, record.device);
  else if (record.type === 'revocation') {
    const { revocation } = record;
    if (!state.revocations.has(revocation.id)) state.revocations.set(revocation.id, revocation);
  } else {
    const { user, upToMs } = record.void;
    state.voids.set(user, Math.max(upToMs, state.voids.get(user) ?? 0));
  }
}

function applyDevice(state: DevicesState, device: KnownDevice): void {
  const before = state.byId.get(device.id);
  if (before) {
    device.notedAtSeconds = before.notedAtSeconds;
    state.byDigest.delete(before.digest);
    if (before.previousDigest !== undefined) state.byDigest.delete(before.previousDigest);
  } else {
    addOrdinal(state, device);
  }
  state.byId.set(device.id, device);
  // Filled up to its place: an array with wide gaps would become a hash table.
  while (state.byOrdinal.length < device.ordinal) state.byOrdinal.push(undefined);
  state.byOrdinal[device.ordinal] = device;
  if (device.previousDigest !== undefined) state.byDigest.set(device.previousDigest, device);
  state.byDigest.set(device.digest, device);
}

function addOrdinal(state: DevicesState, device: Device): void {
  const known = state.byUser.get(device.user);
  if (known === undefined) state.byUser.set(device.user, device.ordinal);
  else if (typeof known === 'number') {
    state.byUser.set(
      device.user,
      [known, device.ordinal].sort((a, b) => a - b),
    );
  } else {
    // Replays bring devices in the order of their last change, so a late one may belong earlier.
    let at = known.length;
    while (at > 0 && (known[at - 1] as number) > device.ordinal) at -= 1;
    known.splice(at, 0, device.ordinal);
  }
}

/** Whether this digest lets its device in now, on the store's clock. */
export function isLiveCredential(device: Device, digest: string, storeTimeMs: number): boolean {
  return (
    device.digest === digest ||
    (device.previousDigest === digest && storeTimeMs < device.previousUntilMs)
  );
}

/** Whether the device or its user is on the kill list at that time of the store's clock. */
export function isKilled(state: DevicesState, device: Device, storeTimeMs: number): boolean {
  const { kills } = state;
  if (kills.entries.size === 0) return false;
  const entries = [kills.find('device', device.id), kills.find('user', device.user)];
  return entries.some((entry) => entry !== undefined && isInForce(entry, storeTimeMs));
}

/**
 * Encodes a record in the format that the store wants written, under the key by which a newer
 * record replaces it.
 */
export function toAppend(record: DevicesRecord, format: Format): Append {
  const { key, fields, names } = layout(record);
  const data =
    format === 2 ? fields : Object.fromEntries(names.map((name, index) => [name, fields[index]]));
  const body = encodeEnvelope({ format, type: record.type, data });
  return { stream: DEVICES_STREAM, key, body };
}

const DEVICE_FIELDS = [
  'ordinal',
  'id',
  'user',
  'name',
  'platform',
  'enrolledAtMs',
  'digest',
  'previousDigest',
  'previousUntilMs',
  'unconfirmed',
];
const REVOCATION_FIELDS = ['id', 'atMs', 'reason', 'by'];
const VOID_FIELDS = ['user', 'upToMs'];

function layout(record: DevicesRecord): { key: string; fields: unknown[]; names: string[] } {
  switch (record.type) {
    case 'device': {
      const d = record.device;
      return {
        key: `device/${d.id}`,
        names: DEVICE_FIELDS,
        fields: [
          d.ordinal,
          d.id,
          d.user,
          d.name,
          d.platform,
          d.enrolledAtMs,
          d.digest,
          d.previousDigest ?? null,
          d.previousUntilMs,
          d.unconfirmed,
        ],
      };
    }
    case 'revocation': {
      const r = record.revocation;
      const fields = [r.id, r.atMs, r.reason, r.by];
      return { key: `revoked/${r.id}`, names: REVOCATION_FIELDS, fields };
    }
    case 'token-void': {
      const { user, upToMs } = record.void;
      return { key: `void/${user}`, names: VOID_FIELDS, fields: [user, upToMs] };
    }
  }
}

type DecodedRecord =
  | { readonly type: 'device'; readonly device: KnownDevice }
  | Exclude<DevicesRecord, { readonly type: 'device' }>;

function decodeRecord(body: string): DecodedRecord {
  const { format, type, data } = decodeEnvelope(body);
  const names =
    type === 'device'
      ? DEVICE_FIELDS
      : type === 'revocation'
        ? REVOCATION_FIELDS
        : type === 'token-void'
          ? VOID_FIELDS
          : undefined;
  if (!names) {
    throw new StoreError('incompatible', 'The devices stream holds a record of an unknown type.');
  }
  const fields =
    format === 2
      ? (data as unknown[])
      : names.map((name) => (data as Record<string, unknown>)[name]);
  if (type === 'device') return { type, device: deviceOf(fields) };
  if (type === 'revocation') {
    const [id, atMs, reason, by] = fields as [string, number, string, string];
    return { type, revocation: { id, atMs, reason, by } };
  }
  const [user, upToMs] = fields as [string, number];
  return { type: 'token-void', void: { user, upToMs } };
}

function deviceOf(fields: readonly unknown[]): KnownDevice {
  // By index, as in `envelope.ts`; the order is that of `DEVICE_FIELDS`.
  const ordinal = fields[0] as number;
  const id = fields[1] as string;
  const digest = fields[6] as string;
  if (!Number.isSafeInteger(ordinal) || typeof id !== 'string' || typeof digest !== 'string') {
    throw new StoreError('incompatible', 'A device record has a shape that is not known.');
  }
  return {
    ordinal,
    id,
    user: fields[2] as string,
    name: fields[3] as string,
    platform: interned(fields[4] as string),
    enrolledAtMs: fields[5] as number,
    digest,
    previousDigest: (fields[7] as string | null) ?? undefined,
    previousUntilMs: fields[8] as number,
    unconfirmed: fields[9] as boolean,
    packed: undefined,
    notedAtSeconds: 0,
  };
}

/** Few platforms, many devices: one string for all of them. Bounded against invented ones. */
const INTERNED_MAX = 256;
const internedPlatforms = new Map<string, string>();
function interned(platform: string): string {
  const known = internedPlatforms.get(platform);
  if (known !== undefined) return known;
  if (internedPlatforms.size < INTERNED_MAX) internedPlatforms.set(platform, platform);
  return platform;
}
