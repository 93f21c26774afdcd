/**
 * Campaigns for the leases of a process, keeps those it has, and gives them back. Any number of
 * leases, one loop, one claim for all that are due: fifty leases cost no more connections than one.
 *
 * Each lease is in one of three states, and one function here leaves each of them:
 *
 *   candidate ── granted ──▶ leader ── refused, fenced, out of trust, asked, stopped ──▶ ending
 *       ▲                      │ └─ granted again: trusted for longer                      │
 *       └────────────── wound up, given back; with a new holder id ──────────────────────┘
 *
 * What each failure does:
 * - A claim that fails or is not answered: the leader tries again, and ends by itself when its
 *   trust runs out, before the store can grant the lease to another; a candidate begins anew under
 *   another holder id, and lets what it may have been granted run out.
 * - A claim that is answered after the term ended has no effect; what it granted is given back.
 * - A process that was stopped and continued finds its deadline passed, in every thread at once
 *   (`term-board.ts`), before it is told anything.
 * - A candidate that was granted a lease too late to trust it gives it back.
 *
 * After any term the candidate has a new holder id, so that it can never resume an old one.
 *
 * Source: DESIGN §5; ADR-0021 "Leader lease and fencing".
 */
import { type Clock, delay, type Timer } from './clock.js';
import { describe } from './failure.js';
import {
  type ClaimedLease,
  type Fence,
  isSameTerm,
  isTrusted,
  type LeaseStore,
  type LeaseTiming,
  nextCampaignMs,
  renews,
  type Term,
  termOf,
} from './lease.js';
import type { Log } from './log.js';
import type { Random } from './random.js';
import type { TermBoard } from './term-board.js';

/** Why a term ended, for the log and the history. */
export type TermEnd = 'refused' | 'fenced' | 'expired' | 'asked' | 'stopped';

/** What an elector needs of its process. */
export interface ElectorOptions {
  readonly leases: readonly string[];
  /** Names the process; its holder ids begin with it. */
  readonly replica: string;
  readonly store: LeaseStore;
  readonly timing: LeaseTiming;
  readonly board: TermBoard;
  readonly clock: Clock;
  readonly random: Random;
  readonly log: Log;
  /** Tells every thread. Must not throw. */
  readonly onBegin: (fence: Fence) => void;
  /** Tells every thread; resolves when what was done under the term has stopped. */
  readonly onEnd: (fence: Fence) => Promise<void>;
}

/** What the last answer about a lease said. */
interface SeenLease {
  /** '' and 0 before the first answer. */
  readonly holder: string;
  readonly token: number;
  /** When the answer came, on the monotonic clock, and what was left then; ms. */
  readonly answeredMs: number;
  readonly remainingMs: number;
  /** How often the token was seen to change since the start, the first time included. */
  readonly changes: number;
}

/** One lease as this process knows it, for the status page and metrics. */
export interface LeaseView extends SeenLease {
  readonly lease: string;
  readonly isLeader: boolean;
}

const UNSEEN: SeenLease = { holder: '', token: 0, answeredMs: 0, remainingMs: 0, changes: 0 };

interface Candidate {
  readonly mode: 'candidate';
  readonly holder: string;
  readonly askAtMs: number;
}
interface Leader {
  readonly mode: 'leader';
  readonly term: Term;
  readonly holder: string;
  readonly askAtMs: number;
}
interface Ending {
  readonly mode: 'ending';
  readonly holder: string;
  readonly askAtMs: number;
}
type State = Candidate | Leader | Ending;

/** Candidates that ask at the same moment only meet on the row. */
const JITTER_MS = 50;
/** Who stepped down because somebody asked lets the others go first. */
const STEP_ASIDE_MS = 2_000;
/** Claims that are due within this go together. */
const TOGETHER_MS = 20;

/** Runs from `start` to `stop`; both are idempotent, and `stop` is safe before `start`. */
export class Elector {
  private readonly states = new Map<string, State>();
  private readonly seen = new Map<string, SeenLease>();
  private readonly endings = new Set<Promise<void>>();
  private holders = 0;
  private hintedMs = 0;
  private timer: Timer | undefined;
  private asking: Promise<void> | undefined;
  private stopping: Promise<void> | undefined;

  constructor(private readonly options: ElectorOptions) {}

  start(): void {
    if (this.states.size > 0 || this.stopping !== undefined) return;
    for (const lease of this.options.leases) this.campaign(lease, this.options.clock.monotonicMs());
    this.options.store.onHint(() => this.hinted());
    this.schedule();
  }

  /** Ends every term and gives the leases back, so that others need not wait for their end. */
  stop(): Promise<void> {
    this.stopping ??= this.stopAll();
    return this.stopping;
  }

  /** All leases, in the order in which they were given. */
  inspect(): readonly LeaseView[] {
    return this.options.leases.map((lease) => ({
      lease,
      isLeader: this.leads(lease),
      ...(this.seen.get(lease) ?? UNSEEN),
    }));
  }

  /** A process that was stopped may be asked before it has noticed that its term is over. */
  private leads(lease: string): boolean {
    const state = this.states.get(lease);
    if (state?.mode !== 'leader') return false;
    return isTrusted(state.term, this.options.clock.monotonicMs());
  }

  /** The terms that hold now: for a thread that has just started. */
  terms(): readonly Fence[] {
    return [...this.states.values()].flatMap((state) =>
      state.mode === 'leader' ? [fenceOf(state.term)] : [],
    );
  }

  /** A write under that fence was refused: whatever the store says next, that term is over. */
  fenced(fence: Fence): void {
    const state = this.states.get(fence.lease);
    if (state?.mode === 'leader' && isSameTerm(state.term, fence)) this.end(state, 'fenced');
  }

  private async stopAll(): Promise<void> {
    this.timer?.cancel();
    for (const state of this.states.values()) {
      if (state.mode === 'leader') this.end(state, 'stopped');
    }
    await this.asking;
    await Promise.all(this.endings);
    await this.options.store.close();
  }

  private campaign(lease: string, askAtMs: number): void {
    this.holders += 1;
    const holder = `${this.options.replica}.${this.holders}`;
    this.states.set(lease, { mode: 'candidate', holder, askAtMs });
  }

  /** Counts for a claim that is under way too: its answer may be older than what is hinted at. */
  private hinted(): void {
    const askAtMs = this.options.clock.monotonicMs();
    this.hintedMs = askAtMs;
    for (const [lease, state] of this.states) {
      if (state.mode !== 'ending') this.states.set(lease, { ...state, askAtMs });
    }
    this.schedule();
  }

  private notBeforeHint(askAtMs: number, sentMs: number): number {
    return this.hintedMs > sentMs ? this.hintedMs : askAtMs;
  }

  /** Looks at the clock when the next thing is due: a claim, or the end of trust. */
  private schedule(): void {
    this.timer?.cancel();
    if (this.stopping !== undefined) return;
    const due = [...this.states.values()].map((state) => this.dueMs(state));
    const nextMs = Math.min(...due);
    if (nextMs === Number.POSITIVE_INFINITY) return;
    const pauseMs = Math.max(0, nextMs - this.options.clock.monotonicMs());
    this.timer = this.options.clock.schedule(() => this.look(), pauseMs);
  }

  private dueMs(state: State): number {
    if (state.mode === 'ending') return Number.POSITIVE_INFINITY;
    // While a claim is under way no other is sent, but trust runs out all the same.
    const askAtMs = this.asking === undefined ? state.askAtMs : Number.POSITIVE_INFINITY;
    return state.mode === 'leader' ? Math.min(askAtMs, state.term.trustedUntilMs) : askAtMs;
  }

  private look(): void {
    const nowMs = this.options.clock.monotonicMs();
    for (const state of this.states.values()) {
      if (state.mode === 'leader' && !isTrusted(state.term, nowMs)) this.end(state, 'expired');
    }
    const due = [...this.states].filter(
      ([, state]) => state.mode !== 'ending' && state.askAtMs <= nowMs + TOGETHER_MS,
    );
    if (due.length > 0 && this.asking === undefined) {
      this.asking = this.ask(due, nowMs).finally(() => {
        this.asking = undefined;
        this.schedule();
      });
    }
    this.schedule();
  }

  private async ask(due: readonly (readonly [string, State])[], sentMs: number): Promise<void> {
    const { store, timing, clock, log, random } = this.options;
    const claims = due.map(([lease, { holder }]) => ({ lease, holder }));
    try {
      const answers = await store.claim(claims, timing.ttlMs);
      answers.forEach((answer, index) => {
        const asked = due[index];
        if (asked !== undefined) this.answered(asked[1], answer, sentMs);
      });
    } catch (error) {
      log.warn({ error: describe(error) }, 'Leases could not be asked for.');
      const askAtMs = clock.monotonicMs() + timing.retryMs * (0.5 + random.fraction());
      for (const [lease, { holder }] of due) {
        const state = this.states.get(lease);
        if (state?.holder !== holder || state.mode === 'ending') continue;
        // Whether it was granted is unknown. Under the same id a candidate whose answers are lost
        // would keep the lease from everybody.
        if (state.mode === 'candidate') this.campaign(lease, askAtMs);
        else this.states.set(lease, { ...state, askAtMs });
      }
    }
  }

  private answered(asked: State, answer: ClaimedLease, sentMs: number): void {
    this.see(answer);
    const state = this.states.get(answer.lease);
    // What became of the lease meanwhile counts; a hint alone changes neither term nor holder.
    if (state?.mode === 'leader' && state.holder === asked.holder) {
      this.answeredLeader(state, answer, sentMs);
    } else if (state?.mode === 'candidate' && state.holder === asked.holder) {
      this.answeredCandidate(state, answer, sentMs);
    } else if (answer.granted) {
      this.giveBack(answer);
    }
  }

  private answeredLeader(state: Leader, answer: ClaimedLease, sentMs: number): void {
    const { timing, board } = this.options;
    if (!renews(state.term, answer)) {
      this.end(state, 'refused');
      // Its old holder id took the lease anew: that term was never begun here.
      if (answer.granted) this.giveBack(answer);
      return;
    }
    const term = termOf(state.term, sentMs, timing);
    const askAtMs = this.notBeforeHint(sentMs + timing.renewEveryMs, sentMs);
    this.states.set(term.lease, { mode: 'leader', term, holder: state.holder, askAtMs });
    board.write(term);
    if (answer.stepDownToken === term.token) this.end({ ...state, term }, 'asked');
  }

  private answeredCandidate(state: Candidate, answer: ClaimedLease, sentMs: number): void {
    const { timing, board, clock, random, store, log, onBegin } = this.options;
    const nowMs = clock.monotonicMs();
    if (!answer.granted) {
      const againMs = nextCampaignMs(answer, nowMs, timing, store.isHinted);
      const askAtMs = this.notBeforeHint(againMs + random.fraction() * JITTER_MS, sentMs);
      this.states.set(answer.lease, { ...state, askAtMs });
      return;
    }
    const term = termOf(answer, sentMs, timing);
    if (!isTrusted(term, nowMs) || this.stopping !== undefined) {
      this.giveBack(answer);
      this.campaign(answer.lease, nowMs + timing.retryMs);
      return;
    }
    const askAtMs = this.notBeforeHint(sentMs + timing.renewEveryMs, sentMs);
    this.states.set(answer.lease, { mode: 'leader', term, holder: state.holder, askAtMs });
    board.write(term);
    log.info({ lease: term.lease, token: term.token }, 'This replica leads.');
    onBegin(fenceOf(term));
  }

  /** At once for every thread that looks; then those that do not are told, and then the store. */
  private end(state: Leader, why: TermEnd): void {
    const { board, clock, log, timing, onEnd } = this.options;
    const fence = fenceOf(state.term);
    const { lease, token } = fence;
    board.clear(lease);
    this.states.set(lease, { mode: 'ending', holder: state.holder, askAtMs: 0 });
    log.info({ lease, token, why }, 'This replica does not lead any more.');
    const ending = Promise.race([onEnd(fence), delay(clock, timing.windUpMs)])
      .catch((error: unknown) => {
        log.warn({ lease, error: describe(error) }, 'A term did not end in order.');
      })
      .then(() => this.release(fence))
      .finally(() => {
        this.endings.delete(ending);
        const asideMs = why === 'asked' ? STEP_ASIDE_MS : 0;
        this.campaign(lease, clock.monotonicMs() + asideMs);
        this.schedule();
      });
    this.endings.add(ending);
  }

  private giveBack(fence: Fence): void {
    const ending = this.release(fenceOf(fence)).finally(() => this.endings.delete(ending));
    this.endings.add(ending);
  }

  /** A lease that cannot be given back runs out by itself. */
  private async release(fence: Fence): Promise<void> {
    const { store, log } = this.options;
    try {
      await store.release([fence]);
    } catch (error) {
      log.warn({ lease: fence.lease, error: describe(error) }, 'A lease could not be given back.');
    }
  }

  private see({ lease, holder, token, remainingMs }: ClaimedLease): void {
    const seen = this.seen.get(lease);
    this.seen.set(lease, {
      holder,
      token,
      remainingMs,
      answeredMs: this.options.clock.monotonicMs(),
      changes: (seen?.changes ?? 0) + (token === seen?.token ? 0 : 1),
    });
  }
}

function fenceOf({ lease, holder, token }: Fence): Fence {
  return { lease, holder, token };
}
