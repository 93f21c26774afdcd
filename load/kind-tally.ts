/** Latencies of an open loop by kind of request, as they cross from the generator's process. */
import type { KindMeasured } from './report.js';
import { LatencyHistogram, type LatencySamples } from './statistics.js';

/** Samples of each kind. */
export type KindSamples = Readonly<Record<string, LatencySamples>>;

/** Everything together, in a table of kinds. */
export const ALL_KINDS = 'all';

/** Counts latencies by kind. */
export class KindTally {
  private readonly histograms = new Map<string, LatencyHistogram>();

  record(kind: string, latencyMs: number): void {
    this.histogram(kind).record(latencyMs * 1000);
  }

  count(kind: string): number {
    return this.histograms.get(kind)?.count ?? 0;
  }

  merge(samples: KindSamples): void {
    for (const [kind, of] of Object.entries(samples)) this.histogram(kind).merge(of);
  }

  samples(): KindSamples {
    return Object.fromEntries(
      [...this.histograms].map(([kind, histogram]) => [kind, histogram.samples()]),
    );
  }

  /** A row for each kind, and one of all together. */
  rows(): KindMeasured[] {
    const all = new LatencyHistogram();
    for (const histogram of this.histograms.values()) all.merge(histogram.samples());
    return [...this.histograms, [ALL_KINDS, all] as const].map(([kind, histogram]) => ({
      kind,
      answered: histogram.count,
      p50Ms: histogram.percentile(50) / 1000,
      p95Ms: histogram.percentile(95) / 1000,
      p99Ms: histogram.percentile(99) / 1000,
      maxMs: histogram.max / 1000,
    }));
  }

  private histogram(kind: string): LatencyHistogram {
    let found = this.histograms.get(kind);
    if (found === undefined) {
      found = new LatencyHistogram();
      this.histograms.set(kind, found);
    }
    return found;
  }
}
