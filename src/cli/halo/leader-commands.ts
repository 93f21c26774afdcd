/** `halo leader`: who leads, who has led, and the word that ends a term. */
import { type Column, tableText } from '../console.js';
import { type Api, isRecord, textOf, unexpected } from './api.js';
import type { CommandSpec, Shown } from './command.js';

type Row = Readonly<Record<string, unknown>>;

const HOLDER: Column<Row> = { heading: 'HOLDER', value: ({ holder }) => textOf(holder) ?? '-' };
const TOKEN: Column<Row> = { heading: 'TOKEN', value: ({ token }) => String(token) };
const LEASES: readonly Column<Row>[] = [
  { heading: 'LEASE', value: ({ lease }) => textOf(lease) ?? '' },
  HOLDER,
  TOKEN,
  { heading: 'LEFT', value: ({ remainingMs }) => leftText(remainingMs) },
];
const TERMS: readonly Column<Row>[] = [
  TOKEN,
  HOLDER,
  { heading: 'BEGAN', value: ({ beganAt }) => textOf(beganAt) ?? '' },
];

/** In the order of the help. */
export const LEADER_COMMANDS: readonly CommandSpec[] = [
  {
    usage: 'list',
    description: 'every lease, and who has it (what `halo leader` alone does)',
    isDefault: true,
    prepare: () => (api) => listed(api, '/api/v1/leases', LEASES, 'Nobody has had a lease yet.\n'),
  },
  {
    usage: 'history <lease>',
    description: 'who has had a lease, the newest term first',
    prepare:
      ({ words: [lease = ''] }) =>
      (api) =>
        listed(api, `${pathOf(lease)}/terms`, TERMS, 'It has had no term yet.\n'),
  },
  {
    usage: 'step-down <lease>',
    description: 'ask its holder to give a lease back, so that another replica leads',
    prepare:
      ({ words: [lease = ''] }) =>
      (api) =>
        askToStepDown(api, lease),
  },
];

function pathOf(lease: string): string {
  return `/api/v1/leases/${encodeURIComponent(lease)}`;
}

async function listed(
  api: Api,
  path: string,
  columns: readonly Column<Row>[],
  none: string,
): Promise<Shown> {
  const value = await api.get(path);
  const items = isRecord(value) ? value['items'] : undefined;
  if (!Array.isArray(items)) throw unexpected();
  const rows = items.filter(isRecord);
  return { value, text: rows.length === 0 ? none : tableText(columns, rows) };
}

async function askToStepDown(api: Api, lease: string): Promise<Shown> {
  const value = await api.post(`${pathOf(lease)}/step-down`, {});
  if (!isRecord(value)) throw unexpected();
  const { holder, token } = value;
  const text = `${String(holder)} was asked to give ${lease} back, term ${String(token)}.\n`;
  return { value, text };
}

function leftText(remainingMs: unknown): string {
  if (typeof remainingMs !== 'number' || remainingMs <= 0) return 'nobody has it';
  return `${(remainingMs / 1_000).toFixed(1)} s`;
}
