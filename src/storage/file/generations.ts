/**
 * The files of the store while it is open: when the log has grown, a new one is begun and a
 * snapshot of everything before it is written in the background, one at a time; then the files
 * that it replaces are removed, unless somebody still reads them.
 */
import type { Clock } from '../../runtime/clock.js';
import { CommitLog, SyncFailure } from './commit-log.js';
import type { CommitState, GroupCommit } from './group-commit.js';
import type { JournalSource } from './journal-reader.js';
import { logPath, snapshotPath } from './layout.js';
import type { LoadedStore, LoadOptions } from './load-store.js';
import { writeSnapshot } from './snapshot.js';

/** What opening needs, and when a log has grown enough to be replaced. */
export interface GenerationOptions extends LoadOptions {
  readonly clock: Clock;
  /** A log shorter than this is never replaced; `LOG_BYTES_MIN` unless a test says otherwise. */
  readonly logBytesMin?: number;
}

/**
 * Below this a snapshot saves nothing that anybody would notice: a quarter of a million commits of
 * 250 bytes are read in about a second.
 */
export const LOG_BYTES_MIN = 64 * 1024 * 1024;
/**
 * The log grows to this part of the last snapshot, so that writing snapshots costs at most three
 * times the bytes that were committed, however large the store is.
 */
const LOG_PART_OF_SNAPSHOT = 0.5;

/** Knows which files make up the store now, and which are only waiting to be removed. */
export class Generations {
  private snapshot: number | undefined;
  private closedLogs: number[];
  /** The log is replaced when it is longer than this. */
  private rotateAtBytes: number;
  private running: Promise<void> | undefined;
  private readonly pins = new Set<number>();
  private newestPin = 0;
  private obsolete: string[] = [];
  private closed = false;

  constructor(
    private readonly options: GenerationOptions,
    private readonly state: CommitState,
    private readonly group: GroupCommit,
    loaded: LoadedStore,
  ) {
    this.snapshot = loaded.snapshot;
    this.closedLogs = loaded.closedLogs;
    this.rotateAtBytes = this.boundFor(loaded.snapshotBytes);
    // A crash came between a new log and its snapshot.
    if (this.closedLogs.length > 0) this.startSnapshot();
  }

  /** Called after commits: begins a new generation when it is time. */
  committed(): void {
    if (this.running !== undefined || this.group.log.endOffset < this.rotateAtBytes) return;
    const { fileSystem, dataDir } = this.options;
    const full = this.group.log;
    try {
      this.group.log = CommitLog.create(fileSystem, dataDir, full.generation + 1, '');
    } catch (error) {
      this.failed(error);
      return;
    }
    this.closedLogs.push(full.generation);
    full.close();
    this.startSnapshot();
  }

  /** What the journal is read from now; the files stay until the pin is given back. */
  pin(): JournalSource & { readonly pin: number } {
    this.newestPin += 1;
    this.pins.add(this.newestPin);
    const { log } = this.group;
    const { snapshot, logs } = this.closedFiles();
    const open = { path: log.path, generation: log.generation, endOffset: log.endOffset };
    return { pin: this.newestPin, snapshot, logs: [...logs, open] };
  }

  unpin(pin: number): void {
    this.pins.delete(pin);
    this.removeObsolete();
  }

  /** Resolves when no snapshot is being written any more. */
  async close(): Promise<void> {
    this.closed = true;
    await this.running;
  }

  private closedFiles(): JournalSource {
    const { dataDir } = this.options;
    const { snapshot } = this;
    return {
      snapshot:
        snapshot === undefined
          ? undefined
          : { path: snapshotPath(dataDir, snapshot), generation: snapshot },
      logs: this.closedLogs.map((generation) => {
        const path = logPath(dataDir, generation);
        return { path, generation, endOffset: Number.POSITIVE_INFINITY };
      }),
    };
  }

  private startSnapshot(): void {
    const { generation } = this.group.log;
    const source = this.closedFiles();
    const { tables, heads, storeClock, chain } = this.state;
    const task = {
      ...this.options,
      generation,
      source,
      tables,
      heads,
      chain: () => chain.tail,
      newestId: () => this.state.newestId,
      nowMs: () => storeClock.nowMs(),
      isCancelled: () => this.closed || this.group.broken !== undefined,
    };
    // What the logs repeat of the chain must be in its segments before they may go.
    this.running = chain
      .sync()
      .then(() => writeSnapshot(task))
      .then(
        (bytes) => this.finished(generation, bytes, source),
        (error: unknown) => this.failed(error),
      )
      .then(() => {
        this.running = undefined;
      });
  }

  private finished(generation: number, bytes: number, replaced: JournalSource): void {
    this.snapshot = generation;
    this.closedLogs = this.closedLogs.filter((log) => log >= generation);
    this.rotateAtBytes = this.boundFor(bytes);
    this.obsolete.push(...replaced.logs.map((log) => log.path));
    if (replaced.snapshot !== undefined) this.obsolete.push(replaced.snapshot.path);
    this.options.log.info({ generation, bytes }, 'Wrote a snapshot.');
    this.removeObsolete();
  }

  /** The logs stay as they are and the store goes on; another attempt follows when they grew. */
  private failed(error: unknown): void {
    if (this.closed) return;
    if (error instanceof SyncFailure) {
      this.group.syncFailed(error);
      return;
    }
    this.rotateAtBytes = this.group.log.endOffset + this.boundFor(0);
    this.options.log.warn({ error: String(error) }, 'No snapshot could be written; logs grow.');
  }

  private removeObsolete(): void {
    if (this.pins.size > 0) return;
    for (const path of this.obsolete.splice(0)) {
      try {
        this.options.fileSystem.unlink(path);
      } catch (error) {
        this.options.log.warn({ file: path, error: String(error) }, 'An old file stays.');
      }
    }
  }

  private boundFor(snapshotBytes: number): number {
    const { logBytesMin = LOG_BYTES_MIN } = this.options;
    return Math.max(logBytesMin, snapshotBytes * LOG_PART_OF_SNAPSHOT);
  }
}
