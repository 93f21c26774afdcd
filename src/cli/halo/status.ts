/** `halo status`. */

import { type Column, factsText, tableText } from '../console.js';
import { type Api, isRecord } from './api.js';
import type { Shown } from './command.js';

/** What the server says of itself, whatever fields it has: a newer one may say more. */
export async function showStatus(api: Api): Promise<Shown> {
  const value = await api.get('/v1/status');
  if (!isRecord(value)) return { value, text: `${JSON.stringify(value)}\n` };
  const { actors, leader, leases, ...rest } = value;
  const told = { ...rest, ...leadershipFacts(leader, leases) };
  const facts = Object.entries(told).map(([name, fact]) => [name, oneLine(fact)] as const);
  const rows = Array.isArray(actors) ? actors.filter(isRecord) : [];
  return { value, text: factsText(facts) + actorsText(rows) };
}

/** Who has the main lease, and how many leases this replica has: each one's own are a list. */
function leadershipFacts(leader: unknown, leases: unknown): Record<string, unknown> {
  const rows = Array.isArray(leases) ? leases.filter(isRecord) : [];
  const held = rows.filter(({ isLeader }) => isLeader === true).length;
  return {
    ...(isRecord(leader) ? { leader: holderText(leader) } : {}),
    ...(rows.length > 0 ? { leases: `${held} of ${rows.length} held` } : {}),
  };
}

function holderText({ isLeader, holder, token }: Row): string {
  if (holder === '') return '-';
  return `${isLeader === true ? 'this replica' : oneLine(holder)}, term ${oneLine(token)}`;
}

type Row = Readonly<Record<string, unknown>>;

/** What every actor has, and whether it is well: these stand in columns of their own. */
const SHARED: ReadonlyArray<readonly [heading: string, name: string]> = [
  ['NAME', 'name'],
  ['THREAD', 'thread'],
  ['STATE', 'state'],
  ['READS', 'readDepth'],
  ['WRITES', 'writeDepth'],
  ['RESTARTS', 'restarts'],
];
/** The same for all and told above the table, or of use only to programs. */
const OMITTED = new Set(['epoch', 'cursors', 'replayedRecords', 'digest']);

/** A line for each actor: what all have in columns, and what only it has as `name value` pairs. */
function actorsText(rows: readonly Row[]): string {
  if (rows.length === 0) return '';
  const columns = SHARED.map(
    ([heading, name]): Column<Row> => ({ heading, value: (row) => oneLine(row[name]) }),
  );
  const shared = new Set(SHARED.map(([, name]) => name));
  const ofItsOwn = (row: Row): string => {
    const facts = Object.entries(row).filter(
      ([name, fact]) => !shared.has(name) && !OMITTED.has(name) && !isAllZero(fact),
    );
    return oneLine(Object.fromEntries(facts));
  };
  return `\n${tableText([...columns, { heading: 'MORE', value: ofItsOwn }], rows)}`;
}

/** What tells of nothing, such as counts of which none has happened, only makes the line long. */
function isAllZero(fact: unknown): boolean {
  if (fact === '' || (Array.isArray(fact) && fact.length === 0)) return true;
  return isRecord(fact) && Object.values(fact).every((count) => count === 0);
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
