/**
 * Bounds how long an answer of the database may take, without a timer for each query: one coarse
 * timer looks at what is in flight. A connection that was cut without a word (half-open) gives no
 * error by itself for minutes; here it is destroyed, and everything on it fails.
 */
import type { Clock, Timer } from '../../runtime/clock.js';

/** One question to the database that has not been answered yet; a token for `end`. */
export interface InFlight {
  /** Both on the monotonic clock. */
  readonly askedMs: number;
  readonly deadlineMs: number;
  /** Found late once. After a pause of this process the answer may lie unread in the socket. */
  late: boolean;
  /** Ends the connection; its queries then fail by themselves. */
  readonly abandon: () => void;
}

/** A bound of two seconds is kept to within an eighth, at eight wake-ups a second under load. */
const LOOK_EVERY_MS = 125;

/** The questions of one store. It keeps no timer while nothing is in flight. */
export class AnswerWatch {
  readonly #inFlight = new Set<InFlight>();
  #timer: Timer | undefined;
  #silentSinceMs = Number.NEGATIVE_INFINITY;

  constructor(private readonly clock: Clock) {}

  /**
   * Whether a connection that was last heard of at that time may be half-open: another one was
   * asked something later, and never answered. What one of them lost all may have lost.
   */
  mayBeSilent(heardMs: number): boolean {
    return heardMs <= this.#silentSinceMs;
  }

  /** On the monotonic clock, for `mayBeSilent`. */
  nowMs(): number {
    return this.clock.monotonicMs();
  }

  /** Calls `abandon` once unless `end` is called within `boundMs`. */
  begin(boundMs: number, abandon: () => void): InFlight {
    const askedMs = this.clock.monotonicMs();
    const entry = { askedMs, deadlineMs: askedMs + boundMs, late: false, abandon };
    this.#inFlight.add(entry);
    this.#timer ??= this.clock.schedule(() => this.#look(), LOOK_EVERY_MS);
    return entry;
  }

  end(entry: InFlight): void {
    this.#inFlight.delete(entry);
  }

  /** Abandons everything, as when the store closes. */
  abandonAll(): void {
    for (const entry of this.#inFlight) entry.abandon();
    this.#inFlight.clear();
    this.#timer?.cancel();
    this.#timer = undefined;
  }

  #look(): void {
    this.#timer = undefined;
    const nowMs = this.clock.monotonicMs();
    for (const entry of this.#inFlight) {
      if (entry.deadlineMs > nowMs) continue;
      if (!entry.late) {
        entry.late = true;
        continue;
      }
      this.#inFlight.delete(entry);
      this.#silentSinceMs = Math.max(this.#silentSinceMs, entry.askedMs);
      entry.abandon();
    }
    if (this.#inFlight.size > 0)
      this.#timer = this.clock.schedule(() => this.#look(), LOOK_EVERY_MS);
  }
}
