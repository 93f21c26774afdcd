/** One client of the storage thread: takes its requests, in order, and answers each. */
import { StoreError } from '../store-error.js';
import { documentName, type DocumentKey, type KvEntry, type StoredDocument } from '../store.js';
import { evaluateChanges, evaluateSightings, evaluateStatement } from './evaluate.js';
import type { FileDatabase } from './file-database.js';
import { valueLock, documentLock } from './lock-table.js';
import type {
  Answer, Behind, CallRequest, Calls, CallType, GrantedUnit, Request, WriteBody,
} from './protocol.js';
import type { Unit } from './units.js';

type Send = (answer: Answer) => void;

export class FileSession {
  private readonly pins = new Set<number>();

  constructor(
    private readonly database: FileDatabase,
    private readonly send: Send,
  ) {}

  receive(request: Request): void {
    switch (request.type) {
      case 'abort':
        return this.database.units.abort(this, request.unit);
      case 'unpin':
        this.pins.delete(request.pin);
        return this.database.unpin(request.pin);
      default:
        try {
          this.call(request);
        } catch (error) {
          this.fail(request.id, error);
        }
    }
  }

  /** The client's port was closed, or its thread died: its locks and pins are free. */
  end(): void {
    this.database.units.endAllOf(this);
    for (const pin of this.pins) this.database.unpin(pin);
    this.pins.clear();
  }

  private call(request: CallRequest): void {
    const { id } = request;
    const { database } = this;
    switch (request.type) {
      case 'readJournal': {
        const files = database.readJournal(request.streams);
        this.pins.add(files.pin);
        return this.answer<'readJournal'>(id, files);
      }
      case 'catchUp':
        return this.answer<'catchUp'>(id, database.catchUp(request.position));
      case 'lock':
        return this.lock(request);
      case 'write':
        return this.write(request);
      case 'keyValue':
        return this.statement(request);
      case 'values':
        return this.answer<'values'>(id, this.values(request.keys));
      case 'documents':
        return this.answer<'documents'>(id, this.documents(request.keys));
      case 'listDocuments': {
        const { kind, afterId, limit } = request;
        const listed = database.tables.list(kind, afterId, limit, database.nowMs);
        return this.answer<'listDocuments'>(id, listed);
      }
      case 'counters':
        return this.answer<'counters'>(id, this.counters(request.keys));
      case 'see':
        return this.see(request);
      case 'sightings':
        return this.answer<'sightings'>(id, this.sightings(request.ids));
      case 'sweep':
        return this.answer<'sweep'>(id, database.tables.sweep(request.limit, database.nowMs));
      case 'replaceEpoch':
        return database.replaceEpoch(
          request.seenEpoch,
          (epoch) => this.answer<'replaceEpoch'>(id, epoch),
          (error) => this.fail(id, error));
      case 'probe':
        return database.probe(
          () => this.answer<'probe'>(id, undefined), (error) => this.fail(id, error));
    }
  }

  private lock(request: CallRequest & { type: 'lock' }): void {
    this.database.units.begin(
      this, request,
      (unit) => {
        const granted = this.grant(unit);
        if (granted.behind) this.database.units.end(unit);
        this.answer<'lock'>(request.id, granted);
      },
      (error) => this.fail(request.id, error));
  }

  private grant(unit: Unit): GrantedUnit | Behind {
    const { database } = this;
    const { position, kv, documents } = unit.body;
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

  private write(request: CallRequest & { type: 'write' }): void {
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
      evaluate: (draft, nowMs) => {
        const operations = evaluateChanges(draft, request, nowMs);
        return {
          appends: operations === undefined ? [] : request.appends,
          operations: operations ?? [],
          onDurable: ({ firstId, batch, timeMs }) => {
            this.answer<'write'>(request.id, operations === undefined
              ? { restart: true }
              : { restart: false, firstId, batch, storeTimeMs: timeMs });
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

  private statement({ id, statement }: CallRequest & { type: 'keyValue' }): void {
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

  private see({ id, seenAtMs }: CallRequest & { type: 'see' }): void {
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
    const { code, message } = error instanceof StoreError
      ? error
      : new StoreError('store_unavailable', 'The storage thread failed.', { cause: error });
    this.send({ id, ok: false, code, message });
  }
}

/** Rows that a unit writes; another unit that read one under a lock goes first. */
function rowsOf({ kv, documents }: WriteBody): string[] {
  return [
    ...kv.map(({ key }) => valueLock(key)),
    ...documents.map((change) => documentLock(documentName(change))),
  ];
}

function present<Row>(
  keys: readonly string[], row: (key: string) => Row | undefined,
): Map<string, Row> {
  const found = new Map<string, Row>();
  for (const key of keys) {
    const value = row(key);
    if (value !== undefined) found.set(key, value);
  }
  return found;
}
