/** What the leader actor can be asked, as data that crosses threads. */

/** One lease as the store has it now; the same on whatever replica is asked. */
export interface LeaseFacts {
  readonly lease: string;
  /** Who has it, or had it last: a replica's id, a full stop, and which candidacy of it. */
  readonly holder: string;
  readonly token: number;
  /** What is left of it, in ms; 0: nobody has it. */
  readonly remainingMs: number;
}

/** One term that has begun. It ended before the next one did, at the latest. */
export interface TermFacts {
  readonly token: number;
  readonly holder: string;
  /** ms since the Unix epoch on the store's clock: when its holder first wrote under its fence. */
  readonly beganAtMs: number;
}

/** Asks whoever has the lease to give it back. */
export interface StepDown {
  readonly lease: string;
  /** Name of the admin token. */
  readonly by: string;
}

/** The term that was asked to end. */
export interface AskedToStepDown {
  readonly lease: string;
  readonly holder: string;
  readonly token: number;
}

/** Reads and their answers. */
export interface LeaderReads {
  leases: { payload: Readonly<Record<string, never>>; answer: readonly LeaseFacts[] };
  /** Newest first. */
  terms: { payload: { readonly lease: string }; answer: readonly TermFacts[] };
}

/** Writes and their answers. */
export interface LeaderWrites {
  stepDown: { payload: StepDown; answer: AskedToStepDown };
}

/** What it refuses, beside what every actor does. */
export const LEADER_CODES = ['lease_unknown', 'lease_not_held'] as const;
/** One of `LEADER_CODES`. */
export type LeaderCode = (typeof LEADER_CODES)[number];
