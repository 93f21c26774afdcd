/** `halo status`. */

import { type Column, factsText, tableText } from '../console.js';
import { type Api, isRecord } from './api.js';
import type { Shown } from './command.js';

/** What the server says of itself, whatever fields it has: a newer one may say more. */
export async function showStatus(api: Api): Promise<Shown> {
  const value = await api.get('/v1/status');
  if (!isRecord(value)) return { value, text: `${JSON.stringify(value)}\n` };
  const { actors, ...rest } = value;
  const facts = Object.entries(rest).map(([name, fact]) => [name, oneLine(fact)] as const);
  const rows = Array.isArray(actors) ? actors.filter(isRecord) : [];
  return { value, text: factsText(facts) + actorsText(rows) };
}

function actorsText(rows: ReadonlyArray<Readonly<Record<string, unknown>>>): string {
  if (rows.length === 0) return '';
  const names = new Set(rows.flatMap((row) => Object.keys(row)));
  const columns: Array<Column<Readonly<Record<string, unknown>>>> = [...names].map((name) => ({
    heading: name.toUpperCase(),
    value: (row) => oneLine(row[name]),
  }));
  return `\n${tableText(columns, rows)}`;
}

/** A plain value as itself, a structured one as `name value` pairs. */
function oneLine(value: unknown): string {
  if (value === null || value === undefined) return '-';
  if (Array.isArray(value)) return value.map(oneLine).join(', ');
  if (isRecord(value)) {
    return Object.entries(value)
      .map(([name, inner]) => `${name} ${oneLine(inner)}`)
      .join(', ');
  }
  return String(value);
}
