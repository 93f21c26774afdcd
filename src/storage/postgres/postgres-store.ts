/**
 * The storage seam on PostgreSQL (14 or newer), one store a thread. It owns a connection for
 * catch-ups and a pool for everything else; a migrated database and a role with SELECT, INSERT,
 * UPDATE and DELETE are all it needs.
 */
import type { Clock } from '../../runtime/clock.js';
import type { LeaseRow } from '../../runtime/lease.js';
import type { Random } from '../../runtime/random.js';
import type { ChainLinker, EvidenceStore } from '../evidence-store.js';
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
  Locked,
  Position,
  Store,
  StoredDocument,
  StoredRecord,
  UnitOfWork,
} from '../store.js';
import { AnswerWatch } from './answer-watch.js';
import { CatchUpReader } from './catch-up-reader.js';
import { clientConfig, type DatabaseAccess } from './connection.js';
import { Connections } from './connections.js';
import { count, getCounters, getSightings, recordSightings } from './counters.js';
import { getDocuments, listDocuments } from './documents.js';
import { evidenceStore } from './evidence-chain.js';
import { type OutboxSeal, OutboxWriters } from './evidence-outbox.js';
import { listGatewayAcks, recordGatewayAcks } from './gateway-acks.js';
import { keyValue } from './key-value.js';
import { listLeases } from './leases.js';
import { replay } from './replay.js';
import { replaceEpoch, sweep } from './store-row.js';
import { UnitRunner } from './unit-of-work.js';

/** What one thread needs for a store: its access, its share of connections, time and chance. */
export interface PostgresStoreOptions extends DatabaseAccess {
  /** The URL leads to a transaction pooler: no named prepared statements, no session settings. */
  readonly pooled: boolean;
  /** A way past the pooler, for catch-ups; without it they go the way of everything else. */
  readonly directUrl?: string;
  /** This thread's share of the process's connections, at least `CONNECTIONS_MIN`. */
  readonly connectionsMax: number;
  /** Authenticates queued evidence, and chains it; without it there can be none. */
  readonly evidence?: {
    readonly seal: OutboxSeal;
    readonly linker: ChainLinker;
    readonly onEnqueued?: () => void;
  };
  readonly clock: Clock;
  readonly random: Random;
}

/** One for the read lanes and one for everything else. */
export const CONNECTIONS_MIN = 2;

/** Connects when it is first asked something. Throws `DatabaseError` for a URL it refuses. */
export function openPostgresStore(options: PostgresStoreOptions): PostgresStore {
  return new PostgresStore(options);
}

/** See the top of this file. Failures reject with a `StoreError`, as the seam says. */
export class PostgresStore implements Store {
  readonly backend = 'postgres';
  readonly kv: KeyValue;
  readonly evidence: EvidenceStore;
  readonly #random: Random;
  readonly #watch: AnswerWatch;
  readonly #reader: CatchUpReader;
  readonly #connections: Connections;
  readonly #units: UnitRunner;
  #closing: Promise<void> | undefined;

  constructor(options: PostgresStoreOptions) {
    const { connectionsMax, pooled, directUrl, evidence, clock, random, ...access } = options;
    if (connectionsMax < CONNECTIONS_MIN) {
      throw new RangeError(`A store needs ${CONNECTIONS_MIN} connections, not ${connectionsMax}.`);
    }
    const config = clientConfig(access);
    const watch = new AnswerWatch(clock);
    this.#random = random;
    this.#watch = watch;
    const reading =
      directUrl === undefined
        ? { config, pooled }
        : { config: clientConfig({ ...access, url: directUrl }), pooled: false };
    this.#reader = new CatchUpReader({ ...reading, clock, random, watch });
    const poolMax = connectionsMax - 1;
    this.#connections = new Connections({ config, connectionsMax: poolMax, pooled, watch });
    this.#units = new UnitRunner(
      this.#connections,
      random,
      new OutboxWriters(random, evidence?.seal, evidence?.onEnqueued),
    );
    this.kv = keyValue(this.#connections);
    this.evidence = evidenceStore(this.#connections, evidence?.linker);
  }

  facts(): Readonly<Record<string, number>> {
    return {
      dbOpenConnections: this.#reader.open + this.#connections.open,
      dbErrors: this.#reader.errors + this.#connections.errors,
    };
  }

  replay(
    streams: readonly string[],
    onRecords: (records: readonly StoredRecord[]) => void,
  ): Promise<Position> {
    return replay(this.#connections, streams, onRecords);
  }

  catchUp(position: Position): Promise<CatchUp> {
    return this.#reader.catchUp(position);
  }

  commit(unit: UnitOfWork, decide: (locked: Locked) => Changes): Promise<Committed> {
    return this.#units.run(unit, decide);
  }

  documents(keys: readonly DocumentKey[]): Promise<StoredDocument[]> {
    return getDocuments(this.#connections, keys);
  }

  listDocuments(kind: string, afterId: string, limit: number): Promise<StoredDocument[]> {
    return listDocuments(this.#connections, kind, afterId, limit);
  }

  counters(keys: readonly string[]): Promise<Map<string, number>> {
    return getCounters(this.#connections, keys);
  }

  count(counts: readonly Count[]): Promise<Map<string, Counted>> {
    return count(this.#connections, counts);
  }

  recordSightings(seenAtMs: ReadonlyMap<string, number>): Promise<void> {
    return recordSightings(this.#connections, seenAtMs);
  }

  sightings(ids: readonly string[]): Promise<Map<string, number>> {
    return getSightings(this.#connections, ids);
  }

  recordGatewayAcks(
    replicaStart: string,
    acks: readonly GatewayAck[],
    ttlMs: number,
  ): Promise<void> {
    return recordGatewayAcks(this.#connections, replicaStart, acks, ttlMs);
  }

  gatewayAcks(): Promise<GatewayAckRow[]> {
    return listGatewayAcks(this.#connections);
  }

  leases(): Promise<LeaseRow[]> {
    return listLeases(this.#connections);
  }

  sweep(limit: number): Promise<number> {
    return sweep(this.#connections, limit);
  }

  replaceEpoch(seenEpoch: string): Promise<string> {
    return replaceEpoch(this.#connections, this.#random, seenEpoch);
  }

  close(): Promise<void> {
    if (this.#closing === undefined) {
      this.#reader.close();
      this.#closing = this.#connections.close();
      this.#watch.abandonAll();
    }
    return this.#closing;
  }
}
