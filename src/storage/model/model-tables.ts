/**
 * The tables of the model store as plain maps, one method per rule of the seam. `ModelDatabase`
 * works on a copy and keeps it only when the whole unit succeeded.
 */
import {
  type CounterChange,
  type DocumentChange,
  type DocumentKey,
  documentName,
  type KvChange,
  type KvEntry,
  type StoredDocument,
} from '../store.js';

/** A row of the counters; `expiresAtMs` as in `KvEntry`. */
export interface Counter {
  readonly value: number;
  readonly expiresAtMs: number | null;
}

interface Expiring {
  readonly expiresAtMs: number | null;
}

/** False from the very millisecond at which it expires. */
export function isLive(row: Expiring, nowMs: number): boolean {
  return row.expiresAtMs === null || row.expiresAtMs > nowMs;
}

function live<Row extends Expiring>(
  rows: ReadonlyMap<string, Row>,
  key: string,
  nowMs: number,
): Row | undefined {
  const row = rows.get(key);
  return row !== undefined && isLive(row, nowMs) ? row : undefined;
}

function later(one: number | null, other: number | null): number | null {
  return one === null || other === null ? null : Math.max(one, other);
}

/** Values, documents, counters and sightings, each a map by its name. */
export class ModelTables {
  constructor(
    private readonly kv: Map<string, KvEntry> = new Map(),
    private readonly documents: Map<string, StoredDocument> = new Map(),
    private readonly counters: Map<string, Counter> = new Map(),
    private readonly sightings: Map<string, number> = new Map(),
  ) {}

  /** Rows are never changed in place, so a copy of the maps is a copy of the tables. */
  copy(): ModelTables {
    return new ModelTables(
      new Map(this.kv),
      new Map(this.documents),
      new Map(this.counters),
      new Map(this.sightings),
    );
  }

  value(key: string, nowMs: number): KvEntry | undefined {
    return live(this.kv, key, nowMs);
  }

  document(key: DocumentKey, nowMs: number): StoredDocument | undefined {
    return live(this.documents, documentName(key), nowMs);
  }

  counter(key: string, nowMs: number): Counter | undefined {
    return live(this.counters, key, nowMs);
  }

  seenAtMs(id: string): number | undefined {
    return this.sightings.get(id);
  }

  list(kind: string, afterId: string, limit: number, nowMs: number): StoredDocument[] {
    return [...this.documents.values()]
      .filter((row) => row.kind === kind && row.id > afterId && isLive(row, nowMs))
      .sort((one, other) => (one.id < other.id ? -1 : 1))
      .slice(0, limit);
  }

  /** False when an `add` met a live row. */
  changeValue(change: KvChange, nowMs: number): boolean {
    const { key } = change;
    const before = this.value(key, nowMs);
    switch (change.op) {
      case 'add':
        if (before !== undefined) return false;
        this.kv.set(key, { value: change.value, expiresAtMs: change.expiresAtMs });
        return true;
      case 'put':
        this.kv.set(key, { value: change.value, expiresAtMs: change.expiresAtMs });
        return true;
      case 'delete':
        this.kv.delete(key);
        return true;
      case 'raise': {
        const { to, expiresAtMs } = change;
        this.kv.set(
          key,
          before === undefined
            ? { value: String(to), expiresAtMs }
            : {
                value: String(Math.max(Number(before.value), to)),
                expiresAtMs: later(before.expiresAtMs, expiresAtMs),
              },
        );
        return true;
      }
    }
  }

  changeDocument(change: DocumentChange, nowMs: number): void {
    const { kind, id } = change;
    const name = documentName(change);
    if (change.op === 'delete') {
      this.documents.delete(name);
      return;
    }
    const version = (this.document(change, nowMs)?.version ?? 0) + 1;
    const { body, expiresAtMs } = change;
    this.documents.set(name, { kind, id, version, body, expiresAtMs });
  }

  /** What the counter then is. */
  count(change: CounterChange, nowMs: number): Counter {
    const before = this.counter(change.key, nowMs);
    const counter =
      before === undefined
        ? { value: change.delta, expiresAtMs: change.expiresAtMs }
        : { ...before, value: before.value + change.delta };
    this.counters.set(change.key, counter);
    return counter;
  }

  see(id: string, seenAtMs: number): void {
    this.sightings.set(id, Math.max(this.sightings.get(id) ?? seenAtMs, seenAtMs));
  }

  sweep(limit: number, nowMs: number): number {
    let swept = 0;
    for (const rows of [this.kv, this.documents, this.counters] as Map<string, Expiring>[]) {
      const expired = [...rows].filter(([, row]) => !isLive(row, nowMs)).slice(0, limit);
      for (const [key] of expired) rows.delete(key);
      swept += expired.length;
    }
    return swept;
  }
}
