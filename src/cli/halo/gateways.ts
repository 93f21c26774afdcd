/** Gateways as the API tells of them (API.md "Kill list"), and what is shown of them. */
import { type Column, factsText, tableText } from '../console.js';
import { type Api, isRecord, textOf, unexpected } from './api.js';
import type { Shown } from './command.js';
import { minute } from './devices.js';

/** A connected gateway and the least that it acknowledged. */
export interface GatewayFacts {
  readonly gateway: string;
  readonly name: string;
  readonly ackVersion: number;
}

interface Gateway {
  readonly id: string;
  readonly name: string;
  readonly createdAt: string;
  readonly connections: number;
  readonly ackVersion: number | undefined;
  readonly ackAt: string | undefined;
}

interface GatewayList<Item> {
  readonly items: readonly Item[];
  readonly epoch: string;
  readonly version: number;
}

const PATH = '/api/v1/gateways';
/** The most that one page of the API holds. */
const PAGE_LIMIT_MAX = 500;

function columns(version: number): ReadonlyArray<Column<Gateway>> {
  return [
    { heading: 'ID', value: ({ id }) => id },
    { heading: 'NAME', value: ({ name }) => name },
    { heading: 'CREATED', value: ({ createdAt }) => minute(createdAt) },
    { heading: 'STREAMS', value: ({ connections }) => String(connections) },
    { heading: 'VERSION', value: ({ ackVersion }) => String(ackVersion ?? '-') },
    { heading: 'STATE', value: (gateway) => stateOf(gateway, version) },
  ];
}

function stateOf({ ackVersion }: Gateway, version: number): string {
  if (ackVersion === undefined) return 'not connected';
  return ackVersion < version ? `behind (newest: ${version})` : 'current';
}

/** All gateways, or those behind, and the version that they should be at. */
export async function listGateways(api: Api, behind: boolean): Promise<Shown> {
  const { value, items } = await allPages(api, behind);
  const { version } = value;
  const none = behind ? `None is behind version ${version}.\n` : 'No gateways.\n';
  return { value, text: items.length === 0 ? none : tableText(columns(version), items) };
}

/** Every page; `value` is as the API would answer it in one, at the version of the last. */
async function allPages(
  api: Api,
  behind: boolean,
): Promise<{ readonly value: GatewayList<unknown>; readonly items: readonly Gateway[] }> {
  const items: unknown[] = [];
  let cursor: string | undefined;
  for (;;) {
    const parameters = new URLSearchParams({
      limit: String(PAGE_LIMIT_MAX),
      ...(behind ? { behind: 'true' } : {}),
      ...(cursor === undefined ? {} : { cursor }),
    });
    const page = await api.get(`${PATH}?${parameters.toString()}`);
    const { items: found, epoch, version } = readPage(page);
    items.push(...found);
    cursor = isRecord(page) ? textOf(page['next']) : undefined;
    if (cursor === undefined) {
      return { value: { items, epoch, version }, items: items.map(readGateway) };
    }
  }
}

/** Those that have a stream open and are below the newest version. */
export async function gatewaysBehind(
  api: Api,
): Promise<{ readonly epoch: string; readonly items: readonly GatewayFacts[] }> {
  const { value, items } = await allPages(api, true);
  const { epoch } = value;
  const behind = items.flatMap(({ id, name, ackVersion }) =>
    ackVersion === undefined ? [] : [{ gateway: id, name, ackVersion }],
  );
  return { epoch, items: behind };
}

/** Makes a gateway; its token is shown this once. */
export async function createGateway(api: Api, name: string): Promise<Shown> {
  const value = await api.post(PATH, { name });
  const [id, token] = isRecord(value) ? [textOf(value['id']), textOf(value['token'])] : [];
  if (id === undefined || token === undefined) throw unexpected();
  return {
    value,
    text: factsText([
      ['id', id],
      ['token', token],
    ]),
  };
}

/** A new token for a gateway; the old one works for `overlapSeconds` longer. */
export async function rotateGateway(
  api: Api,
  id: string,
  overlapSeconds: number | undefined,
): Promise<Shown> {
  const body = overlapSeconds === undefined ? {} : { overlapSeconds };
  const value = await api.post(`${PATH}/${encodeURIComponent(id)}/rotate`, body);
  const token = isRecord(value) ? textOf(value['token']) : undefined;
  if (token === undefined) throw unexpected();
  return { value, text: `${token}\n` };
}

/** Shuts a gateway out for good; again changes nothing. */
export async function removeGateway(api: Api, id: string): Promise<Shown> {
  const value = await api.delete(`${PATH}/${encodeURIComponent(id)}`);
  const removedAt = isRecord(value) ? textOf(value['removedAt']) : undefined;
  if (removedAt === undefined) throw unexpected();
  return {
    value,
    text: factsText([
      ['id', id],
      ['removed', removedAt],
    ]),
  };
}

function readPage(value: unknown): GatewayList<unknown> {
  if (!isRecord(value) || !Array.isArray(value['items'])) throw unexpected();
  const { epoch, version } = value;
  if (typeof epoch !== 'string' || typeof version !== 'number') throw unexpected();
  return { items: value['items'] as unknown[], epoch, version };
}

function readGateway(value: unknown): Gateway {
  if (!isRecord(value)) throw unexpected();
  const { id, name, createdAt, connections, ackVersion, ackAt } = value;
  if (typeof id !== 'string' || typeof name !== 'string' || typeof createdAt !== 'string') {
    throw unexpected();
  }
  if (typeof connections !== 'number') throw unexpected();
  return {
    id,
    name,
    createdAt,
    connections,
    ackVersion: typeof ackVersion === 'number' ? ackVersion : undefined,
    ackAt: textOf(ackAt),
  };
}
