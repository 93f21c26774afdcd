/**
 * What the gateways actor knows: records as they are stored, and the pure transitions they cause.
 * A removal has a key of its own and is sticky: no record of its gateway can undo it.
 */
import { decodeEnvelope, encodeEnvelope, type Format } from '../../storage/envelope.js';
import type { Append, StoredRecord } from '../../storage/store.js';
import { StoreError } from '../../storage/store-error.js';
import { applyKillRecord, KILL_LIST_STREAM, KillListState } from '../kill-list/state.js';

/** The stream that this actor appends to. */
export const GATEWAYS_STREAM = 'gateways';

/** A gateway as it is stored. */
export interface Gateway {
  readonly id: string;
  readonly name: string;
  readonly createdAtMs: number;
  /** When its token was replaced last. */
  readonly rotatedAtMs: number | undefined;
  /** Digest of the token that works. */
  readonly digest: string;
  /** Digest of the one before, which works until `previousUntilMs` on the store's clock. */
  readonly previousDigest: string | undefined;
  readonly previousUntilMs: number;
}

/** Since when a gateway is shut out, and by which admin. */
export interface Removal {
  readonly id: string;
  readonly atMs: number;
  readonly by: string;
}

/** Everything that the stream can hold, decoded. */
export type GatewaysRecord =
  | { readonly type: 'gateway'; readonly gateway: Gateway }
  | { readonly type: 'removal'; readonly removal: Removal };

/** The whole view. `applyGatewaysRecord` alone changes it, but for what is to be told. */
export class GatewaysState {
  /** Those that are not removed. */
  readonly byId = new Map<string, Gateway>();
  /** Current and previous tokens of those. */
  readonly byDigest = new Map<string, Gateway>();
  readonly removals = new Map<string, Removal>();
  /** Followed for its version, which acknowledgements are compared with. */
  readonly kills = new KillListState();
  /** Tokens that ended since front threads were last told. */
  untold: string[] = [];
  /** Tokens in their overlap, with their end, until that is told. */
  readonly ending = new Map<string, number>();
  /** Whether front threads were told all live tokens since the start. */
  isAnnounced = false;
}

/** The transition: what one record does to the state. */
export function applyGatewaysRecord(state: GatewaysState, stored: StoredRecord): void {
  if (stored.stream === KILL_LIST_STREAM) {
    applyKillRecord(state.kills, stored);
    return;
  }
  const record = decodeRecord(stored.body);
  if (record.type === 'removal') {
    const { removal } = record;
    if (!state.removals.has(removal.id)) state.removals.set(removal.id, removal);
    replace(state, removal.id, undefined);
  } else if (!state.removals.has(record.gateway.id)) {
    replace(state, record.gateway.id, record.gateway);
  }
}

function replace(state: GatewaysState, id: string, gateway: Gateway | undefined): void {
  const before = state.byId.get(id);
  for (const digest of before ? digestsOf(before) : []) {
    state.byDigest.delete(digest);
    const isTold = digest === before?.previousDigest && !state.ending.has(digest);
    state.ending.delete(digest);
    if (!isTold && !(gateway && digestsOf(gateway).includes(digest))) state.untold.push(digest);
  }
  if (!gateway) {
    state.byId.delete(id);
    return;
  }
  state.byId.set(id, gateway);
  for (const digest of digestsOf(gateway)) state.byDigest.set(digest, gateway);
  if (gateway.previousDigest !== undefined) {
    state.ending.set(gateway.previousDigest, gateway.previousUntilMs);
  }
}

function digestsOf({ digest, previousDigest }: Gateway): readonly string[] {
  return previousDigest === undefined ? [digest] : [digest, previousDigest];
}

/** Whether this digest lets its gateway in at that time of the store's clock. */
export function isLiveToken(gateway: Gateway, digest: string, storeTimeMs: number): boolean {
  return (
    gateway.digest === digest ||
    (gateway.previousDigest === digest && storeTimeMs < gateway.previousUntilMs)
  );
}

/** The record as it is stored, in the format that the store names. */
export function toGatewayAppend(record: GatewaysRecord, format: Format): Append {
  const { key, names, fields } = layout(record);
  const data =
    format === 2
      ? fields
      : Object.fromEntries(names.map((name, index) => [name, fields[index] ?? null]));
  const body = encodeEnvelope({ format, type: record.type, data });
  return { stream: GATEWAYS_STREAM, key, body };
}

const GATEWAY_FIELDS = [
  'id',
  'name',
  'createdAtMs',
  'rotatedAtMs',
  'digest',
  'previousDigest',
  'previousUntilMs',
];
const REMOVAL_FIELDS = ['id', 'atMs', 'by'];

function layout(record: GatewaysRecord): { key: string; names: string[]; fields: unknown[] } {
  if (record.type === 'removal') {
    const { id, atMs, by } = record.removal;
    return { key: `removed/${id}`, names: REMOVAL_FIELDS, fields: [id, atMs, by] };
  }
  const { id, name, createdAtMs, rotatedAtMs, digest, previousDigest, previousUntilMs } =
    record.gateway;
  return {
    key: `gateway/${id}`,
    names: GATEWAY_FIELDS,
    fields: [
      id,
      name,
      createdAtMs,
      rotatedAtMs ?? null,
      digest,
      previousDigest ?? null,
      previousUntilMs,
    ],
  };
}

function decodeRecord(body: string): GatewaysRecord {
  const { format, type, data } = decodeEnvelope(body);
  const names =
    type === 'gateway' ? GATEWAY_FIELDS : type === 'removal' ? REMOVAL_FIELDS : undefined;
  if (!names) {
    throw new StoreError('incompatible', 'The gateways stream holds a record of an unknown type.');
  }
  const fields =
    format === 2
      ? (data as unknown[])
      : names.map((name) => (data as Record<string, unknown>)[name]);
  if (type === 'removal') {
    const [id, atMs, by] = fields as [string, number, string];
    return { type, removal: { id, atMs, by } };
  }
  return { type: 'gateway', gateway: gatewayOf(fields) };
}

function gatewayOf(fields: readonly unknown[]): Gateway {
  const [id, name, createdAtMs, rotatedAtMs, digest, previousDigest, previousUntilMs] = fields as [
    string,
    string,
    number,
    number | null,
    string,
    string | null,
    number,
  ];
  if (typeof id !== 'string' || typeof digest !== 'string') {
    throw new StoreError('incompatible', 'A gateway record has a shape that is not known.');
  }
  return {
    id,
    name,
    createdAtMs,
    rotatedAtMs: rotatedAtMs ?? undefined,
    digest,
    previousDigest: previousDigest ?? undefined,
    previousUntilMs,
  };
}
