/** What happened in a run, line by line; its hash tells whether two runs were the same. */
import { createHash } from 'node:crypto';
import type { Clock } from '../../src/runtime/clock.js';

/** One run's lines. A run is bounded, and with it the trace. */
export class Trace {
  readonly lines: string[] = [];

  constructor(private readonly clock: Clock) {}

  note(text: string): void {
    this.lines.push(`${this.clock.monotonicMs().toFixed(3)} ${text}`);
  }

  hash(): string {
    return createHash('sha256').update(this.lines.join('\n')).digest('hex');
  }
}
