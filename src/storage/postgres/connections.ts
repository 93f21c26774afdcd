/**
 * The pool of one thread and how statements run on it. Every connection is pipelined: statements
 * that are sent together cost one round trip, and each still has a snapshot of its own.
 *
 * No session state lives on these connections, so that they work behind a transaction pooler;
 * named prepared statements are used on direct connections only.
 */
import pg from 'pg';
import { StoreError } from '../store-error.js';
import type { AnswerWatch } from './answer-watch.js';
import { directConfig } from './connection.js';
import {
  isSerializationFailure,
  losesStatements,
  serverError,
  toStoreError,
} from './database-error.js';
import type { Row } from './row.js';

/** A query with the name that it is prepared under; a new text needs a new name. */
export interface Statement {
  readonly name: string;
  readonly text: string;
}

/** A statement of a unit of work with its parameters. */
export type Write = readonly [statement: Statement, values: readonly unknown[]];

/** Within this time a single statement answers; no transaction holds a lock for longer. */
export const STATEMENT_MAX_MS = 6_000;
/** More than there are replicas that write one row at once, each with a batch at a time. */
const STATEMENT_ATTEMPTS_MAX = 20;
/** An idle connection is closed after this: reconnecting costs milliseconds, so peaks decide. */
const IDLE_MAX_MS = 60_000;

/** What queries failed with, to be told apart from what the code around them throws. */
const queryErrors = new WeakSet<object>();

/** Values as the server wrote them: their readers know the types. */
export const rawText = { getTypeParser: () => (value: string) => value };

/** What the pool shares with its store. `pooled` says that the URL leads to a pooler. */
export interface ConnectionsOptions {
  readonly config: pg.ClientConfig;
  readonly connectionsMax: number;
  readonly pooled: boolean;
  readonly watch: AnswerWatch;
}

/** Connections for everything but catch-ups, and how often the database failed on them. */
export class Connections {
  readonly #pool: pg.Pool;
  readonly #options: ConnectionsOptions;
  readonly #waiting = new Set<(error: unknown) => void>();
  /** When those that are idle were last heard of. */
  readonly #heardMs = new WeakMap<pg.PoolClient, number>();
  #closing: Promise<void> | undefined;
  /** Failures of the database, whatever was asked; not what it refused. */
  errors = 0;

  constructor(options: ConnectionsOptions) {
    this.#options = options;
    this.#pool = new pg.Pool({
      ...(options.pooled ? options.config : directConfig(options.config)),
      pipeline: true,
      max: options.connectionsMax,
      idleTimeoutMillis: IDLE_MAX_MS,
    });
    // An idle connection that breaks is gone from the pool by then; nobody waits for it.
    this.#pool.on('error', () => {
      this.errors += 1;
    });
  }

  get open(): number {
    return this.#pool.totalCount;
  }

  /** Hands a connection to `work`; one in an unknown state afterwards is destroyed. */
  async use<T>(work: (session: Session) => Promise<T>): Promise<T> {
    const client = await this.#trusted();
    const session = new Session(client, this.#options.pooled, this.#options.watch);
    try {
      return await work(session);
    } catch (error) {
      throw this.failed(error);
    } finally {
      session.release();
      this.#heardMs.set(client, this.#options.watch.nowMs());
    }
  }

  /** One statement that only reads. Rejects with a `StoreError`. */
  read(statement: Statement, values: readonly unknown[]): Promise<Row[]> {
    return this.use((session) => single(session, statement, values));
  }

  /** One statement that writes: when its answer is lost, its outcome is unknown. */
  write(statement: Statement, values: readonly unknown[]): Promise<Row[]> {
    return this.use(async (session) => {
      const sent = !session.isBroken;
      try {
        return await single(session, statement, values);
      } catch (error) {
        if (sent && serverError(error) === undefined) throw outcomeUnknown();
        throw error;
      }
    });
  }

  /** Counts a failure and gives it a code of the seam. */
  failed(error: unknown): unknown {
    if (!(error instanceof StoreError) && !queryErrors.has(error as object)) return error;
    const failure = this.#closing === undefined ? toStoreError(error) : closedBefore(error);
    if (failure.code === 'store_unavailable' || failure.code === 'outcome_unknown') {
      this.errors += 1;
    }
    return failure;
  }

  /** The pool itself would leave those who wait for a connection waiting. */
  close(): Promise<void> {
    this.#closing ??= this.#pool.end();
    for (const reject of this.#waiting) reject(closed());
    this.#waiting.clear();
    return this.#closing;
  }

  /** Lets go of those that may be half-open, up to all: each would cost a deadline. */
  async #trusted(): Promise<pg.PoolClient> {
    const { watch, connectionsMax } = this.#options;
    for (let gone = 0; ; gone += 1) {
      const client = await this.#acquire();
      const heardMs = this.#heardMs.get(client);
      if (heardMs === undefined || !watch.mayBeSilent(heardMs) || gone === connectionsMax) {
        return client;
      }
      client.connection.stream.destroy();
      client.release(true);
    }
  }

  #acquire(): Promise<pg.PoolClient> {
    if (this.#closing !== undefined) return Promise.reject(closed());
    return new Promise((resolve, reject) => {
      this.#waiting.add(reject);
      this.#pool.connect((error, client) => {
        this.#waiting.delete(reject);
        if (client === undefined) {
          reject(this.failed(toStoreError(error)));
        } else if (this.#closing !== undefined) {
          client.release(true);
          reject(closed());
        } else {
          resolve(client);
        }
      });
    });
  }
}

/**
 * A statement that met another on a row and was refused for it has done nothing, and starts over.
 * That happens behind a pooler, where the isolation is the role's (`OWN_SETTINGS` are not passed
 * on), and one of those that meet always gets through.
 */
async function single(
  session: Session,
  statement: Statement,
  values: readonly unknown[],
): Promise<Row[]> {
  for (let attempt = 1; ; attempt += 1) {
    try {
      return await session.send(statement, values, STATEMENT_MAX_MS);
    } catch (error) {
      if (attempt === STATEMENT_ATTEMPTS_MAX || !isSerializationFailure(error)) throw error;
    }
  }
}

/** One connection while somebody uses it. */
export class Session {
  #failure: unknown;
  #unfinished = 0;
  readonly #onError = (error: unknown): void => {
    this.#failure ??= error;
  };

  constructor(
    private readonly client: pg.PoolClient,
    private readonly pooled: boolean,
    private readonly watch: AnswerWatch,
  ) {
    client.on('error', this.#onError);
  }

  /** What is sent on a broken connection never reaches the server. */
  get isBroken(): boolean {
    return this.#failure !== undefined || this.#stream.destroyed;
  }

  /** Rows in text form. Rejects with what pg rejects with. */
  async send(statement: Statement, values: readonly unknown[], boundMs: number): Promise<Row[]> {
    const query = {
      ...(this.pooled ? {} : { name: statement.name }),
      text: statement.text,
      values: values as unknown[],
      rowMode: 'array' as const,
      types: rawText,
    };
    const result = await this.#bounded(boundMs, () => this.client.query<(string | null)[]>(query));
    return result.rows;
  }

  /** Several statements without parameters in one message; the tag of the last is returned. */
  async script(text: string, boundMs: number): Promise<string> {
    const result = (await this.#bounded(boundMs, () => this.client.query(text))) as
      | pg.QueryResult
      | pg.QueryResult[];
    return (Array.isArray(result) ? result.at(-1) : result)?.command ?? '';
  }

  /** What `ask` sends leaves in one piece: one system call, and one packet where it fits. */
  inOnePiece<T>(ask: () => T): T {
    this.#stream.cork();
    try {
      return ask();
    } finally {
      this.#stream.uncork();
    }
  }

  /** Ends the connection at once: the server rolls back what is open on it. */
  abandon(): void {
    this.#failure ??= new Error('The connection was abandoned.');
    this.#stream.destroy();
  }

  /** Gives the connection back, unless it is broken, busy or in a transaction. */
  release(): void {
    const isIdle = this.#unfinished === 0 && this.client.getTransactionStatus() === 'I';
    const unfit = this.isBroken || !isIdle;
    if (unfit) this.abandon();
    this.client.release(unfit);
    this.client.removeListener('error', this.#onError);
  }

  get #stream(): pg.Connection['stream'] {
    return this.client.connection.stream;
  }

  async #bounded<T>(boundMs: number, ask: () => Promise<T>): Promise<T> {
    const entry = this.watch.begin(boundMs, () => this.abandon());
    this.#unfinished += 1;
    try {
      return await ask();
    } catch (error) {
      queryErrors.add(error as object);
      if (losesStatements(error)) this.abandon();
      throw error;
    } finally {
      this.#unfinished -= 1;
      this.watch.end(entry);
    }
  }
}

/** What every call on a store that was closed rejects with. */
export function closed(): StoreError {
  return new StoreError('store_unavailable', 'The store is closed.');
}

function closedBefore(error: unknown): StoreError {
  return error instanceof StoreError ? error : closed();
}

/** A write was sent and its answer never came: it may have been done, and a look will tell. */
export function outcomeUnknown(): StoreError {
  return new StoreError('outcome_unknown', 'The connection was lost before the database answered.');
}
