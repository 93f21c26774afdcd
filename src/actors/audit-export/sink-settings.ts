/** The sinks of a process as its configuration has them: plain data that crosses threads. */

interface NamedSettings {
  readonly name: string;
  /** The most records of one batch. */
  readonly batchMax: number;
}

/** Lines appended to a file of the replica that leads. */
export interface FileSinkSettings extends NamedSettings {
  readonly type: 'file';
  /** Absolute. */
  readonly path: string;
}

/** Batches posted to an address, signed. */
export interface WebhookSinkSettings extends NamedSettings {
  readonly type: 'webhook';
  readonly url: string;
  readonly secret: string;
  /** Signs beside the other one while receivers change over; null: none does. */
  readonly previousSecret: string | null;
  /** Whether the address may be in a private network, and without TLS. */
  readonly allowPrivate: boolean;
}

/** One sink. */
export type SinkSettings = FileSinkSettings | WebhookSinkSettings;

/** Each is a lease, a query a second and a batch in memory. */
export const SINKS_MAX = 8;
/**
 * Of these, files: one on a disk that hangs holds one of the four threads that a process has for
 * all its files and names, and with the look-up of a host there must be one left.
 */
export const FILE_SINKS_MAX = 2;
/** A sink's name is part of its lease's. */
export const SINK_NAME = /^[a-z0-9][a-z0-9-]{0,62}$/;
/** Some 100 KB of ordinary records. */
export const BATCH_RECORDS_DEFAULT = 200;
/** Larger batches gain nothing, and their failure repeats more. */
export const BATCH_RECORDS_MAX = 1_000;
/** A secret that can be guessed signs nothing: 32 characters, as an admin token. */
export const SECRET_LENGTH_MIN = 32;
