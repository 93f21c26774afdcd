/** The arithmetic of a load run: latencies that can be merged over rounds, and medians. */

/** Width of a latency bucket: fine enough for a p95 in tenths of a millisecond. */
const BUCKET_US = 10;
/** Latencies above 10 s count as 10 s in percentiles: far beyond every deadline of the server. */
const BUCKETS_MAX = 1_000_000;

/** What crosses a process boundary: the buckets that are not empty, and the exact maximum. */
export interface LatencySamples {
  readonly counts: readonly (readonly [bucket: number, count: number])[];
  readonly maxUs: number;
}

/** Counts latencies in buckets of 10 µs, so that recording costs one increment. */
export class LatencyHistogram {
  private readonly buckets = new Uint32Array(BUCKETS_MAX + 1);
  private total = 0;
  private maxUs = 0;

  get count(): number {
    return this.total;
  }
  get max(): number {
    return this.maxUs;
  }

  record(latencyUs: number, count = 1): void {
    const bucket = Math.min(BUCKETS_MAX, Math.max(0, Math.floor(latencyUs / BUCKET_US)));
    this.buckets[bucket] = (this.buckets[bucket] ?? 0) + count;
    this.total += count;
    if (latencyUs > this.maxUs) this.maxUs = latencyUs;
  }

  /**
   * Records a latency and, as HdrHistogram does against coordinated omission, the latencies of the
   * requests that a sender at a steady interval would have sent while it waited for this answer.
   */
  recordCorrected(latencyUs: number, expectedIntervalUs: number): void {
    this.record(latencyUs);
    if (expectedIntervalUs <= 0) return;
    for (
      let missing = latencyUs - expectedIntervalUs;
      missing >= expectedIntervalUs;
      missing -= expectedIntervalUs
    ) {
      this.record(missing);
    }
  }

  clear(): void {
    this.buckets.fill(0);
    this.total = 0;
    this.maxUs = 0;
  }

  merge(samples: LatencySamples): void {
    for (const [bucket, count] of samples.counts) {
      const known = Math.min(BUCKETS_MAX, bucket);
      this.buckets[known] = (this.buckets[known] ?? 0) + count;
      this.total += count;
    }
    this.maxUs = Math.max(this.maxUs, samples.maxUs);
  }

  samples(): LatencySamples {
    const counts: [number, number][] = [];
    for (const [bucket, count] of this.buckets.entries()) {
      if (count > 0) counts.push([bucket, count]);
    }
    return { counts, maxUs: this.maxUs };
  }

  /** The upper edge of the bucket that holds the percentile, in µs, never above the maximum. */
  percentile(percent: number): number {
    const wanted = Math.max(1, Math.ceil((this.total * percent) / 100));
    let seen = 0;
    for (const [bucket, count] of this.buckets.entries()) {
      seen += count;
      if (seen >= wanted && count > 0) return Math.min(this.maxUs, (bucket + 1) * BUCKET_US);
    }
    return this.maxUs;
  }
}

/** The middle value, or the mean of the two middle ones; NaN of nothing. */
export function median(values: readonly number[]): number {
  const sorted = [...values].sort((left, right) => left - right);
  const middle = sorted.length / 2;
  const upper = sorted[Math.floor(middle)] ?? Number.NaN;
  if (sorted.length % 2 === 1) return upper;
  return ((sorted[middle - 1] ?? Number.NaN) + upper) / 2;
}

/** Fractions in [0, 1) that a seed repeats (mulberry32): for choices, not for secrets. */
export function seededFractions(seed: number): () => number {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}

/** The value that so many percent of the values do not exceed; NaN of nothing. */
export function percentileOf(values: readonly number[], percent: number): number {
  const sorted = [...values].sort((left, right) => left - right);
  return sorted[Math.max(0, Math.ceil((sorted.length * percent) / 100) - 1)] ?? Number.NaN;
}
