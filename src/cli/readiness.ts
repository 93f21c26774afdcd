/**
 * Whether this replica should get traffic: asked of the store, the threads and the actors twice a
 * second, and told to the front threads, which answer `/readyz` by themselves.
 */

import type { Readiness } from '../http/services.js';
import type { Clock } from '../runtime/clock.js';
import { toFailure } from '../runtime/failure.js';

/** What readiness is made of, and who is told. */
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

/**
 * Looks again and again from `start` to `stop`. Not ready before the store was written once, and
 * never again after `drain`.
 */
export class ReadinessWatch {
  private storeProblem: string | undefined = 'the store has not been written yet';
  private draining = false;
  private stopped = false;
  private seenReady = false;
  /** One telling after another: an older look must not overtake a newer one. */
  private telling: Promise<void> = Promise.resolve();

  constructor(
    private readonly sources: ReadinessSources,
    private readonly clock: Clock,
  ) {}

  start(): void {
    this.repeat(() => this.probe());
    this.repeat(() => this.tell());
  }

  /** From now on never ready again. Resolves when everyone was told. */
  async drain(): Promise<void> {
    this.draining = true;
    await this.tell();
  }

  stop(): void {
    this.stopped = true;
  }

  private repeat(work: () => Promise<void>): void {
    void work().finally(() => {
      if (this.stopped) return;
      const pauseMs = this.seenReady ? LOOK_PERIOD_MS : STARTING_PERIOD_MS;
      this.clock.schedule(() => this.repeat(work), pauseMs);
    });
  }

  private async probe(): Promise<void> {
    const before = this.storeProblem;
    this.storeProblem = await this.sources.probe().then(
      () => undefined,
      (error: unknown) => `the store cannot be written: ${toFailure(error).detail ?? 'a fault'}`,
    );
    if (this.storeProblem !== before) await this.tell();
  }

  private tell(): Promise<void> {
    this.telling = this.telling.then(() => this.tellOnce()).catch(() => undefined);
    return this.telling;
  }

  private async tellOnce(): Promise<void> {
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
