/**
 * The clock of one thread of a simulated process. While the thread is held (the process is
 * stopped, the thread is busy) time passes, but nothing of the thread runs; what came due meanwhile
 * runs in its order when it is released. A thread that died runs nothing any more.
 */
import type { Clock, Timer } from '../../src/runtime/clock.js';

export class ThreadClock implements Clock {
  private waiting: (() => void)[] = [];
  private holds = 0;
  private heldSinceMs = 0;
  private heldBeforeMs = 0;
  private dead = false;

  constructor(private readonly base: Clock) {}

  wallMs(): number {
    return this.base.wallMs();
  }

  monotonicMs(): number {
    return this.base.monotonicMs();
  }

  schedule(callback: () => void, delayMs: number): Timer {
    let cancelled = false;
    const due = (): void => {
      if (cancelled || this.dead) return;
      if (this.holds > 0) this.waiting.push(due);
      else callback();
    };
    this.base.schedule(due, delayMs);
    return {
      cancel: () => {
        cancelled = true;
      },
    };
  }

  afterTurn(callback: () => void): void {
    this.schedule(callback, 0);
  }

  get held(): boolean {
    return this.holds > 0;
  }

  /** As many releases as holds let it run again: a process may be stopped while it is busy. */
  hold(): void {
    if (this.holds === 0) this.heldSinceMs = this.monotonicMs();
    this.holds += 1;
  }

  release(): void {
    this.holds -= 1;
    if (this.holds > 0) return;
    this.heldBeforeMs += this.monotonicMs() - this.heldSinceMs;
    const { waiting } = this;
    this.waiting = [];
    for (const due of waiting) this.base.schedule(due, 0);
  }

  /** For how long it has been held in all, up to now. */
  heldMs(): number {
    return this.heldBeforeMs + (this.holds > 0 ? this.monotonicMs() - this.heldSinceMs : 0);
  }

  die(): void {
    this.dead = true;
    this.waiting = [];
  }
}
