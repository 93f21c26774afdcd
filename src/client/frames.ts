/** The frames of `halo.kill-list.v1` as a client reads them. Pure; what is none is undefined. */

/** What is killed: `device`, `user`, `agent`, `model`, … and its id. */
export interface KillTarget {
  readonly kind: string;
  readonly id: string;
}

/** One killed thing. Times are RFC 3339 in UTC. */
export interface KillEntry extends KillTarget {
  readonly reason: string;
  readonly by: string;
  readonly at: string;
  /** When it is lifted by itself; absent: never. */
  readonly expiresAt?: string;
}

/** One page of the whole list; the last has `more: false`. */
export interface SnapshotFrame {
  readonly type: 'snapshot';
  readonly epoch: string;
  readonly version: number;
  readonly entries: readonly KillEntry[];
  readonly more: boolean;
}

/** The net change after `from` up to `version`. */
export interface DeltaFrame {
  readonly type: 'delta';
  readonly from: number;
  readonly version: number;
  readonly set: readonly KillEntry[];
  readonly lift: readonly KillTarget[];
}

/** Where the list is, and when the server knew it. */
export interface HeartbeatFrame {
  readonly type: 'heartbeat';
  readonly version: number;
  readonly asOf: string;
}

/** Everything that a server sends. */
export type Frame = SnapshotFrame | DeltaFrame | HeartbeatFrame;

/** The frame in a text, or undefined. Fields that are not known are no error: servers may add. */
export function parseFrame(text: string): Frame | undefined {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    return undefined;
  }
  if (!isRecord(value) || !isVersion(value['version'])) return undefined;
  switch (value['type']) {
    case 'snapshot':
      return isSnapshot(value) ? value : undefined;
    case 'delta':
      return isDelta(value) ? value : undefined;
    case 'heartbeat':
      return isHeartbeat(value) ? value : undefined;
    default:
      return undefined;
  }
}

type Fields = Readonly<Record<string, unknown>>;

function isRecord(value: unknown): value is Fields {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

function isVersion(value: unknown): value is number {
  return Number.isSafeInteger(value) && (value as number) >= 0;
}

function isSnapshot(value: Fields): value is Fields & SnapshotFrame {
  const { epoch, entries, more } = value;
  if (typeof epoch !== 'string' || typeof more !== 'boolean') return false;
  return Array.isArray(entries) && entries.every(isEntry);
}

function isDelta(value: Fields): value is Fields & DeltaFrame {
  const { from, set, lift } = value;
  if (!isVersion(from) || !Array.isArray(set) || !Array.isArray(lift)) return false;
  return set.every(isEntry) && lift.every(isTarget);
}

function isHeartbeat(value: Fields): value is Fields & HeartbeatFrame {
  return isTime(value['asOf']);
}

function isTarget(value: unknown): value is KillTarget {
  return isRecord(value) && typeof value['kind'] === 'string' && typeof value['id'] === 'string';
}

function isEntry(value: unknown): value is KillEntry {
  if (!isTarget(value)) return false;
  const { expiresAt } = value as KillTarget & { expiresAt?: unknown };
  return expiresAt === undefined || isTime(expiresAt);
}

function isTime(value: unknown): boolean {
  return typeof value === 'string' && !Number.isNaN(Date.parse(value));
}
