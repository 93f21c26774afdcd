/**
 * What is killed: the stream's records and the pure transitions they cause. Every record carries
 * the version that it makes, decided under the stream's lock, so that all replicas count alike.
 */
import { decodeEnvelope, encodeEnvelope, type Format } from '../../storage/envelope.js';
import type { Append, StoredRecord } from '../../storage/store.js';
import { StoreError } from '../../storage/store-error.js';
import type { KillEntry, KillTarget } from './messages.js';

/** The stream of kills and lifts. Its records have no key: the whole history is kept. */
export const KILL_LIST_STREAM = 'kill-list';

/** One change of the list; `version` is what the list is at afterwards. */
export type KillListRecord =
  | { readonly type: 'kill'; readonly version: number; readonly entry: KillEntry }
  | {
      readonly type: 'lift';
      readonly version: number;
      readonly target: KillTarget;
      /** Name of the admin token, or '' for an expiry. */
      readonly by: string;
      readonly atMs: number;
    };

/** The list as one view knows it. Mutable, by `applyKillRecord` alone. */
export class KillListState {
  version = 0;
  /** Changes since the actor last told its subscribers; a replay is not news. */
  readonly untold: KillListRecord[] = [];
  readonly entries = new Map<string, KillEntry>();

  find(kind: string, id: string): KillEntry | undefined {
    return this.entries.get(nameOf({ kind, id }));
  }
}

/** Whether the entry is in force at that time of the store's clock. */
export function isInForce(entry: KillEntry, storeTimeMs: number): boolean {
  return entry.expiresAtMs === undefined || storeTimeMs < entry.expiresAtMs;
}

/** The entry's place in maps; a kind is a word and cannot contain the slash. */
export function nameOf({ kind, id }: KillTarget): string {
  return `${kind}/${id}`;
}

/** The transition. Throws `StoreError` `incompatible` for a record that is not known. */
export function applyKillRecord(state: KillListState, stored: StoredRecord): KillListRecord {
  const record = decodeKillRecord(stored.body);
  state.version = record.version;
  if (record.type === 'kill') state.entries.set(nameOf(record.entry), record.entry);
  else state.entries.delete(nameOf(record.target));
  return record;
}

/** The record as it is stored, in the format that the store names. */
export function toKillAppend(record: KillListRecord, format: Format): Append {
  const [names, fields] = layout(record);
  const data =
    format === 2
      ? fields
      : Object.fromEntries(names.map((name, index) => [name, fields[index] ?? null]));
  const body = encodeEnvelope({ format, type: record.type, data });
  return { stream: KILL_LIST_STREAM, key: null, body };
}

const KILL_FIELDS = ['version', 'kind', 'id', 'reason', 'by', 'atMs', 'expiresAtMs'];
const LIFT_FIELDS = ['version', 'kind', 'id', 'by', 'atMs'];

function layout(record: KillListRecord): [names: string[], fields: unknown[]] {
  if (record.type === 'kill') {
    const { kind, id, reason, by, atMs, expiresAtMs = null } = record.entry;
    return [KILL_FIELDS, [record.version, kind, id, reason, by, atMs, expiresAtMs]];
  }
  const { kind, id } = record.target;
  return [LIFT_FIELDS, [record.version, kind, id, record.by, record.atMs]];
}

function decodeKillRecord(body: string): KillListRecord {
  const { format, type, data } = decodeEnvelope(body);
  const names = type === 'kill' ? KILL_FIELDS : type === 'lift' ? LIFT_FIELDS : undefined;
  if (!names) throw new StoreError('incompatible', 'The kill stream holds an unknown record.');
  const fields =
    format === 2
      ? (data as unknown[])
      : names.map((name) => (data as Record<string, unknown>)[name]);
  if (!Number.isSafeInteger(fields[0])) {
    throw new StoreError('incompatible', 'A kill record has a shape that is not known.');
  }
  if (type === 'lift') {
    const [version, kind, id, by, atMs] = fields as [number, string, string, string, number];
    return { type, version, target: { kind, id }, by, atMs };
  }
  const [version, kind, id, reason, by, atMs, expiresAtMs] = fields as [
    number,
    string,
    string,
    string,
    string,
    number,
    number | null,
  ];
  const expiry = expiresAtMs === null ? {} : { expiresAtMs };
  return { type: 'kill', version, entry: { kind, id, reason, by, atMs, ...expiry } };
}
