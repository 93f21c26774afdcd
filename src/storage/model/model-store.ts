/**
 * One replica's or thread's handle on a `ModelDatabase`, with hooks through which a simulation
 * delays, refuses or loses operations. Without hooks a catch-up is synchronous.
 */
import type { LeaseRow } from '../../runtime/lease.js';
import type {
  ChainedRecord,
  ChainLinker,
  ChainStatement,
  DrainResult,
  EvidenceStore,
} from '../evidence-store.js';
import type {
  CatchUp,
  Changes,
  Committed,
  Count,
  Counted,
  DocumentKey,
  GatewayAck,
  GatewayAckRow,
  KeyValue,
  KvEntry,
  Locked,
  Position,
  Store,
  StoredDocument,
  StoredRecord,
  UnitOfWork,
} from '../store.js';
import { StoreError } from '../store-error.js';
import type { ModelDatabase } from './model-database.js';

export type ModelOperation =
  | 'replay'
  | 'catchUp'
  | 'commit'
  | 'kv'
  | 'documents'
  | 'counters'
  | 'count'
  | 'sightings'
  | 'gatewayAcks'
  | 'leases'
  | 'evidence'
  | 'sweep'
  | 'replaceEpoch';

/**
 * Called around each operation, which itself is one indivisible step between the two. A promise
 * delays, a throw is what the caller gets: thrown by `before`, nothing was done
 * (`store_unavailable`); thrown by `after`, all was done and the answer is lost
 * (`outcome_unknown`).
 */
export interface ModelHooks {
  before?(operation: ModelOperation): void | Promise<void>;
  after?(operation: ModelOperation): void | Promise<void>;
}

/** As many as there are replicas or threads; closing one leaves the data to the others. */
export class ModelStore implements Store {
  readonly backend = 'model';
  readonly kv: KeyValue;
  readonly evidence: EvidenceStore;
  private closed = false;

  constructor(
    private readonly database: ModelDatabase,
    private readonly hooks: ModelHooks = {},
    private readonly linker?: ChainLinker,
  ) {
    this.kv = this.keyValue();
    this.evidence = this.evidenceStore();
  }

  async replay(
    streams: readonly string[],
    onRecords: (records: readonly StoredRecord[]) => void,
  ): Promise<Position> {
    return this.run('replay', () => this.database.replay(streams, onRecords));
  }

  catchUp(position: Position): CatchUp | Promise<CatchUp> {
    return this.run('catchUp', () => this.database.catchUp(position));
  }

  async commit(unit: UnitOfWork, decide: (locked: Locked) => Changes): Promise<Committed> {
    return this.run('commit', () => this.database.commit(unit, decide));
  }

  async documents(keys: readonly DocumentKey[]): Promise<StoredDocument[]> {
    return this.run('documents', () => {
      const nowMs = this.database.nowMs();
      const found = keys.map((key) => this.database.tables.document(key, nowMs));
      return found.filter((document) => document !== undefined);
    });
  }

  async listDocuments(kind: string, afterId: string, limit: number): Promise<StoredDocument[]> {
    return this.run('documents', () =>
      this.database.tables.list(kind, afterId, limit, this.database.nowMs()),
    );
  }

  async counters(keys: readonly string[]): Promise<Map<string, number>> {
    return this.run('counters', () => {
      const found = new Map<string, number>();
      for (const key of keys) {
        const counter = this.database.tables.counter(key, this.database.nowMs());
        if (counter !== undefined) found.set(key, counter.value);
      }
      return found;
    });
  }

  async count(counts: readonly Count[]): Promise<Map<string, Counted>> {
    return this.run('count', () => {
      const nowMs = this.database.nowMs();
      const counted = new Map<string, Counted>();
      for (const { key, delta, ttlMs } of counts) {
        const expiresAtMs = ttlMs === null ? null : nowMs + ttlMs;
        counted.set(key, this.database.tables.count({ key, delta, expiresAtMs }, nowMs));
      }
      return counted;
    });
  }

  async recordSightings(seenAtMs: ReadonlyMap<string, number>): Promise<void> {
    return this.run('sightings', () => {
      for (const [id, atMs] of seenAtMs) this.database.tables.see(id, atMs);
    });
  }

  async sightings(ids: readonly string[]): Promise<Map<string, number>> {
    return this.run('sightings', () => {
      const found = new Map<string, number>();
      for (const id of ids) {
        const atMs = this.database.tables.seenAtMs(id);
        if (atMs !== undefined) found.set(id, atMs);
      }
      return found;
    });
  }

  async recordGatewayAcks(
    replicaStart: string,
    acks: readonly GatewayAck[],
    ttlMs: number,
  ): Promise<void> {
    return this.run('gatewayAcks', () => {
      const nowMs = this.database.nowMs();
      this.database.acks.record(replicaStart, acks, nowMs + ttlMs, nowMs);
    });
  }

  async gatewayAcks(): Promise<GatewayAckRow[]> {
    return this.run('gatewayAcks', () => this.database.acks.live(this.database.nowMs()));
  }

  async leases(): Promise<LeaseRow[]> {
    return this.run('leases', () => this.database.leases.list(this.database.nowMs()));
  }

  async sweep(limit: number): Promise<number> {
    return this.run('sweep', () => this.database.tables.sweep(limit, this.database.nowMs()));
  }

  async replaceEpoch(seenEpoch: string): Promise<string> {
    return this.run('replaceEpoch', () => this.database.replaceEpoch(seenEpoch));
  }

  facts(): Readonly<Record<string, number>> {
    return {};
  }

  async close(): Promise<void> {
    this.closed = true;
  }

  private evidenceStore(): EvidenceStore {
    const { database } = this;
    const run = async <T>(step: () => T): Promise<T> => this.run('evidence', step);
    return {
      mode: 'deferred',
      drain: async (limit) => this.drain(limit),
      append: async (statement) => this.appendEvidence(statement),
      find: (ref) => run(() => database.evidence.find(ref)),
      page: (afterSeq, limit) => run(() => database.evidence.page(afterSeq, limit)),
      pageBack: (beforeSeq, limit) => run(() => database.evidence.pageBack(beforeSeq, limit)),
      head: () => run(() => database.evidence.head()),
      pending: () => run(() => database.evidence.pending),
    };
  }

  /** The lock is held over what `link` waits for, as that of a transaction is. */
  private async drain(limit: number): Promise<DrainResult> {
    const { evidence } = this.database;
    if (evidence.locked) return { kind: 'busy' };
    evidence.locked = true;
    try {
      const queued = await this.run('evidence', () => evidence.oldest(limit));
      const tail = evidence.tail();
      const records = queued.length === 0 ? [] : await this.chainLinker().link(tail, queued);
      await this.run('evidence', () => evidence.append(records, queued.length));
      return { kind: 'drained', events: queued.length, head: evidence.head() };
    } finally {
      evidence.locked = false;
    }
  }

  private async appendEvidence(statement: ChainStatement): Promise<readonly ChainedRecord[]> {
    const { evidence } = this.database;
    if (evidence.locked) throw new StoreError('store_unavailable', 'The head stayed locked.');
    evidence.locked = true;
    try {
      const records = await this.chainLinker().state(evidence.tail(), statement);
      await this.run('evidence', () => evidence.append(records, 0));
      return records;
    } finally {
      evidence.locked = false;
    }
  }

  private chainLinker(): ChainLinker {
    if (this.linker !== undefined) return this.linker;
    throw new StoreError('incompatible', 'Evidence cannot be chained without a signing key.');
  }

  private keyValue(): KeyValue {
    const { database } = this;
    const expiry = (ttlMs: number | null): number | null =>
      ttlMs === null ? null : database.nowMs() + ttlMs;
    const value = (key: string): string | undefined =>
      database.tables.value(key, database.nowMs())?.value;
    const remove = (key: string): void =>
      void database.tables.changeValue({ op: 'delete', key }, database.nowMs());
    const put = (op: 'put' | 'add', key: string, text: string, ttlMs: number | null): boolean =>
      database.tables.changeValue(
        { op, key, value: text, expiresAtMs: expiry(ttlMs) },
        database.nowMs(),
      );
    const run = async <T>(step: () => T): Promise<T> => this.run('kv', step);
    return {
      get: (keys) =>
        run(() => {
          const found = new Map<string, KvEntry>();
          for (const key of keys) {
            const entry = database.tables.value(key, database.nowMs());
            if (entry !== undefined) found.set(key, entry);
          }
          return found;
        }),
      put: (key, text, ttlMs) => run(() => void put('put', key, text, ttlMs)),
      add: (key, text, ttlMs) => run(() => put('add', key, text, ttlMs)),
      take: (key) =>
        run(() => {
          const taken = value(key);
          remove(key);
          return taken;
        }),
      delete: (key) => run(() => remove(key)),
      tryLock: (key, owner, ttlMs) =>
        run(() => {
          const holder = value(key);
          return (holder === undefined || holder === owner) && put('put', key, owner, ttlMs);
        }),
      unlock: (key, owner) =>
        run(() => {
          const own = value(key) === owner;
          if (own) remove(key);
          return own;
        }),
      raise: (key, to, ttlMs) =>
        run(() => {
          database.tables.changeValue(
            { op: 'raise', key, to, expiresAtMs: expiry(ttlMs) },
            database.nowMs(),
          );
          return Number(value(key));
        }),
    };
  }

  /** The hook before, the step, the hook after: in one turn when no hook returns a promise. */
  private run<T>(operation: ModelOperation, step: () => T): T | Promise<T> {
    const before = this.hooks.before?.(operation);
    const act = (): T | Promise<T> => {
      if (this.closed) throw new StoreError('store_unavailable', 'The store is closed.');
      const result = step();
      const after = this.hooks.after?.(operation);
      return after === undefined ? result : after.then(() => result);
    };
    return before === undefined ? act() : before.then(act);
  }
}
