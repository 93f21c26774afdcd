/** `halo devices` and `halo enroll-token`. */

import { type Column, factsText, tableText } from '../console.js';
import { type Api, isRecord, textOf, unexpected } from './api.js';
import type { Shown } from './command.js';

/** A device as the API describes it (API.md "Devices"). */
interface Device {
  readonly id: string;
  readonly user: string;
  readonly name: string;
  readonly platform: string;
  readonly enrolledAt: string;
  readonly revokedAt: string | undefined;
  readonly lastSeenAt: string | undefined;
}

/** The most that one page of the API holds. */
const PAGE_LIMIT_MAX = 500;

const COLUMNS: ReadonlyArray<Column<Device>> = [
  { heading: 'ID', value: (device) => device.id },
  { heading: 'USER', value: (device) => device.user },
  { heading: 'NAME', value: (device) => device.name },
  { heading: 'PLATFORM', value: (device) => device.platform },
  { heading: 'ENROLLED', value: (device) => minute(device.enrolledAt) },
  { heading: 'LAST SEEN', value: (device) => minute(device.lastSeenAt) },
  { heading: 'STATE', value: (device) => (device.revokedAt === undefined ? 'active' : 'revoked') },
];

/** Up to `limit` devices, of one user or of all, over as many pages as that takes. */
export async function listDevices(
  api: Api,
  query: { readonly limit: number; readonly user?: string },
): Promise<Shown> {
  const items: unknown[] = [];
  let cursor: string | undefined;
  do {
    const parameters = new URLSearchParams({
      limit: String(Math.min(PAGE_LIMIT_MAX, query.limit - items.length)),
      ...(query.user === undefined ? {} : { user: query.user }),
      ...(cursor === undefined ? {} : { cursor }),
    });
    const page = await api.get(`/api/v1/devices?${parameters.toString()}`);
    if (!isRecord(page) || !Array.isArray(page['items'])) throw unexpected();
    items.push(...(page['items'] as unknown[]));
    cursor = textOf(page['next']);
  } while (cursor !== undefined && items.length < query.limit);
  const rest = cursor === undefined ? '' : `There are more: --limit ${query.limit * 10}\n`;
  const text = items.length === 0 ? 'No devices.\n' : tableText(COLUMNS, items.map(readDevice));
  return { value: { items, more: cursor !== undefined }, text: text + rest };
}

/** One device. */
export async function showDevice(api: Api, id: string): Promise<Shown> {
  return shown(await api.get(devicePath(id)));
}

/** Revokes a device for good; again changes nothing. */
export async function revokeDevice(api: Api, id: string, reason: string): Promise<Shown> {
  return shown(await api.post(`${devicePath(id)}/revoke`, { reason }));
}

/** A new credential for a device; the old one works for `overlapSeconds` longer. */
export async function rotateDevice(
  api: Api,
  id: string,
  overlapSeconds: number | undefined,
): Promise<Shown> {
  const body = overlapSeconds === undefined ? {} : { overlapSeconds };
  const value = await api.post(`${devicePath(id)}/rotate`, body);
  const credential = isRecord(value) ? textOf(value['credential']) : undefined;
  if (credential === undefined) throw unexpected();
  return { value, text: `${credential}\n` };
}

/** A token that lets one device of that user in, once. */
export async function mintEnrollmentToken(
  api: Api,
  user: string,
  ttlSeconds: number | undefined,
): Promise<Shown> {
  const body = ttlSeconds === undefined ? { user } : { user, ttlSeconds };
  const value = await api.post('/api/v1/enrollment-tokens', body);
  const token = isRecord(value) ? textOf(value['token']) : undefined;
  const expiresAt = isRecord(value) ? textOf(value['expiresAt']) : undefined;
  if (token === undefined) throw unexpected();
  return {
    value,
    text: factsText([
      ['token', token],
      ['expires', expiresAt ?? 'unknown'],
    ]),
  };
}

function shown(value: unknown): Shown {
  const device = readDevice(value);
  const reason = isRecord(value) ? textOf(value['revokedReason']) : undefined;
  return {
    value,
    text: factsText([
      ['id', device.id],
      ['user', device.user],
      ['name', device.name],
      ['platform', device.platform],
      ['enrolled', device.enrolledAt],
      ['last seen', device.lastSeenAt ?? 'never'],
      ['revoked', device.revokedAt ?? 'no'],
      ...(reason === undefined ? [] : ([['reason', reason]] as const)),
    ]),
  };
}

function readDevice(value: unknown): Device {
  if (!isRecord(value)) throw unexpected();
  const field = (name: string): string => {
    const text = textOf(value[name]);
    if (text === undefined) throw unexpected();
    return text;
  };
  return {
    id: field('id'),
    user: field('user'),
    name: field('name'),
    platform: field('platform'),
    enrolledAt: field('enrolledAt'),
    revokedAt: textOf(value['revokedAt']),
    lastSeenAt: textOf(value['lastSeenAt']),
  };
}

function devicePath(id: string): string {
  return `/api/v1/devices/${encodeURIComponent(id)}`;
}

/** `2026-10-21 14:03`, from a time of RFC 3339 in UTC. */
export function minute(time: string | undefined): string {
  return time === undefined ? 'never' : time.slice(0, 16).replace('T', ' ');
}
