/** What the contract's tests share: a view kept as an actor keeps it, and waiting for expiry. */
import type {
  Append,
  Changes,
  Committed,
  Locked,
  Position,
  Store,
  StoredRecord,
  UnitOfWork,
} from '../../src/storage/store.js';
import type { ContractStore } from '../storage-contract.js';

/** Bound on any wait in the suite; a store that needs longer fails the test. */
export const WAIT_MAX_MS = 20_000;
/** The life of what a test lets expire: long enough to be seen alive on a busy machine. */
export const LIFE_MS = 1_000;

/** One actor's view of some streams on one store, with the position that belongs to it. */
export class View {
  readonly rows = new Map<string, StoredRecord>();
  /** Every record that was ever applied, in the order of applying. */
  readonly applied: StoredRecord[] = [];

  private constructor(
    readonly store: Store,
    public position: Position,
  ) {}

  static async replay(store: Store, streams: readonly string[]): Promise<View> {
    const records: StoredRecord[] = [];
    const position = await store.replay(streams, (page) => void records.push(...page));
    const view = new View(store, position);
    view.apply(records);
    return view;
  }

  apply(records: readonly StoredRecord[]): void {
    for (const record of records) {
      this.applied.push(record);
      this.rows.set(`${record.stream} ${record.key ?? `#${record.id}`}`, record);
    }
  }

  async catchUp(): Promise<StoredRecord[]> {
    const seen: StoredRecord[] = [];
    for (let more = true; more; ) {
      const caught = await this.store.catchUp(this.position);
      this.apply(caught.records);
      seen.push(...caught.records);
      this.position = caught.position;
      more = caught.more;
    }
    return seen;
  }

  /** Commits on this view's position, and applies the foreign and the own records after it. */
  async commit(unit: Partial<UnitOfWork>, decide: (locked: Locked) => Changes): Promise<Committed> {
    let foreign: readonly StoredRecord[] = [];
    const committed = await this.store.commit(
      { streams: Object.keys(this.position.cursors), position: this.position, ...unit },
      (locked) => {
        foreign = locked.records;
        return decide(locked);
      },
    );
    this.apply(foreign);
    this.apply(committed.records);
    this.position = committed.position;
    return committed;
  }

  append(...appends: readonly Append[]): Promise<Committed> {
    return this.commit({}, () => ({ appends }));
  }

  /** The bodies of one stream in id order. */
  bodies(stream: string): string[] {
    return [...this.rows.values()]
      .filter((record) => record.stream === stream)
      .sort((a, b) => a.id - b.id)
      .map((record) => record.body);
  }

  /** Everything a view holds, in an order that two equal views share. */
  contents(): string[] {
    return [...this.rows.values()]
      .map(({ stream, id, batch, key, body }) => JSON.stringify([stream, id, batch, key, body]))
      .sort();
  }
}

export function body(value: string | number): string {
  return JSON.stringify([2, 'test', value]);
}

export function keyed(stream: string, key: string, value: string | number): Append {
  return { stream, key, body: body(value) };
}

export function unkeyed(stream: string, value: string | number): Append {
  return { stream, key: null, body: body(value) };
}

/** The store's clock, read through a catch-up of nothing. */
export async function storeTimeMs(store: Store): Promise<number> {
  const position = await store.replay([], () => undefined);
  return (await store.catchUp(position)).storeTimeMs;
}

/** Returns once the store's clock is at least `ms` further. */
export async function pass(opened: ContractStore, ms: number): Promise<void> {
  if (opened.advance !== undefined) return opened.advance(ms);
  const untilMs = (await storeTimeMs(opened.store)) + ms;
  const deadlineMs = Date.now() + WAIT_MAX_MS;
  while ((await storeTimeMs(opened.store)) < untilMs) {
    if (Date.now() > deadlineMs) throw new Error('the store’s clock stands still');
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
}

/** The code of what a call throws or rejects with; undefined when it does neither. */
export async function codeOf(call: () => unknown): Promise<string | undefined> {
  try {
    await call();
    return undefined;
  } catch (error) {
    return (error as { code?: string }).code ?? String(error);
  }
}
