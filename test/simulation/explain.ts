/**
 * Whether calls that overlapped can have happened one after the other, each at some moment between
 * its beginning and its end, so that every answer is the right one. That is what everyone may
 * expect of replicas that share one store, however they share it (linearizability).
 */

/** One call as the search sees it. */
export interface Step<State> {
  readonly label: string;
  readonly beganMs: number;
  /** If it has an effect, it has it until then. */
  readonly endedMs: number;
  /** Its outcome is unknown: it may never have happened. */
  readonly optional: boolean;
  /** Steps with the same name do the same: of those that may come next, one is tried for all. */
  readonly name: string;
  /** It teaches but changes nothing, so the first moment at which it fits is as good as any. */
  isPure(state: State): boolean;
  /** The states it can lead to with the answer that it got; none: it does not fit here. */
  after(state: State): readonly State[];
}

/** No order explains the answers. `stuck`: what could not come next in the best attempt. */
export interface Unexplained<State> {
  readonly state: State;
  readonly stuck: readonly Step<State>[];
  readonly gaveUp: boolean;
}

/** States that a search looks at; far above what a run of this size needs. */
const VISITS_MAX = 100_000;

/** Undefined when there is an order that explains every answer. */
export function unexplained<State>(
  steps: readonly Step<State>[],
  initial: State,
): Unexplained<State> | undefined {
  const search = new Search(steps, initial);
  return search.run() ? undefined : search.best;
}

/** How far an attempt is. */
interface Place<State> {
  readonly state: State;
  /** The first step that is neither done nor too late to be done. */
  readonly first: number;
  /** The latest beginning of what is done: whatever ended before can happen no more. */
  readonly nowMs: number;
}

class Search<State> {
  best: Unexplained<State>;
  private bestDone = -1;
  private readonly steps: readonly Step<State>[];
  private readonly done: boolean[];
  private readonly seen = new Set<string>();
  private visits = 0;
  private doneCount = 0;

  constructor(
    steps: readonly Step<State>[],
    private readonly initial: State,
  ) {
    this.steps = [...steps].sort((one, other) => one.beganMs - other.beganMs);
    this.done = this.steps.map(() => false);
    this.best = { state: initial, stuck: [], gaveUp: false };
  }

  run(): boolean {
    return this.from({ state: this.initial, first: 0, nowMs: 0 });
  }

  /** Tries to order all that is left. */
  private from(place: Place<State>): boolean {
    const pure: number[] = [];
    const found = this.goOn(this.passPure(place, pure));
    if (!found) for (const index of pure) this.undo(index);
    return found;
  }

  private goOn(place: Place<State>): boolean {
    const { state, first, nowMs } = place;
    const candidates = this.candidates(place);
    if (!candidates.some((index) => !this.steps[index]!.optional)) return true;
    this.visits += 1;
    if (this.visits > VISITS_MAX) {
      this.best = { ...this.best, gaveUp: true };
      return false;
    }
    const key = this.keyOf(place);
    if (this.seen.has(key)) return false;
    this.seen.add(key);
    this.noteBest(state, candidates);
    const tried = new Set<string>();
    for (const index of candidates) {
      const step = this.steps[index]!;
      if (tried.has(step.name)) continue;
      tried.add(step.name);
      for (const next of step.after(state)) {
        if (step.optional && next === state) continue;
        this.do(index);
        if (this.from({ state: next, first, nowMs: Math.max(nowMs, step.beganMs) })) return true;
        this.undo(index);
      }
    }
    return false;
  }

  /** Does every pure step that fits here. */
  private passPure(before: Place<State>, passed: number[]): Place<State> {
    let { state, first, nowMs } = before;
    for (let again = true; again; ) {
      again = false;
      while (first < this.steps.length && this.isOver(first, nowMs)) first += 1;
      const candidates = this.candidates({ state, first, nowMs });
      const lastChanceMs = this.lastChanceMs(candidates);
      for (const index of candidates) {
        const step = this.steps[index]!;
        if (step.optional || step.beganMs > lastChanceMs || !step.isPure(state)) continue;
        const [known] = step.after(state);
        if (known === undefined) continue;
        state = known;
        nowMs = Math.max(nowMs, step.beganMs);
        this.do(index);
        passed.push(index);
        again = true;
      }
    }
    return { state, first, nowMs };
  }

  /** What may come next: whatever began before any of the rest had ended; certain ones first. */
  private candidates({ first, nowMs }: Place<State>): number[] {
    const found: number[] = [];
    let firstEndMs = Number.POSITIVE_INFINITY;
    for (let index = first; index < this.steps.length; index += 1) {
      if (this.isOver(index, nowMs)) continue;
      const { beganMs, endedMs, optional } = this.steps[index]!;
      if (beganMs > firstEndMs) break;
      found.push(index);
      if (!optional) firstEndMs = Math.min(firstEndMs, endedMs);
    }
    return found
      .filter((index) => this.steps[index]!.beganMs <= firstEndMs)
      .sort((one, other) => this.rankOf(one) - this.rankOf(other));
  }

  /** When the first step that need not happen can happen no more: a choice, not to be passed by. */
  private lastChanceMs(candidates: readonly number[]): number {
    const optional = candidates.map((index) => this.steps[index]!).filter((step) => step.optional);
    return Math.min(...optional.map(({ endedMs }) => endedMs));
  }

  /** What must come soonest is tried first; what need not come at all, last. */
  private rankOf(index: number): number {
    const { endedMs, optional } = this.steps[index]!;
    return optional ? Number.MAX_SAFE_INTEGER : endedMs;
  }

  private isOver(index: number, nowMs: number): boolean {
    const { optional, endedMs } = this.steps[index]!;
    return this.done[index] === true || (optional && endedMs < nowMs);
  }

  private do(index: number): void {
    this.done[index] = true;
    if (!this.steps[index]!.optional) this.doneCount += 1;
  }

  private undo(index: number): void {
    this.done[index] = false;
    if (!this.steps[index]!.optional) this.doneCount -= 1;
  }

  private noteBest(state: State, candidates: readonly number[]): void {
    if (this.doneCount <= this.bestDone) return;
    this.bestDone = this.doneCount;
    const stuck = candidates.map((index) => this.steps[index]!);
    this.best = { ...this.best, state, stuck: stuck.filter(({ optional }) => !optional) };
  }

  /** The same for all attempts that have the same left to do, from the same state. */
  private keyOf({ state, first, nowMs }: Place<State>): string {
    let key = `${first} ${nowMs}`;
    for (let index = first; index < this.steps.length; index += 1) {
      if (this.done[index] && this.steps[index]!.endedMs >= nowMs) key += ` ${index}`;
    }
    return `${key} ${JSON.stringify(state, inOrder)}`;
  }
}

/** For `JSON.stringify`: the same text for the same content, however it came to be. */
function inOrder(_: string, value: unknown): unknown {
  if (typeof value !== 'object' || value === null || Array.isArray(value)) return value;
  const entries = Object.entries(value);
  return Object.fromEntries(entries.sort(([one], [other]) => (one < other ? -1 : 1)));
}
