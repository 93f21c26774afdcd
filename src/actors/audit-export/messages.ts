/** What the audit export can be asked, as data that crosses threads. */

/** Where a sink takes records. */
export type SinkType = 'file' | 'webhook';

/** What went wrong at the last attempt; never the text of a record, nor a secret. */
export interface SinkFailure {
  /** A stable code, such as `webhook_failed` or the file system's `ENOSPC`. */
  readonly code: string;
  readonly message: string;
  /** ms since the Unix epoch on the store's clock. */
  readonly atMs: number;
  /** Attempts that failed one after another, this one included. */
  readonly attempts: number;
}

/** The chain was another one than the cursor was written for; the newest time that it was. */
export interface SinkRestored {
  readonly atMs: number;
  /** The sink got everything after this number again. */
  readonly resumedAfterSeq: number;
}

/** One sink, the same on whatever replica is asked. Times are ms since the Unix epoch. */
export interface SinkStatus {
  readonly name: string;
  readonly type: SinkType;
  /** The holder of the sink's lease, which begins with its replica's id; null: nobody has it. */
  readonly leader: string | null;
  /** Number of the newest record that the sink has; -1: none yet. */
  readonly cursor: number;
  /** Number of the newest record of the chain; -1: none yet. */
  readonly head: number;
  readonly lagRecords: number;
  /** Age of the oldest record that the sink lacks; 0: it lacks none; null: it cannot be read. */
  readonly lagSeconds: number | null;
  readonly lastDeliveredAtMs: number | null;
  readonly lastError: SinkFailure | null;
  readonly restored: SinkRestored | null;
}

/** Reads and their answers. */
export interface AuditExportReads {
  sinks: { payload: Readonly<Record<string, never>>; answer: readonly SinkStatus[] };
}

/** What metrics say of a sink: the counts are of this process, the lag is the sink's. */
export interface SinkFacts {
  readonly name: string;
  readonly lagRecords: number;
  readonly delivered: number;
  readonly errors: number;
}

/** Facts of the actor. */
export interface AuditExportFacts {
  readonly sinks: readonly SinkFacts[];
}
