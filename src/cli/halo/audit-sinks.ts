/** `halo audit sinks`: where the chain is forwarded to, and how far. */
import { type Column, tableText } from '../console.js';
import { type Api, isRecord, textOf, unexpected } from './api.js';
import type { CommandSpec, Shown } from './command.js';

type Row = Readonly<Record<string, unknown>>;

const COLUMNS: readonly Column<Row>[] = [
  { heading: 'NAME', value: ({ name }) => textOf(name) ?? '' },
  { heading: 'TYPE', value: ({ type }) => textOf(type) ?? '' },
  { heading: 'LEADER', value: ({ leader }) => textOf(leader) ?? '-' },
  { heading: 'HAS', value: ({ cursor }) => String(cursor) },
  { heading: 'OF', value: ({ head }) => String(head) },
  { heading: 'LAG', value: lagText },
  { heading: 'DELIVERED', value: ({ lastDeliveredAt }) => textOf(lastDeliveredAt) ?? 'never' },
  { heading: 'MORE', value: moreText },
];

/** Ends with 1 where a sink takes nothing at the moment: for scripts that watch. */
export const SINKS_COMMAND: CommandSpec = {
  usage: 'sinks',
  description: 'where the chain is forwarded to, and how far; ends with 1 where a sink fails',
  prepare: () => (api) => showSinks(api),
};

async function showSinks(api: Api): Promise<Shown> {
  const value = await api.get('/api/v1/audit/sinks');
  const items = isRecord(value) ? value['items'] : undefined;
  if (!Array.isArray(items)) throw unexpected();
  const rows = items.filter(isRecord);
  const hasFailed = rows.some(({ lastError }) => isRecord(lastError));
  const text = rows.length === 0 ? 'The chain is forwarded nowhere.\n' : tableText(COLUMNS, rows);
  return { value, text, hasFailed };
}

function lagText({ lagRecords, lagSeconds }: Row): string {
  const records = String(lagRecords);
  return typeof lagSeconds === 'number' && lagSeconds > 0
    ? `${records} (${lagSeconds} s)`
    : records;
}

function moreText({ lastError, restored }: Row): string {
  const told: string[] = [];
  if (isRecord(lastError)) {
    const { code, message, attempts } = lastError;
    told.push(`${String(code)}: ${String(message)} (attempt ${String(attempts)})`);
  }
  if (isRecord(restored)) {
    const { at, resumedAfterSeq } = restored;
    told.push(`restored ${String(at)}: got everything after ${String(resumedAfterSeq)} again`);
  }
  return told.join('; ');
}
