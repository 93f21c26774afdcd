/**
 * The read lanes' own connection: writers that wait for a lock can never take it. A failure rejects
 * what was asked at once, and the next catch-up connects anew.
 */
import type pg from 'pg';
import type { Clock } from '../../runtime/clock.js';
import type { Random } from '../../runtime/random.js';
import { CATCH_UP_PAGE_MAX, type Position } from '../store.js';
import { StoreError } from '../store-error.js';
import type { AnswerWatch } from './answer-watch.js';
import { closed } from './connections.js';
import { toStoreError } from './database-error.js';
import { type CatchUpQuestion, type Caught, question } from './journal.js';
import { openLine, type ReaderLine } from './reader-line.js';

/** An answer later than this is of no use: the caller's knowledge would be stale. */
export const CATCH_UP_MAX_MS = 2_000;
/** After a failed attempt to connect, catch-ups fail at once for this long, then twice as long. */
const BACK_OFF_MIN_MS = 50;
/** A server that came back is noticed within a second. */
const BACK_OFF_MAX_MS = 1_000;

/** What the reader shares with its store. The configuration is the pool's, without settings. */
export interface ReaderOptions {
  readonly config: pg.ClientConfig;
  readonly pooled: boolean;
  readonly clock: Clock;
  readonly random: Random;
  readonly watch: AnswerWatch;
}

/** Catches up on a connection that nothing else uses. It connects when first asked. */
export class CatchUpReader {
  readonly #options: ReaderOptions;
  /** A position that did not move is asked for with the same bytes. */
  readonly #questions = new WeakMap<Position, CatchUpQuestion>();
  #line: ReaderLine | undefined;
  #opening: Promise<ReaderLine> | undefined;
  #closed = false;
  #failures = 0;
  #retryAtMs = 0;
  errors = 0;

  constructor(options: ReaderOptions) {
    this.#options = options;
  }

  get open(): number {
    return this.#line === undefined || this.#line.destroyed ? 0 : 1;
  }

  async catchUp(position: Position): Promise<Caught> {
    try {
      const line = this.#usable() ?? (await this.#connect());
      return await this.#ask(line, position);
    } catch (error) {
      throw this.#failed(error);
    }
  }

  close(): void {
    this.#closed = true;
    this.#line?.end();
  }

  #usable(): ReaderLine | undefined {
    if (this.#closed) throw closed();
    return this.#line?.destroyed === false ? this.#line : undefined;
  }

  async #ask(line: ReaderLine, position: Position): Promise<Caught> {
    const { watch } = this.#options;
    const entry = watch.begin(CATCH_UP_MAX_MS, () => line.destroy());
    try {
      return await line.ask(this.#question(position));
    } finally {
      watch.end(entry);
    }
  }

  #question(position: Position): CatchUpQuestion {
    let known = this.#questions.get(position);
    if (known === undefined) {
      known = question(position, CATCH_UP_PAGE_MAX);
      this.#questions.set(position, known);
    }
    return known;
  }

  #connect(): Promise<ReaderLine> {
    const { clock, config, pooled, random } = this.#options;
    if (this.#opening !== undefined) return this.#opening;
    if (clock.monotonicMs() < this.#retryAtMs) {
      throw new StoreError('store_unavailable', 'The database could not be reached a moment ago.');
    }
    const opening = openLine(config, pooled).then(
      (line) => {
        this.#line = line;
        this.#opening = undefined;
        this.#failures = 0;
        if (this.#closed) line.destroy();
        return line;
      },
      (error: unknown) => {
        this.#opening = undefined;
        this.#failures += 1;
        const backOffMs = Math.min(BACK_OFF_MAX_MS, BACK_OFF_MIN_MS * 2 ** this.#failures);
        this.#retryAtMs = clock.monotonicMs() + backOffMs * (0.5 + random.fraction() / 2);
        throw toStoreError(error);
      },
    );
    this.#opening = opening;
    return opening;
  }

  #failed(error: unknown): unknown {
    const counts = error instanceof StoreError && error.code === 'store_unavailable';
    if (counts && !this.#closed) this.errors += 1;
    return error;
  }
}
