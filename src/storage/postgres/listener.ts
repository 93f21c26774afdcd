/**
 * Hints that another replica has committed something rare: `LISTEN` on a connection of its own,
 * past any pooler, and `NOTIFY` in the transaction of what is hinted at. A hint only saves waiting
 * for the next poll; nothing depends on it.
 *
 *   connecting → (its own beat comes back) listening → (a beat does not) connecting …
 *
 * A connection that looks alive and delivers nothing (half-open, or a pooler that was not
 * announced) fails its next beat: within ten seconds of the fault another one listens.
 */
import pg from 'pg';
import { type Clock, delay } from '../../runtime/clock.js';
import { describe } from '../../runtime/failure.js';
import type { Log } from '../../runtime/log.js';
import type { Random } from '../../runtime/random.js';
import { LEASES_HINT } from '../store.js';
import { directConfig } from './connection.js';
import type { Statement } from './connections.js';
import { toStoreError } from './database-error.js';

/** The channel of all hints of a database; the payload is the stream. */
export const HINT_CHANNEL = 'halo_hint';
/** Of electors: the main thread has nothing to do with the hints of streams. */
export const LEASES_CHANNEL = 'halo_leases';
/** Leases were given back, or somebody is asked to. */
export const LEASES_CHANGED = 'changed';
/** A pause between two beats: with `ECHO_MAX_MS` and a connect it stays below ten seconds. */
const BEAT_PERIOD_MS = 3_000;
/** A notification to oneself takes a millisecond; four seconds say that it will not come. */
const ECHO_MAX_MS = 4_000;
/** Between two attempts while the database cannot be reached: the poll delivers meanwhile. */
const RETRY_MS = 1_000;

/** Sent with the writes of a unit of work, so that it is delivered when they are committed. */
export const NOTIFY: Statement = { name: 'halo_hint', text: 'SELECT pg_notify($1, $2)' };

/** The parameters of `NOTIFY` for one stream. */
export function notifyValues(stream: string): unknown[] {
  return stream === LEASES_HINT ? [LEASES_CHANNEL, LEASES_CHANGED] : [HINT_CHANNEL, stream];
}

/** What a listener needs of its thread. */
export interface HintListenerOptions {
  /** Leads directly to the database: no pooler in between. */
  readonly config: pg.ClientConfig;
  readonly clock: Clock;
  readonly random: Random;
  readonly log: Log;
  /** A stream has changed; undefined: any may have, since hints may have been missed. */
  readonly onHint: (stream: string | undefined) => void;
}

/** One for each process. It takes one connection. */
export class HintListener {
  readonly #beat: string;
  #client: pg.Client | undefined;
  #listening = false;
  #closed = false;
  #echoed: (() => void) | undefined;
  #failed: ((cause: unknown) => void) | undefined;
  #running: Promise<void> | undefined;
  #stop: () => void = () => undefined;
  readonly #stopped = new Promise<void>((resolve) => {
    this.#stop = resolve;
  });

  constructor(private readonly options: HintListenerOptions) {
    this.#beat = `beat ${Buffer.from(options.random.bytes(8)).toString('hex')}`;
  }

  /** Whether hints arrive, as far as the last beat tells. */
  get isListening(): boolean {
    return this.#listening;
  }

  /** Connections that it holds now. */
  get open(): number {
    return this.#client === undefined ? 0 : 1;
  }

  /** Listens from now on, through failures, until it is closed. Idempotent. */
  start(): void {
    this.#running ??= this.#run();
  }

  /** Resolves when the connection is gone. Idempotent, and safe before `start`. */
  async close(): Promise<void> {
    this.#closed = true;
    this.#stop();
    this.#failed?.(undefined);
    this.#drop();
    await this.#running;
  }

  async #run(): Promise<void> {
    const { clock, log } = this.options;
    while (!this.#closed) {
      try {
        await this.#listen();
      } catch (error) {
        if (this.#listening && !this.#closed) {
          log.warn({ error: describe(toStoreError(error)) }, 'Hints stopped; the poll goes on.');
        }
      }
      this.#listening = false;
      this.#drop();
      await Promise.race([delay(clock, RETRY_MS), this.#stopped]);
    }
  }

  /** Ends by throwing, when the connection does not deliver any more, or when it is closed. */
  async #listen(): Promise<void> {
    const { config, clock, log, onHint } = this.options;
    const client = new pg.Client(directConfig(config));
    this.#client = client;
    const failed = new Promise<never>((_, reject) => {
      this.#failed = reject;
      client.on('error', reject);
      client.on('end', () => reject(new Error('The connection ended.')));
    });
    failed.catch(() => undefined);
    client.on('notification', ({ payload }) => this.#notified(payload ?? ''));
    await Promise.race([client.connect(), failed]);
    client.query(`LISTEN ${HINT_CHANNEL}`).catch((error: unknown) => this.#failed?.(error));
    while (!this.#closed) {
      const echo = new Promise<void>((resolve) => {
        this.#echoed = resolve;
      });
      client
        .query('SELECT pg_notify($1, $2)', [HINT_CHANNEL, this.#beat])
        .catch((error: unknown) => this.#failed?.(error));
      await Promise.race([echo, failed, late(clock)]);
      if (!this.#listening) {
        this.#listening = true;
        log.info({}, 'Hints of other replicas arrive.');
        onHint(undefined);
      }
      await Promise.race([delay(clock, BEAT_PERIOD_MS), failed]);
    }
  }

  #notified(payload: string): void {
    if (payload === this.#beat) this.#echoed?.();
    else if (!payload.startsWith('beat ')) this.options.onHint(payload);
  }

  /** Without a goodbye: whoever does not deliver does not answer one either. */
  #drop(): void {
    const client = this.#client;
    this.#client = undefined;
    if (client === undefined) return;
    client.on('error', () => undefined);
    client.connection.stream.destroy();
    client.end().catch(() => undefined);
  }
}

async function late(clock: Clock): Promise<never> {
  await delay(clock, ECHO_MAX_MS);
  throw new Error(`A notification to oneself did not arrive within ${ECHO_MAX_MS} ms.`);
}
