/**
 * What an actor thread and the storage thread say to each other, all of it: requests with a number,
 * answers with the same number, and messages that nobody waits for. Plain data; errors travel as
 * their code.
 */
import type { MessagePort } from 'node:worker_threads';
import type { ClaimedLease, Fence, LeaseClaim, LeaseRow } from '../../runtime/lease.js';
import type {
  ChainedRecord,
  ChainStatement,
  EvidenceEvent,
  StoredHead,
} from '../evidence-store.js';
import type {
  Append,
  Changes,
  Count,
  Counted,
  CounterChange,
  Cursor,
  DocumentChange,
  DocumentKey,
  GatewayAck,
  GatewayAckRow,
  KvChange,
  KvEntry,
  Position,
  StoredDocument,
  StoredRecord,
} from '../store.js';
import type { KvAnswer, KvStatement } from './evaluate.js';

/** Files to read a journal from, kept on the disk until the pin is given back. */
export interface JournalFiles {
  readonly pin: number;
  readonly snapshot: { readonly path: string; readonly generation: number } | undefined;
  readonly logs: readonly {
    readonly path: string;
    readonly generation: number;
    /** Up to here the log is on the disk; what lies behind it does not exist yet. */
    readonly endOffset: number;
  }[];
  readonly position: Position;
  /** Where the streams' heads are in shared memory. */
  readonly slots: Readonly<Record<string, number>>;
}

/** The tail in memory does not reach back to the position: read the files. */
export interface Behind {
  readonly behind: true;
}

/** Everything after a position, from memory. */
export interface CaughtUp {
  readonly behind: false;
  readonly records: readonly StoredRecord[];
  readonly position: Position;
  readonly storeTimeMs: number;
  readonly slots: Readonly<Record<string, number>>;
}

/** The locks are held, and this is all that the decision may know. */
export interface GrantedUnit extends CaughtUp {
  readonly unit: number;
  readonly kv: readonly (readonly [key: string, entry: KvEntry])[];
  readonly documents: readonly StoredDocument[];
  readonly writeFormat: number;
}

/** The ids of the appends are `firstId`, `firstId + 1`, … in their order. */
export interface Written {
  readonly restart: false;
  readonly firstId: number;
  readonly batch: string;
  readonly storeTimeMs: number;
}
/** An `add` met a live row: nothing was written and the locks are free; decide again. */
export interface Restart {
  readonly restart: true;
}

/** A unit of work before its decision, with nothing left out. */
export interface LockRequestBody {
  readonly streams: readonly string[];
  readonly position: Position;
  readonly kv: readonly string[];
  readonly documents: readonly DocumentKey[];
  readonly fence?: Fence;
}

/** A unit of work after its decision. */
export interface WriteBody {
  readonly unit: number;
  /** Of one stream and key at most one. */
  readonly appends: readonly Append[];
  readonly kv: readonly KvChange[];
  readonly documents: readonly DocumentChange[];
  readonly counters: readonly CounterChange[];
  readonly evidence: readonly EvidenceEvent[];
}

/** Every call that is answered: what it carries and what comes back. */
export interface Calls {
  readJournal: { request: { readonly streams: readonly string[] }; answer: JournalFiles };
  catchUp: { request: { readonly position: Position }; answer: CaughtUp | Behind };
  lock: { request: LockRequestBody; answer: GrantedUnit | Behind };
  write: { request: WriteBody; answer: Written | Restart };
  keyValue: { request: { readonly statement: KvStatement }; answer: KvAnswer };
  values: { request: { readonly keys: readonly string[] }; answer: Map<string, KvEntry> };
  documents: { request: { readonly keys: readonly DocumentKey[] }; answer: StoredDocument[] };
  listDocuments: {
    request: { readonly kind: string; readonly afterId: string; readonly limit: number };
    answer: StoredDocument[];
  };
  counters: { request: { readonly keys: readonly string[] }; answer: Map<string, number> };
  count: { request: { readonly counts: readonly Count[] }; answer: Map<string, Counted> };
  see: {
    request: { readonly seenAtMs: readonly (readonly [string, number])[] };
    answer: undefined;
  };
  sightings: { request: { readonly ids: readonly string[] }; answer: Map<string, number> };
  recordAcks: {
    request: {
      readonly replicaStart: string;
      readonly acks: readonly GatewayAck[];
      readonly ttlMs: number;
    };
    answer: undefined;
  };
  gatewayAcks: { request: object; answer: GatewayAckRow[] };
  claimLeases: {
    request: { readonly claims: readonly LeaseClaim[]; readonly ttlMs: number };
    answer: ClaimedLease[];
  };
  releaseLeases: { request: { readonly fences: readonly Fence[] }; answer: undefined };
  leases: { request: object; answer: LeaseRow[] };
  sweep: { request: { readonly limit: number }; answer: number };
  replaceEpoch: { request: { readonly seenEpoch: string }; answer: string };
  /** Appends a statement of the chain about itself. */
  state: {
    request: { readonly statement: ChainStatement };
    answer: readonly ChainedRecord[];
  };
  chainHead: { request: object; answer: StoredHead };
  /** Answered once a commit of nothing is on the disk: the store can be written. */
  probe: { request: object; answer: undefined };
}
export type CallType = keyof Calls;

export type CallRequest = {
  [Type in CallType]: { readonly type: Type; readonly id: number } & Calls[Type]['request'];
}[CallType];

export type Request =
  | CallRequest
  /** The unit writes nothing; its locks are free. */
  | { readonly type: 'abort'; readonly unit: number }
  | { readonly type: 'unpin'; readonly pin: number };

export type Answer =
  | { readonly id: number; readonly ok: true; readonly value: Calls[CallType]['answer'] }
  | { readonly id: number; readonly ok: false; readonly code: string; readonly message: string };

/** What a thread needs to open a `FileStore`; `port` goes into the transfer list. */
export interface FileStoreConnection {
  readonly port: MessagePort;
  readonly heads: SharedArrayBuffer;
  readonly dataDir: string;
}

/** The last append of each key stays, in the place of the last; appends without a key all stay. */
export function lastOfEachKey(appends: readonly Append[]): readonly Append[] {
  const last = new Map<string, Append>();
  for (const append of appends) {
    if (append.key !== null) last.set(`${append.stream}\n${append.key}`, append);
  }
  return appends.filter(
    (append) => append.key === null || last.get(`${append.stream}\n${append.key}`) === append,
  );
}

/** The changes of a decision with nothing left out. */
export function writeBody(unit: number, changes: Changes): WriteBody {
  return {
    unit,
    appends: lastOfEachKey(changes.appends ?? []),
    kv: changes.kv ?? [],
    documents: changes.documents ?? [],
    counters: changes.counters ?? [],
    evidence: changes.evidence ?? [],
  };
}

/** The position moved to the newest of the records. */
export function moved(position: Position, records: readonly StoredRecord[]): Position {
  const cursors: Record<string, Cursor> = { ...position.cursors };
  for (const { stream, id, batch } of records) cursors[stream] = { id, batch };
  return { ...position, cursors };
}
