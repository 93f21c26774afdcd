/**
 * Group commit: what is waiting to be written is decided in turn on one draft, written at once,
 * synced once, and only then applied and answered. Everything is one synchronous step, so that
 * nobody ever reads what is not on the disk.
 */
import type { Clock, Timer } from '../../runtime/clock.js';
import { CodedError } from '../../runtime/failure.js';
import type { Log } from '../../runtime/log.js';
import type { Random } from '../../runtime/random.js';
import type { ChainedRecord, ChainTail } from '../evidence-store.js';
import type { Append, StoredRecord } from '../store.js';
import { StoreError } from '../store-error.js';
import { type ChainSegments, tailAfter } from './chain-segments.js';
import { type CommitLog, SyncFailure } from './commit-log.js';
import type { HeadsWriter } from './heads.js';
import type { JournalTail } from './journal-tail.js';
import {
  type EvidenceOperation,
  encodeLine,
  type JournalOperation,
  type TableOperation,
} from './line-format.js';
import type { LockRequest, LockTable } from './lock-table.js';
import type { StoreClock } from './store-clock.js';
import { Tables } from './tables.js';

/** What one write of a group turned out to be. */
export interface Evaluated {
  readonly appends: readonly Append[];
  readonly operations: readonly TableOperation[];
  /** It has to start over: its evidence is not written either. */
  readonly isVoid?: boolean;
  /** Called once all of it is on the disk. */
  readonly onDurable: (written: WrittenLine) => void;
}
/** What a write got in the log: the ids of its appends follow from `firstId`. */
export interface WrittenLine {
  readonly firstId: number;
  readonly batch: string;
  readonly timeMs: number;
  /** What was chained with it. */
  readonly chained: readonly ChainedRecord[];
}

/** One unit or statement that waits to be written; it is answered through its callbacks. */
export interface PendingWrite {
  /** Names of rows that no other unit may hold a lock on. */
  readonly rows: readonly string[];
  /** The writer's own locks. */
  readonly lock: LockRequest | undefined;
  readonly evaluate: (draft: Tables, nowMs: number) => Evaluated;
  /** Makes the records of what it is evidence of; what it throws fails this write alone. */
  readonly chain?: (tail: ChainTail) => readonly ChainedRecord[];
  /**
   * Nothing was written (`store_unavailable`, or what `chain` threw), or nobody knows
   * (`outcome_unknown`).
   */
  readonly onFailed: (error: CodedError) => void;
}

/** Writes that wait, over all clients: a second of them at the rate of a slow disk. */
const WAITING_WRITES_MAX = 20_000;
/** How long a write waits for a row that a unit holds, as `lock_timeout` on Postgres. */
const ROW_WAIT_MAX_MS = 3_000;
const BATCH_BYTES = 8;

/** The store in memory, as it is on the disk: changed only after a sync. */
export interface CommitState {
  readonly tables: Tables;
  readonly heads: HeadsWriter;
  readonly tail: JournalTail;
  readonly locks: LockTable;
  readonly storeClock: StoreClock;
  readonly chain: ChainSegments;
  newestId: number;
}

/** One write of a group, decided and not written yet. */
interface Decided {
  readonly write: PendingWrite;
  readonly evaluated: Evaluated;
  readonly written: WrittenLine;
}

interface Waiting {
  readonly write: PendingWrite;
  readonly deadlineMs: number;
}

/** The one place that writes to the log, and that knows whether it still may. */
export class GroupCommit {
  /** Why nothing is written any more. */
  broken: StoreError | undefined;
  private waiting: Waiting[] = [];
  private scheduled = false;
  private lookAgain: Timer | undefined;

  constructor(
    private readonly state: CommitState,
    public log: CommitLog,
    private readonly clock: Clock,
    private readonly random: Random,
    private readonly events: Log,
    /** Called after each group that was written. */
    private readonly onFlushed: () => void,
  ) {}

  add(write: PendingWrite): void {
    const refusal = this.broken ?? (this.isFull() ? tooMany() : undefined);
    if (refusal !== undefined) {
      write.onFailed(refusal);
      return;
    }
    this.waiting.push({ write, deadlineMs: this.clock.monotonicMs() + ROW_WAIT_MAX_MS });
    this.schedule();
  }

  /** Looks again at what waits: rows may have become free. */
  schedule(): void {
    if (this.scheduled || this.waiting.length === 0) return;
    this.scheduled = true;
    this.clock.afterTurn(() => {
      this.scheduled = false;
      this.flush();
    });
  }

  /** Nothing is written from here on. */
  break(error: StoreError): void {
    this.broken ??= error;
    const waiting = this.waiting;
    this.waiting = [];
    for (const { write } of waiting) write.onFailed(this.broken);
  }

  private isFull(): boolean {
    return this.waiting.length >= WAITING_WRITES_MAX;
  }

  private flush(): void {
    const group = this.takeFree();
    const draft = new Tables(this.state.tables);
    const timeMs = this.state.storeClock.nowMs();
    let nextId = this.state.newestId + 1;
    let { tail } = this.state.chain;
    let lines = '';
    const decided: Decided[] = [];
    for (const write of group) {
      const linked = this.link(write, tail);
      if (linked === undefined) continue;
      const evaluated = write.evaluate(draft, timeMs);
      const chained = evaluated.isVoid === true ? [] : linked;
      const written: WrittenLine = { firstId: nextId, batch: this.batch(), timeMs, chained };
      const operations = [
        ...evaluated.appends.map(
          ({ stream, key, body }, i): JournalOperation => ['j', stream, nextId + i, key, body],
        ),
        ...evaluated.operations,
        ...chained.map(
          ({ seq, ref, hash, text }): EvidenceOperation => ['e', seq, ref, hash, text],
        ),
      ];
      nextId += evaluated.appends.length;
      tail = tailAfter(tail, chained);
      if (operations.length > 0) lines += encodeLine([timeMs, written.batch, ...operations]);
      decided.push({ write, evaluated, written });
    }
    const failure = lines === '' ? this.broken : this.append(lines);
    if (failure !== undefined) {
      for (const { write } of decided) write.onFailed(failure);
      return;
    }
    for (const { evaluated, written } of decided) this.apply(evaluated, written);
    for (const { evaluated, written } of decided) evaluated.onDurable(written);
    const { failure: segmentFailure } = this.state.chain;
    if (segmentFailure !== undefined) this.syncFailed(segmentFailure);
    if (lines !== '') this.onFlushed();
  }

  /** Undefined when the write failed for it. */
  private link(write: PendingWrite, tail: ChainTail): readonly ChainedRecord[] | undefined {
    if (write.chain === undefined) return [];
    try {
      this.state.chain.requireRoom();
      return write.chain(tail);
    } catch (error) {
      if (!(error instanceof CodedError)) {
        this.events.error({ error: String(error) }, 'Evidence could not be chained.');
      }
      const message = 'Evidence could not be chained.';
      const coded = new StoreError('store_unavailable', message, { cause: error });
      write.onFailed(error instanceof CodedError ? error : coded);
      return undefined;
    }
  }

  private append(lines: string): StoreError | undefined {
    if (this.broken !== undefined) return this.broken;
    try {
      this.log.append(lines);
      return undefined;
    } catch (error) {
      if (error instanceof SyncFailure) {
        this.syncFailed(error);
        return new StoreError('outcome_unknown', error.message, { cause: error });
      }
      this.events.error(
        { error: String((error as Error).cause ?? error) },
        (error as Error).message,
      );
      return error instanceof StoreError
        ? error
        : new StoreError('store_unavailable', 'The commit log cannot be written.', {
            cause: error,
          });
    }
  }

  /** The disk took a sync with an error: the end of all writing. */
  syncFailed(error: SyncFailure): void {
    this.events.error({ error: String(error.cause) }, error.message);
    this.break(new StoreError('store_unavailable', error.message, { cause: error }));
  }

  private apply(evaluated: Evaluated, written: WrittenLine): void {
    const { tables, heads, tail } = this.state;
    for (const operation of evaluated.operations) tables.apply(operation);
    this.state.chain.append(written.chained);
    const { batch, firstId } = written;
    for (const [i, { stream, key, body }] of evaluated.appends.entries()) {
      const record: StoredRecord = { stream, id: firstId + i, batch, key, body };
      tail.push(record, heads.get(stream).id);
      heads.set(stream, { id: record.id, batch });
      this.state.newestId = record.id;
    }
  }

  /** The writes whose rows are free, in their order. The others wait on, or are too late. */
  private takeFree(): PendingWrite[] {
    const nowMs = this.clock.monotonicMs();
    const free: PendingWrite[] = [];
    const late: PendingWrite[] = [];
    let nextDeadlineMs = Infinity;
    this.waiting = this.waiting.filter(({ write, deadlineMs }) => {
      const { rows, lock } = write;
      const held = rows.some((row) => this.state.locks.isHeldByAnother(row, lock));
      if (!held) free.push(write);
      else if (deadlineMs <= nowMs) late.push(write);
      else nextDeadlineMs = Math.min(nextDeadlineMs, deadlineMs);
      return held && deadlineMs > nowMs;
    });
    for (const write of late) {
      write.onFailed(new StoreError('store_unavailable', 'A row stayed locked for too long.'));
    }
    this.lookAgain?.cancel();
    this.lookAgain =
      nextDeadlineMs === Infinity
        ? undefined
        : this.clock.schedule(() => this.schedule(), nextDeadlineMs - nowMs + 1);
    return free;
  }

  private batch(): string {
    return Buffer.from(this.random.bytes(BATCH_BYTES)).toString('hex');
  }
}

function tooMany(): StoreError {
  return new StoreError('store_unavailable', 'Too many writes are waiting.', {
    retryAfterSeconds: 1,
  });
}
