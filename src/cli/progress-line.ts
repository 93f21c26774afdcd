/** Progress for people: one line of a terminal, written over and over. */
import { systemClock } from '../runtime/clock.js';
import type { Console } from './console.js';

/** Often enough for people. */
const PROGRESS_INTERVAL_MS = 250;

/** Made only where a terminal shows it. */
export class ProgressLine {
  private shownAtMs = -Infinity;

  constructor(private readonly console: Pick<Console, 'err'>) {}

  /** `done` is the part of everything: 0 to 1. */
  show({ records, done }: { readonly records: number; readonly done: number }): void {
    const nowMs = systemClock.monotonicMs();
    if (nowMs - this.shownAtMs < PROGRESS_INTERVAL_MS) return;
    this.shownAtMs = nowMs;
    const percent = Math.min(100, Math.floor(100 * done));
    this.console.err(`\r${numberText(records)} records, ${percent} %`);
  }

  /** Leaves the line empty, if it was ever shown. */
  clear(): void {
    if (this.shownAtMs !== -Infinity) this.console.err('\r\u001B[K');
  }
}

/** A number as people read it. */
export function numberText(number: number): string {
  return number.toLocaleString('en-US');
}
