/**
 * An open loop: request n is due at the start plus n ÷ rate, whatever the answers before it take,
 * and its latency counts from then. So a server that stands still for a second is charged with all
 * requests that were due in it, and not only with those that a polite sender would have sent.
 */
import { setTimeout as wait } from 'node:timers/promises';
import { LatencyHistogram } from './statistics.js';

/** The finest that a timer of Node can do; answers that arrive in between send what is due, too. */
const TICK_MS = 1;
/** After the last request is due, so long is waited for answers: the server's longest deadline. */
const LAST_ANSWERS_MS = 8_000;
const POLL_MS = 5;

/** Monotonic milliseconds, which all processes of a machine share. */
export function nowMs(): number {
  const [seconds, nanoseconds] = process.hrtime();
  return seconds * 1000 + nanoseconds / 1e6;
}

/** What is sent, and when it was due. */
export type Send = (dueMs: number) => void;

/** Sends at an even rate. */
export class OpenLoop {
  /** How late requests were handed over for sending: the generator's own fault. */
  readonly late = new LatencyHistogram();
  private sent = 0;
  private startMs = Number.NaN;
  private total = 0;

  constructor(
    private readonly ratePerSecond: number,
    private readonly send: Send,
  ) {}

  /** Resolves when the last request was handed over. */
  async run(durationMs: number): Promise<void> {
    this.sent = 0;
    this.total = Math.floor((durationMs * this.ratePerSecond) / 1000);
    this.startMs = nowMs();
    while (this.sent < this.total) {
      this.sendDue();
      await wait(TICK_MS);
    }
  }

  /** Sends whatever is due by now; cheap when nothing is. */
  sendDue(): void {
    while (this.sent < this.total) {
      // Each time: sending takes time, too, and may itself be what makes the next one late.
      const now = nowMs();
      const dueMs = this.startMs + (this.sent * 1000) / this.ratePerSecond;
      if (dueMs > now) return;
      this.sent += 1;
      this.late.record((now - dueMs) * 1000);
      this.send(dueMs);
    }
  }
}

/** Waits until nothing is out any more, or nobody can still expect an answer. */
export async function allAnswered(out: () => number): Promise<void> {
  const endMs = nowMs() + LAST_ANSWERS_MS;
  while (out() > 0 && nowMs() < endMs) await wait(POLL_MS);
}
