/**
 * Whether this replica should get traffic: asked of the store, the threads and the actors twice a
 * second, and told to the front threads, which answer `/readyz` by themselves.
 */
import { delay, type Clock, type Timer } from '../runtime/clock.js';
import { toFailure } from '../runtime/failure.js';
import type { Readiness } from '../http/services.js';

export interface ReadinessSources {
  /** Proves that the store can be written, within its own bound of 2 s. */
  readonly probe: () => Promise<void>;
  /** What else is wrong, as short phrases; empty when nothing is. */
  readonly problems: () => Promise<readonly string[]>;
  /** Told after every look, whether or not anything changed. */
  readonly onLook: (readiness: Readiness) => Promise<void>;
}

/** With the probe's own 2 s, a store that cannot be written is said within 3 s. */
const LOOK_PERIOD_MS = 500;
/** A replica that starts is looked at more often, so that it serves as soon as it can. */
const STARTING_PERIOD_MS = 25;

export class ReadinessWatch {
  private probing: Promise<void> | undefined;
  private storeProblem: string | undefined = 'the store has not been written yet';
  private draining = false;
  private stopped = false;
  private seenReady = false;
  private timer: Timer | undefined;

  constructor(
    private readonly sources: ReadinessSources,
    private readonly clock: Clock,
  ) {}

  start(): void {
    void this.look();
  }

  /** From now on never ready again. Resolves when everyone was told. */
  async drain(): Promise<void> {
    this.draining = true;
    await this.tell();
  }

  stop(): void {
    this.stopped = true;
    this.timer?.cancel();
  }

  private async look(): Promise<void> {
    this.probing ??= this.probe();
    // A probe that takes its time is not waited for: the other problems are told meanwhile.
    const periodMs = this.seenReady ? LOOK_PERIOD_MS : STARTING_PERIOD_MS;
    await Promise.race([this.probing, delay(this.clock, LOOK_PERIOD_MS)]);
    await this.tell();
    if (this.stopped) return;
    this.timer = this.clock.schedule(() => void this.look(), periodMs);
  }

  private async probe(): Promise<void> {
    this.storeProblem = await this.sources.probe().then(
      () => undefined,
      (error: unknown) => `the store cannot be written: ${toFailure(error).detail ?? 'a fault'}`,
    );
    this.probing = undefined;
  }

  private async tell(): Promise<void> {
    const reasons = this.draining ? ['the server is shutting down'] : await this.reasons();
    const readiness = { ready: reasons.length === 0, reasons };
    this.seenReady ||= readiness.ready;
    await this.sources.onLook(readiness);
  }

  private async reasons(): Promise<string[]> {
    const problems = await this.sources.problems();
    return [...(this.storeProblem === undefined ? [] : [this.storeProblem]), ...problems];
  }
}
