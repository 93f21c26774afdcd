/** Those who wait for one moment that may come again and again. */
export class Waiters {
  private waiting: (() => void)[] = [];

  /** Resolves at the next `release`. */
  wait(): Promise<void> {
    return new Promise((resolve) => this.waiting.push(resolve));
  }

  /** The moment is now, for all that wait. */
  release(): void {
    const waiting = this.waiting;
    this.waiting = [];
    for (const resolve of waiting) resolve();
  }
}
