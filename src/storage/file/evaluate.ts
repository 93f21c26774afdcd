/**
 * The rules of the seam: what a change means for the rows that are there. Each function reads a
 * draft, applies what follows to it, and returns the operations that say so in the log.
 */
import type { Changes, Count, Counted, CounterChange, DocumentChange, KvChange } from '../store.js';
import type { TableOperation } from './line-format.js';
import { Tables } from './tables.js';

/** A KV call outside a unit; expiries are still lives, since the store's clock judges them. */
export type KvStatement =
  | {
      readonly op: 'put' | 'add';
      readonly key: string;
      readonly value: string;
      readonly ttlMs: number | null;
    }
  | { readonly op: 'take' | 'delete'; readonly key: string }
  | { readonly op: 'tryLock'; readonly key: string; readonly owner: string; readonly ttlMs: number }
  | { readonly op: 'unlock'; readonly key: string; readonly owner: string }
  | {
      readonly op: 'raise';
      readonly key: string;
      readonly to: number;
      readonly ttlMs: number | null;
    };

export type KvAnswer = string | number | boolean | undefined;

/** What a KV call writes, and what its caller is answered once that is on the disk. */
export interface StatementResult {
  readonly operations: readonly TableOperation[];
  readonly answer: KvAnswer;
}

/** Undefined when an `add` met a live row; then the draft is as it was. */
export function evaluateChanges(
  draft: Tables,
  changes: Changes,
  nowMs: number,
): readonly TableOperation[] | undefined {
  const own = new Tables(draft);
  const operations: TableOperation[] = [];
  const write = (operation: TableOperation): void => {
    own.apply(operation);
    operations.push(operation);
  };
  for (const change of changes.kv ?? []) {
    const operation = kvOperation(own, change, nowMs);
    if (operation === undefined) return undefined;
    write(operation);
  }
  for (const change of changes.documents ?? []) write(documentOperation(own, change, nowMs));
  for (const change of changes.counters ?? []) write(counterOperation(own, change, nowMs));
  for (const operation of operations) draft.apply(operation);
  return operations;
}

/** One KV call, judged at `nowMs` on the store's clock. */
export function evaluateStatement(
  draft: Tables,
  statement: KvStatement,
  nowMs: number,
): StatementResult {
  const { key } = statement;
  const value = draft.value(key, nowMs)?.value;
  const expiry = (ttlMs: number | null): number | null => (ttlMs === null ? null : nowMs + ttlMs);
  const put = (text: string, ttlMs: number | null): TableOperation => [
    'k',
    key,
    text,
    expiry(ttlMs),
  ];
  const result = (answer: KvAnswer, operation?: TableOperation): StatementResult => {
    if (operation !== undefined) draft.apply(operation);
    return { operations: operation === undefined ? [] : [operation], answer };
  };
  switch (statement.op) {
    case 'put':
      return result(undefined, put(statement.value, statement.ttlMs));
    case 'add':
      return value === undefined
        ? result(true, put(statement.value, statement.ttlMs))
        : result(false);
    case 'take':
    case 'delete':
      return value === undefined ? result(undefined) : result(value, ['kd', key]);
    case 'tryLock':
      return value === undefined || value === statement.owner
        ? result(true, put(statement.owner, statement.ttlMs))
        : result(false);
    case 'unlock':
      return value === statement.owner ? result(true, ['kd', key]) : result(false);
    case 'raise': {
      const change = { ...statement, expiresAtMs: expiry(statement.ttlMs) };
      const operation = raiseOperation(draft, change, nowMs);
      return result(Number(operation[2]), operation);
    }
  }
}

/** The operations for those that were not seen later already; never backwards. */
export function evaluateSightings(
  draft: Tables,
  seenAtMs: readonly (readonly [id: string, atMs: number])[],
): readonly TableOperation[] {
  const operations: TableOperation[] = [];
  for (const [id, atMs] of seenAtMs) {
    if (atMs <= (draft.seenAtMs.get(id) ?? -Infinity)) continue;
    const operation: TableOperation = ['s', id, atMs];
    draft.apply(operation);
    operations.push(operation);
  }
  return operations;
}

/** Counts outside a unit, judged at `nowMs` on the store's clock, and what each counter then is. */
export function evaluateCounts(
  draft: Tables,
  counts: readonly Count[],
  nowMs: number,
): { readonly operations: readonly TableOperation[]; readonly counted: Map<string, Counted> } {
  const operations: TableOperation[] = [];
  const counted = new Map<string, Counted>();
  for (const { key, delta, ttlMs } of counts) {
    const expiresAtMs = ttlMs === null ? null : nowMs + ttlMs;
    const operation = counterOperation(draft, { key, delta, expiresAtMs }, nowMs);
    draft.apply(operation);
    operations.push(operation);
    counted.set(key, { value: operation[2], expiresAtMs: operation[3] });
  }
  return { operations, counted };
}

function kvOperation(draft: Tables, change: KvChange, nowMs: number): TableOperation | undefined {
  switch (change.op) {
    case 'add':
      if (draft.value(change.key, nowMs) !== undefined) return undefined;
      return ['k', change.key, change.value, change.expiresAtMs];
    case 'put':
      return ['k', change.key, change.value, change.expiresAtMs];
    case 'delete':
      return ['kd', change.key];
    case 'raise':
      return raiseOperation(draft, change, nowMs);
  }
}

function raiseOperation(
  draft: Tables,
  change: { readonly key: string; readonly to: number; readonly expiresAtMs: number | null },
  nowMs: number,
): readonly ['k', string, string, number | null] {
  const { key, to, expiresAtMs } = change;
  const before = draft.value(key, nowMs);
  if (before === undefined) return ['k', key, String(to), expiresAtMs];
  const latestMs =
    before.expiresAtMs === null || expiresAtMs === null
      ? null
      : Math.max(before.expiresAtMs, expiresAtMs);
  return ['k', key, String(Math.max(Number(before.value), to)), latestMs];
}

function documentOperation(draft: Tables, change: DocumentChange, nowMs: number): TableOperation {
  const { kind, id } = change;
  if (change.op === 'delete') return ['dd', kind, id];
  const version = (draft.document(change, nowMs)?.version ?? 0) + 1;
  return ['d', kind, id, version, change.body, change.expiresAtMs];
}

function counterOperation(
  draft: Tables,
  change: CounterChange,
  nowMs: number,
): readonly ['c', string, number, number | null] {
  const before = draft.counter(change.key, nowMs);
  return before === undefined
    ? ['c', change.key, change.delta, change.expiresAtMs]
    : ['c', change.key, before.value + change.delta, before.expiresAtMs];
}
