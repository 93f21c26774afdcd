/**
 * The storage seam: what a backend is. `file/`, `postgres/` and `model/` implement it and pass one
 * contract suite (test/storage-contract.ts). Bodies and values are opaque strings: the package that
 * owns a type encodes it, in the envelope of `envelope.ts`.
 *
 * Source: DESIGN §3 and ADR-0021 ("Shared logs and replica consistency").
 */
import type { Fence, LeaseRow } from '../runtime/lease.js';
import type { EvidenceEvent, EvidenceStore } from './evidence-store.js';

/** How far a view has applied one stream. */
export interface Cursor {
  /** Id of the newest record applied; 0 before the first. Ids grow within a stream, with gaps. */
  readonly id: number;
  /** The random batch mark of that record; '' at 0. A store that has another was restored. */
  readonly batch: string;
}

/**
 * What a view has applied, and of which history. `replay` makes it; `catchUp` and `commit` move it.
 */
export interface Position {
  /** 16 lower-case hex digits: the identity of the history. */
  readonly epoch: string;
  /** When the database server started, as it says it itself; '' where it means nothing. */
  readonly serverStart: string;
  readonly cursors: Readonly<Record<string, Cursor>>;
}

/** One record of a stream, as every replica sees it. */
export interface StoredRecord {
  readonly stream: string;
  readonly id: number;
  readonly batch: string;
  /** Records of one stream with the same key replace each other; null: every record is kept. */
  readonly key: string | null;
  /** An envelope (`envelope.ts`). */
  readonly body: string;
}

/** What others and the caller committed after a position, and how far that leads. */
export interface CatchUp {
  readonly position: Position;
  /** Each stream's records after its cursor, in id order; streams are not ordered to each other. */
  readonly records: readonly StoredRecord[];
  /** The store's clock when it read, in ms since the Unix epoch. */
  readonly storeTimeMs: number;
  /** The page bound was reached: catch up again from the new position before using the view. */
  readonly more: boolean;
}

/** A record to append. The store gives it its id and batch, in the order of the appends. */
export interface Append {
  readonly stream: string;
  readonly key: string | null;
  readonly body: string;
}

/** A value with an expiry, judged on the store's clock; an expired one is never seen again. */
export interface KvEntry {
  readonly value: string;
  /** ms since the Unix epoch on the store's clock; null: for ever. */
  readonly expiresAtMs: number | null;
}

/** One change of a KV row, made when the unit commits. */
export type KvChange =
  | ({ readonly op: 'put'; readonly key: string } & KvEntry)
  /** Inserts, or replaces an expired row. A live row makes the whole unit start over. */
  | ({ readonly op: 'add'; readonly key: string } & KvEntry)
  | { readonly op: 'delete'; readonly key: string }
  /** Sets the value to the greater of the stored number and `to`; never backwards. */
  | {
      readonly op: 'raise';
      readonly key: string;
      readonly to: number;
      readonly expiresAtMs: number | null;
    };

/** Names a document: ids are unique within a kind. */
export interface DocumentKey {
  readonly kind: string;
  readonly id: string;
}

/** A document is what is looked up one by one and never replayed; each put replaces it whole. */
export interface StoredDocument extends DocumentKey {
  /** 1 for a new document, one more with each put. */
  readonly version: number;
  readonly body: string;
  readonly expiresAtMs: number | null;
}

/** One change of a document, made when the unit commits. */
export type DocumentChange =
  | (DocumentKey & {
      readonly op: 'put';
      readonly body: string;
      readonly expiresAtMs: number | null;
    })
  | (DocumentKey & { readonly op: 'delete' });

/**
 * Adds `delta` to a counter (0 when absent or expired). `expiresAtMs` is set when it is created.
 */
export interface CounterChange {
  readonly key: string;
  readonly delta: number;
  readonly expiresAtMs: number | null;
}

/**
 * Adds `delta` to a counter outside a unit of work. One that is absent or has expired starts at 0
 * and gets a life of `ttlMs` (null: for ever); one that lives keeps the end that it has.
 */
export interface Count {
  readonly key: string;
  readonly delta: number;
  readonly ttlMs: number | null;
}

/** What a counter came to, and until when it counts (ms since the Unix epoch; null: for ever). */
export interface Counted {
  readonly value: number;
  readonly expiresAtMs: number | null;
}

/** What one replica has open for one gateway, and the least that it acknowledged there. */
export interface GatewayAck {
  readonly gateway: string;
  /** At least 1. */
  readonly connections: number;
  readonly ackVersion: number;
}

/** A replica's row, until it expires or the replica writes another. */
export interface GatewayAckRow extends GatewayAck {
  readonly replicaStart: string;
  /** ms since the Unix epoch on the store's clock. */
  readonly expiresAtMs: number;
}

/** One unit of work: what to lock and what to read under the lock. */
export interface UnitOfWork {
  /** Streams that will be appended to, locked until the end; any order, the store sorts them. */
  readonly streams: readonly string[];
  /** What the caller has applied of every stream it follows, those of `streams` included. */
  readonly position: Position;
  /** KV keys to read; the rows that exist stay locked until the end. */
  readonly kv?: readonly string[];
  readonly documents?: readonly DocumentKey[];
  /**
   * Only under this term. It is looked for under the locks, and held until the end: whoever takes
   * the lease over waits for the unit, or the unit fails with `fenced`.
   */
  readonly fence?: Fence;
}

/** What the lock let through: all that `decide` may know. */
export interface Locked {
  /** Records that others committed after the position, to be applied before deciding. */
  readonly records: readonly StoredRecord[];
  readonly position: Position;
  /** Only live entries are present. */
  readonly kv: ReadonlyMap<string, KvEntry>;
  /** By `documentName(key)`; only live documents are present. */
  readonly documents: ReadonlyMap<string, StoredDocument>;
  readonly storeTimeMs: number;
  /** The envelope format that new records must be written in. */
  readonly writeFormat: number;
}

/** What `decide` wants written. All of it or nothing; nothing at all is a valid decision. */
export interface Changes {
  readonly appends?: readonly Append[];
  readonly kv?: readonly KvChange[];
  readonly documents?: readonly DocumentChange[];
  readonly counters?: readonly CounterChange[];
  /** Evidence of what is decided here: durable with it, never without it. In this order. */
  readonly evidence?: readonly EvidenceEvent[];
  /**
   * Streams whose change other replicas should hear of at once rather than at their next poll, as a
   * hint that may be lost. For rare streams only: never for each decision.
   */
  readonly hints?: readonly string[];
}

/** What electors hear at once, as other replicas hear of a stream: see `Changes.hints`. */
export const LEASES_HINT = 'leases';

/** A unit that was committed: synced to disk, or acknowledged by the database. */
export interface Committed {
  /** The unit's own appends with their ids. Of several with one key only the last remains. */
  readonly records: readonly StoredRecord[];
  /** The position after the foreign and the own records. */
  readonly position: Position;
  readonly storeTimeMs: number;
}

/** KV outside a unit of work; each call is one atomic statement on the store's clock. */
export interface KeyValue {
  get(keys: readonly string[]): Promise<Map<string, KvEntry>>;
  put(key: string, value: string, ttlMs: number | null): Promise<void>;
  /** True when no live row was there and it was added. */
  add(key: string, value: string, ttlMs: number | null): Promise<boolean>;
  /** Deletes and returns a live value; of concurrent takers exactly one gets it. */
  take(key: string): Promise<string | undefined>;
  delete(key: string): Promise<void>;
  /** Takes a free or expired lock, or renews one's own. `owner` is a random token. */
  tryLock(key: string, owner: string, ttlMs: number): Promise<boolean>;
  /** Deletes the owner's own row only; true when it did. */
  unlock(key: string, owner: string): Promise<boolean>;
  /** The number stored afterwards. */
  raise(key: string, to: number, ttlMs: number | null): Promise<number>;
}

/**
 * One thread's way to the store. Whatever it throws or rejects with is a `StoreError`, but for what
 * `decide` throws. All times are on the store's clock, which replicas share.
 */
export interface Store {
  readonly backend: 'file' | 'postgres' | 'model';
  /**
   * Hands over every live record of the streams, in pages, in id order within a stream, and
   * returns the position after them. Throws `StoreError`.
   */
  replay(
    streams: readonly string[],
    onRecords: (records: readonly StoredRecord[]) => void,
  ): Promise<Position>;
  /**
   * What was committed after the position, read after the call on the primary. Synchronous when
   * the backend can know without asking. Throws (or rejects with) `StoreError`:
   * `store_unavailable`, or `history_changed` when the position is not of this store's history.
   */
  catchUp(position: Position): CatchUp | Promise<CatchUp>;
  /**
   * Locks, reads, calls `decide` once with what it read (again from the start if an `add` met a
   * live row, at most `COMMIT_ATTEMPTS_MAX` times), writes and commits. What `decide` throws is
   * rethrown after a rollback. Throws `StoreError`: `store_unavailable` (nothing was written),
   * `outcome_unknown` (the commit was sent, its answer lost), `history_changed`, `write_refused`
   * (the store refused a statement: nothing was written, and trying a part may succeed), `fenced`.
   */
  commit(unit: UnitOfWork, decide: (locked: Locked) => Changes): Promise<Committed>;
  readonly kv: KeyValue;
  readonly evidence: EvidenceStore;
  /** Every lease there ever was, in the order of their names. */
  leases(): Promise<LeaseRow[]>;
  documents(keys: readonly DocumentKey[]): Promise<StoredDocument[]>;
  /** Live documents of a kind with an id after `afterId` ('' for the first), in id order. */
  listDocuments(kind: string, afterId: string, limit: number): Promise<StoredDocument[]>;
  counters(keys: readonly string[]): Promise<Map<string, number>>;
  /**
   * All of the counts in one statement, or one line of the log; returns what each counter then was,
   * by key. Whether a counter has expired is judged once for each, on the store's clock and under
   * its lock, so that of counts that meet at its end none is lost. Two of one key are added up, and
   * the first says how long a new counter lives. Rows are locked in the order of their keys, so
   * that two calls never wait for each other. Throws `StoreError`: `store_unavailable`,
   * `outcome_unknown` or `write_refused`, for all of the counts.
   */
  count(counts: readonly Count[]): Promise<Map<string, Counted>>;
  /** When each was last seen, ms since the Unix epoch; never moved backwards. One statement. */
  recordSightings(seenAtMs: ReadonlyMap<string, number>): Promise<void>;
  sightings(ids: readonly string[]): Promise<Map<string, number>>;
  /**
   * Replaces what that replica wrote before, in one statement: whichever gateway is not among the
   * acks is not connected there. Lost when a backend of one process stops, as its gateways are.
   */
  recordGatewayAcks(
    replicaStart: string,
    acks: readonly GatewayAck[],
    ttlMs: number,
  ): Promise<void>;
  /** Every live row, ordered by replica and gateway. */
  gatewayAcks(): Promise<GatewayAckRow[]>;
  /** Deletes at most `limit` expired rows of each table; returns how many. */
  sweep(limit: number): Promise<number>;
  /**
   * After `history_changed`: replaces the epoch if it still is `seenEpoch` and the history did
   * change; returns the epoch in force.
   */
  replaceEpoch(seenEpoch: string): Promise<string>;
  /** Numbers for `/metrics` and the status page, by name: `dbErrors`, `dbOpenConnections` … */
  facts(): Readonly<Record<string, number>>;
  /** Idempotent. Everything pending rejects with `store_unavailable`. */
  close(): Promise<void>;
}

/** A unit whose `add` keeps meeting live rows starts over this often, then is `write_refused`. */
export const COMMIT_ATTEMPTS_MAX = 4;
/** Records a catch-up returns at most: about 5 MB of bodies, tens of milliseconds of work. */
export const CATCH_UP_PAGE_MAX = 10_000;

/** The key of a document as one string, for maps. */
export function documentName(key: DocumentKey): string {
  return `${key.kind}/${key.id}`;
}
