/**
 * What a lease is to this process: values and pure functions. The rows, and the clock that judges
 * them, are the store's (`LeaseStore`); who asks when is the elector's (`elector.ts`).
 *
 * Source: DESIGN §5; ADR-0021 "Leader lease and fencing".
 *
 * Authority. A term is one holder's time under one token. The store grants it for `ttlMs` from the
 * moment at which it judged the claim, which is after the moment at which the claim was sent. So
 * a process that trusts its term until `sent + ttlMs - marginMs` on its own monotonic clock has
 * always stopped before the store can grant the next one, whatever the network did:
 *
 *   sent ──── judged ───────────────────────── trusted until ── margin ── may be granted to others
 *     └────────────────── trustMs ──────────────────┘                       (judged + ttlMs)
 */

/** One holder's right to a lease under one token, as a write or an effect carries it. */
export interface Fence {
  readonly lease: string;
  /** Names one candidacy of one process; never used again after its term. */
  readonly holder: string;
  /** Greater with each term of the lease. Below 2^53. */
  readonly token: number;
}

/** A fence, and how long this process may believe in it. */
export interface Term extends Fence {
  /** On the monotonic clock, in ms: from here on the term is over, whatever the store says. */
  readonly trustedUntilMs: number;
}

/** One lease as the store has it. */
export interface LeaseRow extends Fence {
  /** What is left of it on the store's clock, in ms; 0 or less: anybody may take it. */
  readonly remainingMs: number;
}

/** Asks for a lease, for the first time or again. */
export interface LeaseClaim {
  readonly lease: string;
  readonly holder: string;
}

/** What became of a claim, and who has the lease now. */
export interface ClaimedLease extends LeaseRow {
  readonly granted: boolean;
  /** The term that an operator asked to end; null: none. */
  readonly stepDownToken: number | null;
}

/** A row of each lease, judged on one clock for all replicas. Everything rejects within a bound. */
export interface LeaseStore {
  /**
   * Grants each claim on a lease that is free, has expired or is the claimant's own; the token of a
   * live one stays, any other grows. One round trip for all of them; answers in their order.
   */
  claim(claims: readonly LeaseClaim[], ttlMs: number): Promise<readonly ClaimedLease[]>;
  /** Frees those that are still held so, and tells other replicas. The tokens stay known. */
  release(fences: readonly Fence[]): Promise<void>;
  /** Whether other replicas' releases are heard of at once; if not, one has to ask often. */
  readonly isHinted: boolean;
  /** `callback` is called when a lease may have become free, or an operator asked for something. */
  onHint(callback: () => void): void;
  close(): Promise<void>;
}

/** How often things are done, all in ms. */
export interface LeaseTiming {
  readonly ttlMs: number;
  /** A holder asks again after this: a third, so that one lost answer ends no term. */
  readonly renewEveryMs: number;
  /** How long a claim is trusted from the moment it was sent. */
  readonly trustMs: number;
  /** A renewal that failed is tried again after this. */
  readonly retryMs: number;
  /** Who has no lease asks this often when nobody tells. */
  readonly campaignEveryMs: number;
  /** The same when others' releases are told, and the known lease does not run out before. */
  readonly hintedCampaignMs: number;
  /** Work of a term that ended has this long to stop before the lease is given back. */
  readonly windUpMs: number;
}

/** Below this, a pause of the process or a slow commit ends terms for no reason. */
export const LEASE_TTL_MIN_MS = 1_000;
/** Above this, nobody does the leader's work for too long after it died. */
export const LEASE_TTL_MAX_MS = 300_000;
/** DESIGN §5: campaigns are at most half a second apart. */
const CAMPAIGN_EVERY_MS = 500;
/** Below one query a second for an idle candidate, however short its lease is. */
const HINTED_CAMPAIGN_MIN_MS = 1_500;
/** What a term does is abortable; who does not stop within a second is fenced anyhow. */
const WIND_UP_MAX_MS = 1_000;

/** The timing of a lease of `ttlMs`. Throws a `RangeError` outside of the bounds above. */
export function leaseTiming(ttlMs: number): LeaseTiming {
  if (!(ttlMs >= LEASE_TTL_MIN_MS && ttlMs <= LEASE_TTL_MAX_MS)) {
    throw new RangeError(
      `A lease lives ${LEASE_TTL_MIN_MS} to ${LEASE_TTL_MAX_MS} ms, not ${ttlMs}.`,
    );
  }
  const renewEveryMs = ttlMs / 3;
  return {
    ttlMs,
    renewEveryMs,
    trustMs: ttlMs - renewEveryMs,
    retryMs: ttlMs / 15,
    campaignEveryMs: Math.min(CAMPAIGN_EVERY_MS, renewEveryMs),
    hintedCampaignMs: Math.max(HINTED_CAMPAIGN_MIN_MS, renewEveryMs),
    windUpMs: Math.min(WIND_UP_MAX_MS, renewEveryMs / 2),
  };
}

/** The term that a claim sent at `sentMs` was granted. */
export function termOf(fence: Fence, sentMs: number, timing: LeaseTiming): Term {
  const { lease, holder, token } = fence;
  return { lease, holder, token, trustedUntilMs: sentMs + timing.trustMs };
}

/** Whether the term may be acted under at `nowMs` on the monotonic clock. */
export function isTrusted(term: Term, nowMs: number): boolean {
  return nowMs < term.trustedUntilMs;
}

/** Whether both are the same holder's same term. */
export function isSameTerm(a: Fence, b: Fence): boolean {
  return a.lease === b.lease && a.holder === b.holder && a.token === b.token;
}

/** Whether the term still holds after an answer: not refused, and under the same token. */
export function renews(term: Term, answer: ClaimedLease): boolean {
  return answer.granted && isSameTerm(term, answer);
}

/** When a candidate that was refused should ask again. */
export function nextCampaignMs(
  answer: LeaseRow,
  answeredMs: number,
  timing: LeaseTiming,
  isHinted: boolean,
): number {
  const every = isHinted ? timing.hintedCampaignMs : timing.campaignEveryMs;
  const runsOutMs = Math.max(0, answer.remainingMs);
  return answeredMs + Math.min(every, runsOutMs);
}
