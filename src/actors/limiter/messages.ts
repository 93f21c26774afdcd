/** What the limiter can be asked, as data. Plain objects: they cross threads. */

/**
 * What a failed attempt was at. Each class has a budget of its own, so that a script with an old
 * device credential does not lock its administrator out of finding that out.
 */
export const FAILURE_CLASSES = ['device', 'enrolment', 'gateway', 'admin'] as const;
export type FailureClass = (typeof FAILURE_CLASSES)[number];

/** A credential that was judged and is not valid; never one that is missing, nor a 403. */
export interface FailedAttempt {
  readonly class: FailureClass;
  /** IPv4, or the /64 of an IPv6 address: whatever one host is likely to control. */
  readonly address: string;
}

/** Codes that the limiter answers with. */
export const LIMITER_CODES = [
  /** The address has used up its failures of that class; says when it may fail again. */
  'too_many_failures',
] as const;
export type LimiterCode = (typeof LIMITER_CODES)[number];

/** The answer while the budget lasts: the attempt is refused for what it is. */
export const WITHIN_BUDGET = 'within_budget';

/** What the limiter says of itself, as status and as metrics; counted since it last started. */
export interface LimiterFacts {
  /** Addresses that are refused now, counted once for each class. */
  readonly blocked: number;
  /** Addresses that it remembers, the blocked ones among them. */
  readonly tracked: number;
  /** Addresses forgotten before their time because there were too many. */
  readonly evicted: number;
  readonly failures: Readonly<Record<FailureClass, number>>;
  /** Counts that the store failed to take, or not in time. */
  readonly storeErrors: number;
  /** Addresses counted by this replica alone: above the cap on writes, or without the store. */
  readonly writesDropped: number;
}
