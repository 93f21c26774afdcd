/**
 * A connection that asks for what is new and nothing else: the way of every device authentication.
 *
 * On a direct connection pg does TLS and authentication, then its parser is taken off and the one
 * prepared statement is spoken by hand: the same bytes are sent until the position moves, and an
 * answer that differs from the last one only in the clock is recognised by comparing bytes. Behind
 * a pooler that would need a prepared statement, so pg asks there, planned anew each time.
 */
import pg from 'pg';
import { directConfig } from './connection.js';
import { rawText } from './connections.js';
import { toStoreError } from './database-error.js';
import {
  CATCH_UP,
  type CatchUpQuestion,
  type Caught,
  interpret,
  questionValues,
} from './journal.js';
import type { Row } from './row.js';
import {
  type Answer,
  encodeArray,
  encodeBindExecute,
  encodeParse,
  readAnswer,
  readLastWords,
  TERMINATE,
} from './wire.js';

/** One connection. After a failure it is destroyed and never used again. */
export interface ReaderLine {
  ask(question: CatchUpQuestion): Promise<Caught>;
  /** Ends the connection at once; everything asked rejects. Idempotent. */
  destroy(): void;
  /** The same, and lets the server know. */
  end(): void;
  readonly destroyed: boolean;
}

/** The server gives up when we do. */
const READER_SETTINGS = ['statement_timeout=2000'];

/** Connects within `CONNECT_MAX_MS`. Rejects with what pg rejects with. */
export async function openLine(config: pg.ClientConfig, pooled: boolean): Promise<ReaderLine> {
  const client = pooled
    ? new pg.Client({ ...config, pipeline: true })
    : new pg.Client(directConfig(config, READER_SETTINGS));
  const ignore = (): void => undefined;
  client.on('error', ignore);
  try {
    await client.connect();
  } catch (error) {
    client.connection.stream.destroy();
    throw error;
  }
  return pooled ? new PooledLine(client) : new DirectLine(client);
}

class PooledLine implements ReaderLine {
  destroyed = false;

  constructor(private readonly client: pg.Client) {
    client.on('end', () => {
      this.destroyed = true;
    });
  }

  async ask(question: CatchUpQuestion): Promise<Caught> {
    let rows: Row[];
    try {
      const query = { text: CATCH_UP.text, rowMode: 'array' as const, types: rawText };
      const values = questionValues(question);
      rows = (await this.client.query<(string | null)[]>({ ...query, values })).rows;
    } catch (error) {
      this.destroy();
      throw toStoreError(error);
    }
    return interpret(question, rows);
  }

  destroy(): void {
    this.destroyed = true;
    this.client.connection.stream.destroy();
  }

  end(): void {
    this.destroyed = true;
    this.client.connection.stream.end(TERMINATE);
  }
}

/** Milliseconds since 1970, the first column, have so many digits until the year 2286. */
const CLOCK_DIGITS = 13;

interface Pending {
  readonly question: CatchUpQuestion;
  readonly memory: Memory;
  readonly resolve: (caught: Caught) => void;
  readonly reject: (error: unknown) => void;
}

/** What is kept for a question while it is asked again. */
interface Memory {
  readonly bytes: Buffer;
  /** The last answer, if it said that nothing is new. */
  same: Same | undefined;
}

interface Same {
  /** The whole answer; the clock in it is overwritten with each answer's. */
  readonly answer: Buffer;
  /** Where the clock stands in each of its rows. */
  readonly clocks: readonly number[];
  readonly caught: Caught;
}

class DirectLine implements ReaderLine {
  readonly #stream;
  readonly #pending: Pending[] = [];
  readonly #memories = new WeakMap<CatchUpQuestion, Memory>();
  #unread: Buffer | undefined;
  destroyed = false;

  constructor(client: pg.Client) {
    this.#stream = client.connection.stream;
    this.#stream.removeAllListeners('data');
    this.#stream.on('data', (chunk: Buffer) => this.#receive(chunk));
    this.#stream.on('close', () => this.#fail());
    this.#stream.write(encodeParse(CATCH_UP.name, CATCH_UP.text));
  }

  ask(question: CatchUpQuestion): Promise<Caught> {
    const memory = this.#remember(question);
    return new Promise((resolve, reject) => {
      this.#pending.push({ question, memory, resolve, reject });
      if (this.destroyed) this.#fail();
      else this.#stream.write(memory.bytes);
    });
  }

  destroy(): void {
    this.#stream.destroy();
    this.#fail();
  }

  end(): void {
    this.#stream.end(TERMINATE);
    this.#fail();
  }

  #remember(question: CatchUpQuestion): Memory {
    const known = this.#memories.get(question);
    if (known !== undefined) return known;
    const [streams, ids, rowsMax] = questionValues(question);
    const values = [encodeArray(streams), encodeArray(ids), String(rowsMax)];
    const memory = { bytes: encodeBindExecute(CATCH_UP.name, values), same: undefined };
    this.#memories.set(question, memory);
    return memory;
  }

  #receive(chunk: Buffer): void {
    const bytes = this.#unread === undefined ? chunk : Buffer.concat([this.#unread, chunk]);
    this.#unread = undefined;
    let at = 0;
    while (at < bytes.length) {
      const end = this.#recognise(bytes, at) ?? this.#read(bytes, at);
      if (end === undefined) {
        this.#unread = bytes.subarray(at);
        return;
      }
      at = end;
    }
  }

  /** The same answer again but for the clock. Returns its end, undefined when it is not. */
  #recognise(bytes: Buffer, begin: number): number | undefined {
    const same = this.#pending[0]?.memory.same;
    if (same === undefined) return undefined;
    const { answer, clocks, caught } = same;
    const end = begin + answer.length;
    if (end > bytes.length) return undefined;
    const clock = begin + (clocks[0] ?? 0);
    for (const to of clocks) bytes.copy(answer, to, clock, clock + CLOCK_DIGITS);
    if (answer.compare(bytes, begin, end) !== 0) return undefined;
    const storeTimeMs = Number(bytes.toString('latin1', clock, clock + CLOCK_DIGITS));
    this.#pending.shift()?.resolve({ ...caught, storeTimeMs });
    return end;
  }

  #read(bytes: Buffer, begin: number): number | undefined {
    const answer = readAnswer(bytes, begin);
    if (answer === undefined) return undefined;
    const pending = this.#pending.shift();
    if (answer.error !== undefined) {
      pending?.reject(toStoreError(answer.error));
      this.destroy();
    } else if (pending !== undefined) {
      settle(pending, answer, bytes.subarray(begin, answer.end));
    }
    return answer.end;
  }

  #fail(): void {
    this.destroyed = true;
    const said = this.#unread === undefined ? undefined : readLastWords(this.#unread);
    this.#unread = undefined;
    for (const { reject } of this.#pending.splice(0)) reject(toStoreError(said));
  }
}

function settle(pending: Pending, { rows, firstColumns }: Answer, answer: Buffer): void {
  const { question, memory } = pending;
  try {
    const caught = interpret(question, rows);
    const isSame = caught.position === question.position && rows[0]?.[0]?.length === CLOCK_DIGITS;
    // Copied: what was received is a part of a larger buffer, which would be kept with it.
    memory.same = isSame
      ? { answer: Buffer.from(answer), clocks: firstColumns, caught }
      : undefined;
    pending.resolve(caught);
  } catch (error) {
    pending.reject(error);
  }
}
