/**
 * The file backend's one writer, on the storage thread: it owns the directory, the tables, the
 * locks and the log. Clients (actor threads, each through a `FileSession`) read the journal from
 * the files themselves.
 *
 * The envelope format stays what the store says until `raiseWriteFormat`: the first start of a
 * newer binary must not lock the older one out, to which somebody may still have to go back.
 */

import type { CodedError } from '../../runtime/failure.js';
import { AckTable } from '../ack-table.js';
import type { DirectLinker } from '../chain-linker.js';
import { FORMAT_NEWEST } from '../envelope.js';
import type { StoredHead } from '../evidence-store.js';
import { LeaseTable } from '../lease-table.js';
import type { Position, StoredRecord } from '../store.js';
import { StoreError } from '../store-error.js';
import { ChainSegments, headOf } from './chain-segments.js';
import { type GenerationOptions, Generations } from './generations.js';
import { type CommitState, GroupCommit, type PendingWrite } from './group-commit.js';
import { HeadsWriter, makeSharedHeads } from './heads.js';
import { JournalTail } from './journal-tail.js';
import type { TableOperation } from './line-format.js';
import { loadStore, randomEpoch } from './load-store.js';
import { LockTable } from './lock-table.js';
import type { Behind, CaughtUp, JournalFiles } from './protocol.js';
import { StoreClock } from './store-clock.js';
import { Tables } from './tables.js';
import { Units } from './units.js';

/** A directory without a linker takes no evidence. */
export type FileDatabaseOptions = GenerationOptions & { readonly linker?: DirectLinker };

/** One open data directory; `lockDirectory` must hold it before, until after `close`. */
export class FileDatabase {
  readonly sharedHeads: SharedArrayBuffer;
  readonly units: Units;
  readonly tables = new Tables();
  /** In memory only: when this process stops, no gateway is connected to it. */
  readonly acks = new AckTable();
  readonly leases = new LeaseTable();
  private readonly state: CommitState;
  private readonly group: GroupCommit;
  private readonly generations: Generations;
  private historyChanged = false;
  private closing: Promise<void> | undefined;

  private constructor(private readonly options: FileDatabaseOptions) {
    const { clock, random, log } = options;
    this.sharedHeads = makeSharedHeads();
    const heads = new HeadsWriter(this.sharedHeads);
    const tail = new JournalTail((stream) => heads.get(stream).id);
    const storeClock = new StoreClock(clock, heads);
    const locks = new LockTable();
    const chain = new ChainSegments(options);
    this.state = { tables: this.tables, heads, tail, locks, storeClock, chain, newestId: 0 };
    const loaded = loadStore(options, this.state);
    const onFlushed = (): void => this.generations.committed();
    this.group = new GroupCommit(this.state, loaded.log, clock, random, log, onFlushed);
    this.units = new Units(locks, clock, this.group);
    this.generations = new Generations(options, this.state, this.group, loaded);
  }

  /** Throws `damaged`, `incompatible`, or what a system call threw. */
  static open(options: FileDatabaseOptions): FileDatabase {
    return new FileDatabase(options);
  }

  get nowMs(): number {
    return this.state.storeClock.nowMs();
  }

  get head(): StoredHead {
    return headOf(this.state.chain.tail);
  }

  /** Throws `incompatible` when the directory was opened without a signing key. */
  get linker(): DirectLinker {
    const { linker } = this.options;
    if (linker !== undefined) return linker;
    throw new StoreError('incompatible', 'Evidence cannot be chained without a signing key.');
  }

  write(write: PendingWrite): void {
    this.group.add(write);
  }

  /** An error that no caller is to see. */
  reportBug(error: unknown): void {
    this.options.log.error({ error }, 'The storage thread failed to serve a request.');
  }

  /** Commits nothing, to prove that the log can be written: a full disk takes a sync of nothing. */
  probe(onDone: () => void, onFailed: (error: CodedError) => void): void {
    this.writeStoreLine((draft) => ['store', draft.epoch, draft.writeFormat], onDone, onFailed);
  }

  /** What the tail in memory has after the position. Throws `history_changed`. */
  catchUp(position: Position): CaughtUp | Behind {
    this.checkHistory(position);
    const streams = Object.keys(position.cursors);
    const records: StoredRecord[] = [];
    for (const stream of streams) {
      const after = this.state.tail.after(stream, position.cursors[stream]?.id ?? 0);
      if (after === undefined) return { behind: true };
      records.push(...after);
    }
    return {
      behind: false,
      records,
      position: this.positionOf(streams),
      storeTimeMs: this.nowMs,
      slots: this.slotsOf(streams),
    };
  }

  /** The files of the journal as it is now; they stay until `unpin`. */
  readJournal(streams: readonly string[]): JournalFiles {
    return {
      ...this.generations.pin(),
      position: this.positionOf(streams),
      slots: this.slotsOf(streams),
    };
  }

  unpin(pin: number): void {
    this.generations.unpin(pin);
  }

  /** Calls `onDone` with the epoch in force afterwards. */
  replaceEpoch(
    seenEpoch: string,
    onDone: (epoch: string) => void,
    onFailed: (error: CodedError) => void,
  ): void {
    const fresh = randomEpoch(this.options.random);
    this.writeStoreLine(
      (draft) => {
        const replace = draft.epoch === seenEpoch && this.historyChanged;
        return ['store', replace ? fresh : draft.epoch, draft.writeFormat];
      },
      () => {
        const { epoch } = this.tables;
        if (epoch === fresh) this.historyChanged = false;
        this.state.heads.setEpoch(epoch);
        onDone(epoch);
      },
      onFailed,
    );
  }

  /** New records are written in this binary's newest format from here on. */
  raiseWriteFormat(onDone: () => void, onFailed: (error: CodedError) => void): void {
    this.writeStoreLine((draft) => ['store', draft.epoch, FORMAT_NEWEST], onDone, onFailed);
  }

  /** Idempotent. What waits to be written fails with `store_unavailable`. */
  close(): Promise<void> {
    this.closing ??= this.end();
    return this.closing;
  }

  private async end(): Promise<void> {
    this.group.break(new StoreError('store_unavailable', 'The store is closed.'));
    await this.generations.close();
    this.state.chain.close();
    this.group.log.close();
  }

  private writeStoreLine(
    line: (draft: Tables) => TableOperation,
    onDone: () => void,
    onFailed: (error: CodedError) => void,
  ): void {
    this.write({
      rows: [],
      lock: undefined,
      evaluate: (draft) => {
        const operation = line(draft);
        draft.apply(operation);
        return { appends: [], operations: [operation], onDurable: onDone };
      },
      onFailed,
    });
  }

  private checkHistory(position: Position): void {
    if (position.epoch !== this.tables.epoch) {
      throw new StoreError('history_changed', 'The position is of another epoch.');
    }
    for (const [stream, cursor] of Object.entries(position.cursors)) {
      const head = this.state.heads.get(stream);
      if (cursor.id < head.id || (cursor.id === head.id && cursor.batch === head.batch)) continue;
      this.historyChanged = true;
      throw new StoreError('history_changed', `Stream ${stream} has lost records.`);
    }
  }

  private positionOf(streams: readonly string[]): Position {
    const { heads } = this.state;
    const cursors = Object.fromEntries(streams.map((stream) => [stream, heads.get(stream)]));
    return { epoch: this.tables.epoch, serverStart: '', cursors };
  }

  private slotsOf(streams: readonly string[]): Record<string, number> {
    const slots: Record<string, number> = {};
    for (const stream of streams) {
      const slot = this.state.heads.slot(stream);
      if (slot !== undefined) slots[stream] = slot;
    }
    return slots;
  }
}
