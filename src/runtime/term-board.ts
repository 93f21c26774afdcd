/**
 * The deadlines of all terms of a process, in memory that its threads share. Whoever acts under a
 * term looks here immediately before, so that a process that was stopped past its lease and
 * continued does nothing more in any thread, before any of them has been told that the term ended.
 */
import type { Clock } from './clock.js';
import type { Fence, Term } from './lease.js';

/** What a thread is started with to see the board; structured-cloneable. */
export interface TermBoardData {
  /** Which leases there are, in the order of their slots. */
  readonly leases: readonly string[];
  /** Two 64-bit integers for each: the deadline in µs on the monotonic clock, and the token. */
  readonly memory: SharedArrayBuffer;
}

const BYTES_PER_SLOT = 16;
const US_PER_MS = 1_000;

/** A fresh board, on which no lease has a term. */
export function termBoardData(leases: readonly string[]): TermBoardData {
  return { leases, memory: new SharedArrayBuffer(Math.max(1, leases.length) * BYTES_PER_SLOT) };
}

/** A thread's view of the board; only the elector's thread writes. */
export class TermBoard {
  private readonly words: BigInt64Array;
  private readonly slots: ReadonlyMap<string, number>;

  constructor(
    data: TermBoardData,
    private readonly clock: Clock,
  ) {
    this.words = new BigInt64Array(data.memory);
    this.slots = new Map(data.leases.map((lease, index) => [lease, index * 2]));
  }

  /** A new term, or a later deadline of the same one. */
  write(term: Term): void {
    const slot = this.slot(term.lease);
    if (Atomics.load(this.words, slot + 1) !== BigInt(term.token)) {
      // In this order, no reader ever sees an earlier term's token beside a later one's deadline.
      Atomics.store(this.words, slot, 0n);
      Atomics.store(this.words, slot + 1, BigInt(term.token));
    }
    Atomics.store(this.words, slot, BigInt(Math.floor(term.trustedUntilMs * US_PER_MS)));
  }

  /** From now on no thread acts under any term of the lease. */
  clear(lease: string): void {
    Atomics.store(this.words, this.slot(lease), 0n);
  }

  /** Whether the term may be acted under at this moment. */
  isTrusted({ lease, token }: Fence): boolean {
    const slot = this.slot(lease);
    // The deadline first: see `write`.
    const deadlineUs = Atomics.load(this.words, slot);
    if (Atomics.load(this.words, slot + 1) !== BigInt(token)) return false;
    return BigInt(Math.ceil(this.clock.monotonicMs() * US_PER_MS)) < deadlineUs;
  }

  private slot(lease: string): number {
    const slot = this.slots.get(lease);
    if (slot === undefined) throw new RangeError(`There is no lease named ${lease} here.`);
    return slot;
  }
}
