/** One client of the storage thread: takes its requests, in order, and answers each. */

import { CodedError } from '../../runtime/failure.js';
import type { ClaimedLease, LeaseClaim } from '../../runtime/lease.js';
import { STEP_DOWN_PREFIX, stepDownToken } from '../lease-table.js';
import { type DocumentKey, documentName, type KvEntry, type StoredDocument } from '../store.js';
import { StoreError } from '../store-error.js';
import {
  evaluateChanges,
  evaluateCounts,
  evaluateSightings,
  evaluateStatement,
} from './evaluate.js';
import type { FileDatabase } from './file-database.js';
import { documentLock, valueLock } from './lock-table.js';
import type {
  Answer,
  Behind,
  CallRequest,
  Calls,
  CallType,
  GrantedUnit,
  Request,
  WriteBody,
} from './protocol.js';
import type { Unit } from './units.js';

type Send = (answer: Answer) => void;
type CallOf<Type extends CallType> = Extract<CallRequest, { readonly type: Type }>;
/** What is answered at once, from memory. */
type ReadRequest = Exclude<
  CallRequest,
  CallOf<'lock' | 'write' | 'keyValue' | 'count' | 'see' | 'state' | 'replaceEpoch' | 'probe'>
>;

/** One for each port; ends with it, so that a dead thread leaves no lock behind. */
export class FileSession {
  private readonly pins = new Set<number>();

  constructor(
    private readonly database: FileDatabase,
    private readonly send: Send,
  ) {}

  receive(request: Request): void {
    try {
      this.handle(request);
    } catch (error) {
      if ('id' in request) this.fail(request.id, error);
    }
  }

  /** The client's port was closed, or its thread died: its locks and pins are free. */
  end(): void {
    this.database.units.endAllOf(this);
    for (const pin of this.pins) this.database.unpin(pin);
    this.pins.clear();
  }

  private handle(request: Request): void {
    switch (request.type) {
      case 'abort':
        this.database.units.abort(this, request.unit);
        break;
      case 'unpin':
        this.pins.delete(request.pin);
        this.database.unpin(request.pin);
        break;
      case 'lock':
        this.lock(request);
        break;
      case 'write':
        this.write(request);
        break;
      case 'keyValue':
        this.statement(request);
        break;
      case 'count':
        this.count(request);
        break;
      case 'see':
        this.see(request);
        break;
      case 'state':
        this.state(request);
        break;
      case 'replaceEpoch':
        this.replaceEpoch(request);
        break;
      case 'probe':
        this.probe(request);
        break;
      default:
        this.send({ id: request.id, ok: true, value: this.read(request) });
    }
  }

  private read(request: ReadRequest): Calls[CallType]['answer'] {
    const { database } = this;
    switch (request.type) {
      case 'readJournal': {
        const files = database.readJournal(request.streams);
        this.pins.add(files.pin);
        return files;
      }
      case 'catchUp':
        return database.catchUp(request.position);
      case 'values':
        return this.values(request.keys);
      case 'documents':
        return this.documents(request.keys);
      case 'listDocuments': {
        const { kind, afterId, limit } = request;
        return database.tables.list(kind, afterId, limit, database.nowMs);
      }
      case 'counters':
        return this.counters(request.keys);
      case 'sightings':
        return this.sightings(request.ids);
      case 'recordAcks': {
        const { replicaStart, acks, ttlMs } = request;
        database.acks.record(replicaStart, acks, database.nowMs + ttlMs, database.nowMs);
        return undefined;
      }
      case 'claimLeases':
        return request.claims.map((claim) => this.claimLease(claim, request.ttlMs));
      case 'releaseLeases':
        for (const fence of request.fences) database.leases.release(fence, database.nowMs);
        return undefined;
      case 'leases':
        return database.leases.list(database.nowMs);
      case 'chainHead':
        return database.head;
      case 'gatewayAcks':
        return database.acks.live(database.nowMs);
      case 'sweep':
        return database.tables.sweep(request.limit, database.nowMs);
    }
  }

  private claimLease(claim: LeaseClaim, ttlMs: number): ClaimedLease {
    const { leases, tables, nowMs } = this.database;
    const asked = tables.value(STEP_DOWN_PREFIX + claim.lease, nowMs)?.value;
    return { ...leases.claim(claim, ttlMs, nowMs), stepDownToken: stepDownToken(asked) };
  }

  private replaceEpoch({ id, seenEpoch }: CallOf<'replaceEpoch'>): void {
    this.database.replaceEpoch(
      seenEpoch,
      (epoch) => this.answer<'replaceEpoch'>(id, epoch),
      (error) => this.fail(id, error),
    );
  }

  private probe({ id }: CallOf<'probe'>): void {
    this.database.probe(
      () => this.answer<'probe'>(id, undefined),
      (error) => this.fail(id, error),
    );
  }

  private lock(request: CallOf<'lock'>): void {
    this.database.units.begin(
      this,
      request,
      (unit) => {
        const granted = this.grant(unit);
        if (granted.behind) this.database.units.end(unit);
        this.answer<'lock'>(request.id, granted);
      },
      (error) => this.fail(request.id, error),
    );
  }

  private grant(unit: Unit): GrantedUnit | Behind {
    const { database } = this;
    const { position, kv, documents } = unit.body;
    this.requireTerm(unit);
    const caughtUp = database.catchUp(position);
    if (caughtUp.behind) return caughtUp;
    return {
      ...caughtUp,
      unit: unit.id,
      kv: [...this.values(kv)],
      documents: this.documents(documents),
      writeFormat: database.tables.writeFormat,
    };
  }

  private isFenced({ body: { fence } }: Unit): boolean {
    const { leases, nowMs } = this.database;
    return fence !== undefined && !leases.holds(fence, nowMs);
  }

  private requireTerm(unit: Unit): void {
    if (this.isFenced(unit)) throw fencedError();
  }

  private write(request: CallOf<'write'>): void {
    const { database } = this;
    const unit = database.units.write(this, request.unit);
    if (unit === undefined) {
      throw new StoreError('store_unavailable', 'The unit held its locks for too long.', {
        retryAfterSeconds: 1,
      });
    }
    database.write({
      rows: rowsOf(request),
      lock: unit.lock,
      ...(request.evidence.length === 0
        ? {}
        : { chain: (tail) => database.linker.link(tail, request.evidence) }),
      evaluate: (draft, nowMs) => {
        // Once more where nothing can come between it and the write.
        if (this.isFenced(unit)) {
          const onDurable = (): void => {
            database.units.end(unit);
            this.fail(request.id, fencedError());
          };
          return { isVoid: true, appends: [], operations: [], onDurable };
        }
        const operations = evaluateChanges(draft, request, nowMs);
        return {
          isVoid: operations === undefined,
          appends: operations === undefined ? [] : request.appends,
          operations: operations ?? [],
          onDurable: ({ firstId, batch, timeMs }) => {
            this.answer<'write'>(
              request.id,
              operations === undefined
                ? { restart: true }
                : { restart: false, firstId, batch, storeTimeMs: timeMs },
            );
            database.units.end(unit);
          },
        };
      },
      onFailed: (error) => {
        database.units.end(unit);
        this.fail(request.id, error);
      },
    });
  }

  private state({ id, statement }: CallOf<'state'>): void {
    const { database } = this;
    database.write({
      rows: [],
      lock: undefined,
      chain: (tail) => database.linker.state(tail, statement),
      evaluate: () => ({
        appends: [],
        operations: [],
        onDurable: ({ chained }) => this.answer<'state'>(id, chained),
      }),
      onFailed: (error) => this.fail(id, error),
    });
  }

  private statement({ id, statement }: CallOf<'keyValue'>): void {
    this.database.write({
      rows: [valueLock(statement.key)],
      lock: undefined,
      evaluate: (draft, nowMs) => {
        const { operations, answer } = evaluateStatement(draft, statement, nowMs);
        return {
          appends: [],
          operations,
          onDurable: () => this.answer<'keyValue'>(id, answer),
        };
      },
      onFailed: (error) => this.fail(id, error),
    });
  }

  private count({ id, counts }: CallOf<'count'>): void {
    this.database.write({
      rows: [],
      lock: undefined,
      evaluate: (draft, nowMs) => {
        const { operations, counted } = evaluateCounts(draft, counts, nowMs);
        return {
          appends: [],
          operations,
          onDurable: () => this.answer<'count'>(id, counted),
        };
      },
      onFailed: (error) => this.fail(id, error),
    });
  }

  private see({ id, seenAtMs }: CallOf<'see'>): void {
    this.database.write({
      rows: [],
      lock: undefined,
      evaluate: (draft) => ({
        appends: [],
        operations: evaluateSightings(draft, seenAtMs),
        onDurable: () => this.answer<'see'>(id, undefined),
      }),
      onFailed: (error) => this.fail(id, error),
    });
  }

  private values(keys: readonly string[]): Map<string, KvEntry> {
    const { tables, nowMs } = this.database;
    return present(keys, (key) => tables.value(key, nowMs));
  }

  private documents(keys: readonly DocumentKey[]): StoredDocument[] {
    const { tables, nowMs } = this.database;
    return keys
      .map((key) => tables.document(key, nowMs))
      .filter((document) => document !== undefined);
  }

  private counters(keys: readonly string[]): Map<string, number> {
    const { tables, nowMs } = this.database;
    return present(keys, (key) => tables.counter(key, nowMs)?.value);
  }

  private sightings(ids: readonly string[]): Map<string, number> {
    return present(ids, (id) => this.database.tables.seenAtMs.get(id));
  }

  private answer<Type extends CallType>(id: number, value: Calls[Type]['answer']): void {
    this.send({ id, ok: true, value });
  }

  private fail(id: number, error: unknown): void {
    if (!(error instanceof CodedError)) this.database.reportBug(error);
    const { code, message } =
      error instanceof CodedError
        ? error
        : new StoreError('store_unavailable', 'The storage thread failed.', { cause: error });
    this.send({ id, ok: false, code, message });
  }
}

function fencedError(): StoreError {
  return new StoreError('fenced', 'The term of the lease is over.');
}

/** Rows that a unit writes; another unit that read one under a lock goes first. */
function rowsOf({ kv, documents }: WriteBody): string[] {
  return [
    ...kv.map(({ key }) => valueLock(key)),
    ...documents.map((change) => documentLock(documentName(change))),
  ];
}

function present<Row>(
  keys: readonly string[],
  row: (key: string) => Row | undefined,
): Map<string, Row> {
  const found = new Map<string, Row>();
  for (const key of keys) {
    const value = row(key);
    if (value !== undefined) found.set(key, value);
  }
  return found;
}
