/**
 * Whether calls that overlapped can have happened one after the other, each at some moment between
 * its beginning and its end, so that every answer is the right one. That is what everyone may
 * expect of replicas that share one store, however they share it (linearizability).
 */

/** One call as the search sees it. */
export interface Step<State> {
  readonly label: string;
  readonly beganMs: number;
  /** Infinity if its outcome is unknown: it may happen at any time, or never. */
  readonly endedMs: number;
  readonly optional: boolean;
  /** It teaches but changes nothing, so the first moment at which it fits is as good as any. */
  readonly pure: boolean;
  /** Steps with the same name do the same: of those that may come next, one is tried for all. */
  readonly name: string;
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
const VISITS_MAX = 200_000;

/** Undefined when there is an order that explains every answer. */
export function unexplained<State>(
  steps: readonly Step<State>[],
  initial: State,
): Unexplained<State> | undefined {
  const search = new Search(steps, initial);
  return search.run() ? undefined : search.best;
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
    return this.from(this.initial, 0);
  }

  /** Tries to order all that is left; `first` is the first step that is not done. */
  private from(state: State, first: number): boolean {
    const pure: number[] = [];
    const found = this.goOn(state, first, pure);
    if (!found) for (const index of pure) this.undo(index);
    return found;
  }

  private goOn(before: State, from: number, pure: number[]): boolean {
    const [state, first] = this.passPure(before, from, pure);
    const candidates = this.candidates(first);
    if (!candidates.some((index) => !this.steps[index]!.optional)) return true;
    this.visits += 1;
    if (this.visits > VISITS_MAX) {
      this.best = { ...this.best, gaveUp: true };
      return false;
    }
    const key = this.keyOf(state, first);
    if (this.seen.has(key)) return false;
    this.seen.add(key);
    if (this.doneCount > this.bestDone) {
      this.bestDone = this.doneCount;
      const stuck = candidates.map((index) => this.steps[index]!);
      this.best = { ...this.best, state, stuck: stuck.filter(({ optional }) => !optional) };
    }
    const tried = new Set<string>();
    for (const index of candidates) {
      const step = this.steps[index]!;
      if (tried.has(step.name)) continue;
      tried.add(step.name);
      for (const next of step.after(state)) {
        if (step.optional && next === state) continue;
        this.do(index);
        if (this.from(next, first)) return true;
        this.undo(index);
      }
    }
    return false;
  }

  /** Does every pure step that fits here; returns what is known then and the first one left. */
  private passPure(before: State, from: number, passed: number[]): [State, number] {
    let state = before;
    let first = from;
    for (let again = true; again; ) {
      again = false;
      while (this.done[first]) first += 1;
      for (const index of this.candidates(first)) {
        const step = this.steps[index]!;
        const known = step.pure ? step.after(state)[0] : undefined;
        if (known === undefined) continue;
        state = known;
        this.do(index);
        passed.push(index);
        again = true;
      }
    }
    return [state, first];
  }

  /** What may come next: whatever began before any of the rest had ended; certain ones first. */
  private candidates(first: number): number[] {
    const found: number[] = [];
    let firstEndMs = Number.POSITIVE_INFINITY;
    for (let index = first; index < this.steps.length; index += 1) {
      if (this.done[index]) continue;
      const { beganMs, endedMs } = this.steps[index]!;
      if (beganMs > firstEndMs) break;
      found.push(index);
      firstEndMs = Math.min(firstEndMs, endedMs);
    }
    const possible = found.filter((index) => this.steps[index]!.beganMs <= firstEndMs);
    return possible.sort((one, other) => this.steps[one]!.endedMs - this.steps[other]!.endedMs);
  }

  private do(index: number): void {
    this.done[index] = true;
    if (!this.steps[index]!.optional) this.doneCount += 1;
  }

  private undo(index: number): void {
    this.done[index] = false;
    if (!this.steps[index]!.optional) this.doneCount -= 1;
  }

  private keyOf(state: State, first: number): string {
    let key = `${first}`;
    for (let index = first; index < this.steps.length; index += 1) {
      if (this.done[index]) key += ` ${index}`;
    }
    return `${key} ${JSON.stringify(state)}`;
  }
}
