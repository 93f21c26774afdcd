/** One lane of a mailbox: a bounded queue that is taken as a batch. */

/** Where the answer to one letter goes; carried through the lanes untouched. */
export interface Reply {
  reply(index: number, answer: unknown, freshSinceMs: number): void;
}

/** One ask as it waits in a lane. */
export interface Letter {
  readonly kind: string;
  readonly payload: unknown;
  /** Monotonic time after which it must not be run any more. */
  readonly deadlineMs: number;
  /** Monotonic time at which it arrived in the actor's thread. */
  readonly arrivedMs: number;
  readonly operator: boolean;
  readonly to: Reply;
  /** Which ask of its group this is, as `Reply` wants it. */
  readonly index: number;
}

/** How many letters may wait in one lane. */
export interface LaneBounds {
  /** Letters that may wait. One more is answered `overloaded` at once. */
  readonly depthMax: number;
  /** Further places that only operators may use, so that overload never refuses who stops it. */
  readonly operatorReserve: number;
}

/**
 * The letters that wait for one actor, oldest first. It refuses rather than grows: whoever offers
 * answers the sender.
 */
export class Lane {
  private waiting: Letter[] = [];

  constructor(private readonly bounds: LaneBounds) {}

  get depth(): number {
    return this.waiting.length;
  }

  /** Appends the letter, or returns false when there is no place for it. */
  offer(letter: Letter): boolean {
    const { depthMax, operatorReserve } = this.bounds;
    if (this.waiting.length >= depthMax + (letter.operator ? operatorReserve : 0)) return false;
    this.waiting.push(letter);
    return true;
  }

  /** Takes what waits, at most `countMax`, oldest first. */
  take(countMax: number): Letter[] {
    if (this.waiting.length <= countMax) {
      const all = this.waiting;
      this.waiting = [];
      return all;
    }
    return this.waiting.splice(0, countMax);
  }

  /** Takes out whoever has waited past their deadline. */
  takeExpired(nowMs: number): Letter[] {
    if (!this.waiting.some((letter) => letter.deadlineMs <= nowMs)) return [];
    const expired = this.waiting.filter((letter) => letter.deadlineMs <= nowMs);
    this.waiting = this.waiting.filter((letter) => letter.deadlineMs > nowMs);
    return expired;
  }
}
