/** Counting without allocation, in the form that `/metrics` renders: plain data across threads. */

/** Upper bounds in milliseconds: from a catch-up on loopback to the longest deadline. */
export const LATENCY_BOUNDS_MS: readonly number[] = [
  0.1, 0.25, 0.5, 1, 2.5, 5, 10, 25, 50, 100, 250, 1000, 5000,
];
/** Upper bounds of batch sizes: powers of four up to the largest batch taken at once. */
export const BATCH_BOUNDS: readonly number[] = [1, 4, 16, 64, 256, 1024, 4096];

/** One histogram at one moment. Bounds and sum are in the unit of what was observed. */
export interface HistogramSnapshot {
  readonly bounds: readonly number[];
  /** Observations per bucket, not cumulative; one more than bounds, the last without a bound. */
  readonly counts: readonly number[];
  readonly sum: number;
}

/**
 * Buckets with inclusive upper bounds, given in rising order. Observing allocates nothing and looks
 * from the smallest bound up, since most observations are small.
 */
export class Histogram {
  private readonly counts: number[];
  private sum = 0;

  constructor(private readonly bounds: readonly number[]) {
    this.counts = new Array<number>(bounds.length + 1).fill(0);
  }

  /** `times` counts several equal observations as one call. */
  observe(value: number, times = 1): void {
    let bucket = 0;
    while (bucket < this.bounds.length && value > (this.bounds[bucket] as number)) bucket += 1;
    this.counts[bucket] = (this.counts[bucket] as number) + times;
    this.sum += value * times;
  }

  snapshot(): HistogramSnapshot {
    return { bounds: this.bounds, counts: [...this.counts], sum: this.sum };
  }
}
