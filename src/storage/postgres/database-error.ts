/** What goes wrong with a database, in the codes of the storage seam and of the migrations. */
import { CodedError } from '../../runtime/failure.js';
import { StoreError } from '../store-error.js';

/** Codes beside those of `store-error.ts`. All of them need a person: a retry cannot help. */
export const DATABASE_CODES = [
  /** A URL to another host without `sslmode=verify-full`, and no leave to do without. */
  'database_tls_required',
  /** A URL that cannot be read, or that asks for what is not supported. */
  'database_url_invalid',
  /** The database is older than PostgreSQL 14, not in UTF-8, or answers before it is durable. */
  'database_unsuitable',
  /** The database is behind this binary: run `halo-server migrate`. */
  'schema_behind',
  /** The database is ahead of this binary and no longer accepts it: use a newer binary. */
  'schema_ahead',
  /** The migration files are incomplete: the installation is damaged. */
  'migration_invalid',
  /** A running replica cannot read the newest format yet: replace it first. */
  'replica_too_old',
] as const;
export type DatabaseCode = (typeof DATABASE_CODES)[number];

/** Thrown when a database or a URL needs a person. The message says what to do. */
export class DatabaseError extends CodedError {
  constructor(
    override readonly code: DatabaseCode,
    message: string,
    options: { cause?: unknown } = {},
  ) {
    super(code, message, options);
    this.name = 'DatabaseError';
  }
}

/** An error as the server reports it (PostgreSQL protocol, "Error and Notice Message Fields"). */
export interface ServerError {
  /** Five characters: SQLSTATE. */
  readonly code: string;
  readonly severity: string | undefined;
  readonly constraint: string | undefined;
}

/** What the server said; undefined where the connection failed instead. */
export function serverError(error: unknown): ServerError | undefined {
  if (typeof error !== 'object' || error === null) return undefined;
  const { code, severity, constraint } = error as Partial<Record<string, unknown>>;
  if (typeof code !== 'string' || !/^[0-9A-Z]{5}$/.test(code)) return undefined;
  if (typeof severity !== 'string') return undefined;
  return { code, severity, constraint: typeof constraint === 'string' ? constraint : undefined };
}

/** Two units met in opposite order; either may simply start over. */
const SERIALIZATION_FAILURES = new Set(['40001', '40P01']);

/** True for a unit that met others in opposite order: it may start over at once. */
export function isSerializationFailure(error: unknown): boolean {
  return SERIALIZATION_FAILURES.has(serverError(error)?.code ?? '');
}

/**
 * What is said about a prepared statement that the connection no longer has, has already, or that
 * fits the tables no more. A new connection prepares it anew.
 */
const LOST_STATEMENTS = new Set(['26000', '42P05', '0A000']);

/** True when the connection must be replaced, since its prepared statements are gone. */
export function losesStatements(error: unknown): boolean {
  return LOST_STATEMENTS.has(serverError(error)?.code ?? '');
}

/** How a pooler answers to named statements and to settings at the start of a connection. */
const POOLER_ANSWERS = new Set(['26000', '42P05', '08P01']);

/**
 * The classes of SQLSTATE that blame the statement's data, too long a key included: trying a part
 * of it may succeed.
 */
const DATA_CLASSES = new Set(['21', '22', '23', '44', '54']);
/** The schema is not what this binary expects. */
const SCHEMA_CLASS = '42';
/** A role without the right: the operator has to grant it, and a retry then succeeds. */
const INSUFFICIENT_PRIVILEGE = '42501';

/** What operators meet, in words of ours: the server's may name a role, a host or a value. */
const SQLSTATE_MEANINGS: ReadonlyMap<string, string> = new Map([
  ['28P01', 'the password in the URL is wrong'],
  ['28000', 'the role in the URL may not log in from here'],
  ['3D000', 'the database in the URL does not exist'],
  [INSUFFICIENT_PRIVILEGE, 'the role in the URL may not do this'],
  ['25006', 'it is read-only'],
  ['53300', 'it has no connection to spare'],
  ['53100', 'its disk is full'],
  ['57P01', 'it is shutting down'],
  ['57P03', 'it is starting or shutting down'],
]);

/**
 * The error of a statement as the seam's. The message names the SQLSTATE and never the server's
 * text, which may contain a value; nor is the server's error the `cause`, since it has the same.
 */
export function toStoreError(error: unknown): StoreError {
  if (error instanceof StoreError) return error;
  const said = serverError(error);
  if (said === undefined) return new StoreError('store_unavailable', connectionMessage(error));
  const { code } = said;
  if (DATA_CLASSES.has(code.slice(0, 2))) {
    const where = said.constraint === undefined ? '' : ` (${said.constraint})`;
    return new StoreError('write_refused', `The database refused a statement: ${code}${where}.`);
  }
  if (POOLER_ANSWERS.has(code)) {
    const hint = 'a URL that leads to a pooler needs --database-pooled';
    return new StoreError('store_unavailable', `The database answered ${code}: ${hint}.`);
  }
  if (code.startsWith(SCHEMA_CLASS) && code !== INSUFFICIENT_PRIVILEGE) {
    return new StoreError('incompatible', `The database has another schema: ${code}.`);
  }
  const meaning = SQLSTATE_MEANINGS.get(code);
  const words = meaning === undefined ? code : `${code}: ${meaning}`;
  return new StoreError('store_unavailable', `The database answered ${words}.`);
}

/** What pg says in words of its own, without a host, a file or a value in them. */
const DRIVER_SENTENCE =
  /^(timeout|Connection terminated|The server does not support SSL|There was an error|SASL:)/;

/** Node's codes are safe to repeat and its messages are not: they may name hosts and files. */
function connectionMessage(error: unknown): string {
  const { code, message } = (error ?? {}) as Partial<NodeJS.ErrnoException>;
  const failed = 'The connection to the database failed';
  if (typeof code === 'string') return `${failed}: ${code}.`;
  if (DRIVER_SENTENCE.test(message ?? '')) return `${failed} (${message}).`;
  return `${failed}.`;
}
