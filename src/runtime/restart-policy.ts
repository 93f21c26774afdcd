/** When something that died may start again, and when its death is everybody's. */
import type { Random } from './random.js';

/** How fast and how often something that died is started again. */
export interface RestartBounds {
  /** First pause; it doubles with each restart inside the window. */
  readonly backoffMinMs: number;
  /** No pause is longer: a store that is back should find its actors within seconds. */
  readonly backoffMaxMs: number;
  /** More restarts than this within `windowMs` are not an accident any more. */
  readonly restartsMax: number;
  readonly windowMs: number;
}

/** The sixth crash in a minute is no accident that a restart mends: an orchestrator should know. */
export const RESTART_BOUNDS: RestartBounds = {
  backoffMinMs: 50,
  backoffMaxMs: 5_000,
  restartsMax: 5,
  windowMs: 60_000,
};

/** How long the pauses between attempts are. */
export type BackoffBounds = Pick<RestartBounds, 'backoffMinMs' | 'backoffMaxMs'>;

/** The pause before the attempt after `failures` failures, with full jitter in its upper half. */
export function backoffMs(failures: number, bounds: BackoffBounds, random: Random): number {
  const whole = Math.min(bounds.backoffMaxMs, bounds.backoffMinMs * 2 ** Math.max(0, failures - 1));
  return whole / 2 + random.fraction() * (whole / 2);
}

/** Counts crashes in a sliding window. Pure but for what it remembers. */
export class RestartIntensity {
  private crashesMs: number[] = [];

  constructor(private readonly bounds: RestartBounds) {}

  /** Notes a crash; returns how many the window holds, or 'exhausted' when there were too many. */
  crashed(nowMs: number): number | 'exhausted' {
    this.crashesMs = this.crashesMs.filter((atMs) => nowMs - atMs < this.bounds.windowMs);
    this.crashesMs.push(nowMs);
    return this.crashesMs.length > this.bounds.restartsMax ? 'exhausted' : this.crashesMs.length;
  }
}
