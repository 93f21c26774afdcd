/**
 * Forwards the chain to one sink, under the term of the sink's lease.
 *
 * Reads what follows on the cursor, delivers it, and then writes the cursor under the term's fence:
 * at least once, in order, and never by two replicas past each other. Whatever fails is said in the
 * cursor's document, and tried again after a pause; nothing is skipped. Nobody waits for a sink but
 * its own forwarder, which holds one batch, no lock and no connection while it does.
 */
import type { Clock } from '../../runtime/clock.js';
import { CodedError } from '../../runtime/failure.js';
import type { Log } from '../../runtime/log.js';
import type { Random } from '../../runtime/random.js';
import { type BackoffBounds, backoffMs } from '../../runtime/restart-policy.js';
import { type ActiveTerm, FENCED } from '../../runtime/thread-terms.js';
import type { ChainedRecord } from '../../storage/evidence-store.js';
import { documentName, type Position, type Store } from '../../storage/store.js';
import type { SinkFailure } from './messages.js';
import { nextRecords } from './reading.js';
import type { Sink } from './sink.js';
import { advanced, cursorKey, cursorOf, fallenBack, type SinkCursor } from './state.js';
import { untilAborted, within } from './waiting.js';

/** What a forwarder is given. */
export interface ForwarderEnvironment {
  readonly store: Store;
  readonly clock: Clock;
  readonly random: Random;
  readonly log: Log;
}

/** A record is with its sink about a second after it was chained; one small query a second. */
const LOOK_EVERY_MS = 1_000;
/** A receiver that needs longer for one batch is as good as none: it gets it again. */
export const DELIVERY_MAX_MS = 15_000;
/** The largest batch, but for a single record, which may have 257 KiB. */
const BATCH_BYTES_MAX = 1_048_576;
/** Soon enough for a blip; a receiver that is down for a day is asked once a minute. */
const BACKOFF: BackoffBounds = { backoffMinMs: 500, backoffMaxMs: 60_000 };
/** What a receiver asks for is heeded up to here. */
const RETRY_AFTER_MAX_MS = 300_000;

/** A cursor, and what its next write has to find in the store. */
interface Place {
  readonly cursor: SinkCursor;
  readonly version: number;
  readonly position: Position;
}

/** One for each sink and process; `work` is called for one term after another. */
export class Forwarder {
  /** Records that this process delivered, and attempts of it that failed. */
  delivered = 0;
  errors = 0;
  /** Failures one after another. */
  private attempts = 0;
  /** A delivery that did not end when it was told to: nothing is sent beside it. */
  private hanging: Promise<void> | undefined;

  constructor(
    readonly sink: Sink,
    private readonly environment: ForwarderEnvironment,
  ) {}

  /** See `TermWork`. Rejects with `fenced` alone. */
  async work(term: ActiveTerm): Promise<void> {
    try {
      await this.forward(term);
    } finally {
      const closing = this.sink.close().catch(() => undefined);
      // What hangs would hold the end of the term as well.
      if (this.hanging === undefined) await closing;
    }
  }

  private async forward(term: ActiveTerm): Promise<void> {
    this.attempts = 0;
    let place: Place | undefined;
    while (isOn(term)) {
      let pauseMs = 0;
      try {
        const step = await this.step(place ?? (await this.load()), term);
        this.attempts = 0;
        ({ place } = step);
        if (step.isLast) pauseMs = LOOK_EVERY_MS;
      } catch (error) {
        if (isFenced(error)) throw error;
        if (!isOn(term)) return;
        place = undefined;
        pauseMs = await this.failed(error, term);
      }
      if (pauseMs > 0) await untilAborted(this.environment.clock, pauseMs, term.signal);
    }
  }

  /** One batch. `isLast`: there is nothing more for the moment. */
  private async step(
    place: Place,
    term: ActiveTerm,
  ): Promise<{ readonly place: Place; readonly isLast: boolean }> {
    const { store, log } = this.environment;
    const { cursor, position } = place;
    const { epoch } = position;
    const limit = Math.max(1, this.sink.batchMax >> this.attempts);
    const next = await nextRecords(store.evidence, cursor, limit);
    const isOtherHistory = cursor.epoch !== '' && cursor.epoch !== epoch;
    if (next.kind === 'restored' || isOtherHistory) {
      const mark = next.kind === 'restored' ? next.mark : cursor;
      const fields = { sink: this.sink.name, fromSeq: cursor.seq, toSeq: mark.seq };
      log.warn(fields, 'The chain was restored: the sink gets what comes after this number again.');
      const back = (atMs: number): SinkCursor => fallenBack(cursor, mark, { epoch, atMs });
      return { place: await this.save(place, term, back), isLast: false };
    }
    const records = fitting(next.records);
    const last = records.at(-1);
    if (last === undefined) return { place, isLast: true };
    await this.deliver(records, epoch, term);
    this.delivered += records.length;
    const on = (atMs: number): SinkCursor => advanced(cursor, last, { epoch, atMs });
    const isLast = records.length === next.records.length && records.length < limit;
    return { place: await this.save(place, term, on), isLast };
  }

  private async load(): Promise<Place> {
    const { store } = this.environment;
    const position = await store.replay([], () => undefined);
    const [document] = await store.documents([cursorKey(this.sink.name)]);
    return { position, version: document?.version ?? 0, cursor: cursorOf(document) };
  }

  /** Only under the term, and only over what was read. */
  private async save(
    { position, version }: Place,
    { fence }: ActiveTerm,
    change: (atMs: number) => SinkCursor,
  ): Promise<Place> {
    const key = cursorKey(this.sink.name);
    let cursor: SinkCursor | undefined;
    const unit = { streams: [], position, documents: [key], fence };
    const committed = await this.environment.store.commit(unit, ({ documents, storeTimeMs }) => {
      const stored = documents.get(documentName(key))?.version ?? 0;
      if (stored !== version) throw cursorMoved();
      cursor = change(storeTimeMs);
      const body = JSON.stringify(cursor);
      return { documents: [{ op: 'put', ...key, body, expiresAtMs: null }] };
    });
    if (cursor === undefined) throw cursorMoved();
    return { cursor, version: version + 1, position: committed.position };
  }

  /** At most for a time, and not beside an earlier delivery that has not ended. */
  private async deliver(
    records: readonly ChainedRecord[],
    epoch: string,
    term: ActiveTerm,
  ): Promise<void> {
    if (this.hanging !== undefined) {
      throw new CodedError('sink_hangs', 'an earlier delivery was given up and has not ended yet');
    }
    if (!isOn(term)) throw new CodedError('term_over', 'the term of the lease ended');
    const stop = new AbortController();
    const delivering = this.sink.deliver({ records, epoch }, stop.signal);
    this.hanging = delivering.finally(() => {
      this.hanging = undefined;
    });
    this.hanging.catch(() => undefined);
    const { clock } = this.environment;
    await within(delivering, { clock, maxMs: DELIVERY_MAX_MS, signal: term.signal, stop });
  }

  /** Says it where every replica can read it, and returns how long to pause. */
  private async failed(error: unknown, term: ActiveTerm): Promise<number> {
    this.attempts += 1;
    if (isOfStore(error)) this.note(error, 'The store could not be asked for a sink.');
    else await this.sinkFailed(error, term);
    const askedMs = error instanceof CodedError ? (error.retryAfterSeconds ?? 0) * 1_000 : 0;
    const pauseMs = backoffMs(this.attempts, BACKOFF, this.environment.random);
    return Math.max(pauseMs, Math.min(askedMs, RETRY_AFTER_MAX_MS));
  }

  private async sinkFailed(error: unknown, term: ActiveTerm): Promise<void> {
    const { attempts } = this;
    this.errors += 1;
    const { code, message } = this.note(error, 'A sink takes no records.');
    const failure = (atMs: number): SinkFailure => ({ code, message, attempts, atMs });
    try {
      const place = await this.load();
      await this.save(place, term, (atMs) => ({ ...place.cursor, failure: failure(atMs) }));
    } catch (cause) {
      if (isFenced(cause)) throw cause;
      this.note(cause, 'The failure of a sink could not be written down.');
    }
  }

  /** Once for each series of failures, so that a sink that is down for a day fills no log. */
  private note(error: unknown, message: string): ReturnType<typeof failureOf> {
    const failure = failureOf(error);
    const { log } = this.environment;
    const fields = { sink: this.sink.name, code: failure.code, error: failure.message };
    if (this.attempts === 1) log.warn(fields, message);
    return failure;
  }
}

/** Whether the term may still be acted under. */
function isOn(term: ActiveTerm): boolean {
  return !term.signal.aborted && term.isTrusted();
}

/** What passes when the store is back, and is no failure of the sink. */
const STORE_CODES: ReadonlySet<string> = new Set([
  'store_unavailable',
  'outcome_unknown',
  'history_changed',
  'write_refused',
  'cursor_moved',
]);

function isOfStore(error: unknown): boolean {
  return error instanceof CodedError && STORE_CODES.has(error.code);
}

function isFenced(error: unknown): boolean {
  return error instanceof CodedError && error.code === FENCED;
}

/** What is shown of an error: of one without a code of ours only the system's, such as `ENOSPC`. */
function failureOf(error: unknown): { readonly code: string; readonly message: string } {
  if (error instanceof CodedError) return { code: error.code, message: error.message };
  const code = (error as { code?: unknown } | undefined)?.code;
  const told = typeof code === 'string' ? code : 'internal_error';
  return { code: told, message: `the sink failed with ${told}` };
}

function cursorMoved(): CodedError {
  const message = 'the cursor is not what was read: the store was restored meanwhile';
  return new CodedError('cursor_moved', message);
}

/** As many as a batch may hold, and at least one. */
function fitting(records: readonly ChainedRecord[]): readonly ChainedRecord[] {
  let bytes = 0;
  const end = records.findIndex(({ text }, index) => {
    bytes += Buffer.byteLength(text);
    return index > 0 && bytes > BATCH_BYTES_MAX;
  });
  return end === -1 ? records : records.slice(0, end);
}
