/**
 * Values, documents, counters and sightings in memory. A `Tables` over a parent is a draft: it sees
 * the parent's rows under its own and leaves them alone. Rows are never changed in place.
 */
import { type DocumentKey, documentName, type KvEntry, type StoredDocument } from '../store.js';
import type { TableOperation } from './line-format.js';
import { SortedIds } from './sorted-ids.js';

/** A row of the counters; `expiresAtMs` as in `KvEntry`. */
export interface Counter {
  readonly value: number;
  readonly expiresAtMs: number | null;
}

/** What every row with an end has; ms since the Unix epoch, null: for ever. */
export interface Expiring {
  readonly expiresAtMs: number | null;
}

/** False from the very millisecond at which it expires. */
export function isLive(row: Expiring, nowMs: number): boolean {
  return row.expiresAtMs === null || row.expiresAtMs > nowMs;
}

/** Rows that one sweep looks at in each table: about a millisecond. */
const SWEEP_LOOK_MAX = 10_000;

function* keysOf(rows: ReadonlyMap<string, unknown>): Generator<string> {
  yield* rows.keys();
}

/** A map over the rows of a parent; undefined stands for a row that the draft deleted. */
class Rows<Row> {
  readonly own = new Map<string, Row | undefined>();

  constructor(private readonly parent: Rows<Row> | undefined) {}

  get(key: string): Row | undefined {
    return this.own.has(key) ? this.own.get(key) : this.parent?.get(key);
  }

  set(key: string, row: Row): void {
    this.own.set(key, row);
  }

  delete(key: string): void {
    if (this.parent === undefined) this.own.delete(key);
    else this.own.set(key, undefined);
  }
}

/** The store's tables when it has no parent, else a draft over it. */
export class Tables {
  readonly kv: Rows<KvEntry>;
  readonly documents: Rows<StoredDocument>;
  readonly counters: Rows<Counter>;
  readonly seenAtMs: Rows<number>;
  private epochInForce: string | undefined;
  private format: number | undefined;
  /** Of the root's documents, by kind. */
  private readonly ids = new Map<string, SortedIds>();
  /** Where the next sweep goes on in each table. */
  private readonly sweeps: (Generator<string> | undefined)[] = [];

  constructor(private readonly parent?: Tables) {
    this.kv = new Rows(parent?.kv);
    this.documents = new Rows(parent?.documents);
    this.counters = new Rows(parent?.counters);
    this.seenAtMs = new Rows(parent?.seenAtMs);
  }

  get epoch(): string {
    return this.epochInForce ?? this.parent?.epoch ?? '';
  }

  get writeFormat(): number {
    return this.format ?? this.parent?.writeFormat ?? 0;
  }

  value(key: string, nowMs: number): KvEntry | undefined {
    const row = this.kv.get(key);
    return row !== undefined && isLive(row, nowMs) ? row : undefined;
  }

  document(key: DocumentKey, nowMs: number): StoredDocument | undefined {
    const row = this.documents.get(documentName(key));
    return row !== undefined && isLive(row, nowMs) ? row : undefined;
  }

  counter(key: string, nowMs: number): Counter | undefined {
    const row = this.counters.get(key);
    return row !== undefined && isLive(row, nowMs) ? row : undefined;
  }

  apply(operation: TableOperation): void {
    switch (operation[0]) {
      case 'k':
        this.kv.set(operation[1], { value: operation[2], expiresAtMs: operation[3] });
        break;
      case 'kd':
        this.kv.delete(operation[1]);
        break;
      case 'd': {
        const [, kind, id, version, body, expiresAtMs] = operation;
        this.putDocument({ kind, id, version, body, expiresAtMs });
        break;
      }
      case 'dd':
        this.deleteDocument({ kind: operation[1], id: operation[2] });
        break;
      case 'c':
        this.counters.set(operation[1], { value: operation[2], expiresAtMs: operation[3] });
        break;
      case 's':
        this.seenAtMs.set(operation[1], operation[2]);
        break;
      case 'store':
        this.epochInForce = operation[1];
        this.format = operation[2];
        break;
    }
  }

  /** Live documents of a kind with an id after `afterId`, in id order. Of the root only. */
  list(kind: string, afterId: string, limit: number, nowMs: number): StoredDocument[] {
    const found: StoredDocument[] = [];
    for (const id of this.ids.get(kind)?.after(afterId) ?? []) {
      if (found.length >= limit) break;
      const document = this.document({ kind, id }, nowMs);
      if (document !== undefined) found.push(document);
    }
    return found;
  }

  /**
   * Deletes at most `limit` expired values, documents and counters each; returns how many. Looks at
   * `SWEEP_LOOK_MAX` rows each and goes on there the next time. Nothing is logged: an expired row
   * is gone without it. Of the root only.
   */
  sweep(limit: number, nowMs: number): number {
    const deletions = [
      (key: string): void => this.kv.delete(key),
      (name: string): void => {
        const document = this.documents.get(name);
        if (document !== undefined) this.deleteDocument(document);
      },
      (key: string): void => this.counters.delete(key),
    ];
    let swept = 0;
    for (const [i, rows] of [this.kv, this.documents, this.counters].entries()) {
      const expired = this.expired(i, rows, limit, nowMs);
      for (const key of expired) deletions[i]?.(key);
      swept += expired.length;
    }
    return swept;
  }

  private expired(
    table: number,
    rows: Rows<KvEntry> | Rows<StoredDocument> | Rows<Counter>,
    limit: number,
    nowMs: number,
  ): string[] {
    const expired: string[] = [];
    const looksMax = Math.min(SWEEP_LOOK_MAX, rows.own.size);
    for (let looks = 0; looks < looksMax && expired.length < limit; looks += 1) {
      let next = this.sweeps[table]?.next();
      if (next === undefined || next.done === true) {
        const fromTheFirst = keysOf(rows.own);
        this.sweeps[table] = fromTheFirst;
        next = fromTheFirst.next();
      }
      if (next.done === true) break;
      const row = rows.get(next.value);
      if (row !== undefined && !isLive(row, nowMs)) expired.push(next.value);
    }
    return expired;
  }

  private putDocument(document: StoredDocument): void {
    const name = documentName(document);
    if (this.parent === undefined && this.documents.get(name) === undefined) {
      const ids = this.ids.get(document.kind) ?? new SortedIds();
      this.ids.set(document.kind, ids);
      ids.add(document.id);
    }
    this.documents.set(name, document);
  }

  private deleteDocument(key: DocumentKey): void {
    const name = documentName(key);
    if (this.parent === undefined && this.documents.get(name) !== undefined) {
      this.ids.get(key.kind)?.remove(key.id);
    }
    this.documents.delete(name);
  }

  /** Every live row, as the operations that bring it back; rows may change while it is walked. */
  *operations(nowMs: number): Generator<TableOperation> {
    yield ['store', this.epoch, this.writeFormat];
    for (const [key, row] of this.kv.own) {
      if (row && isLive(row, nowMs)) yield ['k', key, row.value, row.expiresAtMs];
    }
    for (const [, row] of this.documents.own) {
      if (!row || !isLive(row, nowMs)) continue;
      yield ['d', row.kind, row.id, row.version, row.body, row.expiresAtMs];
    }
    for (const [key, row] of this.counters.own) {
      if (row && isLive(row, nowMs)) yield ['c', key, row.value, row.expiresAtMs];
    }
    for (const [id, seenAtMs] of this.seenAtMs.own) {
      if (seenAtMs !== undefined) yield ['s', id, seenAtMs];
    }
  }
}
