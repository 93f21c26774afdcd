/** What a Halos server counts itself, read from its own `/metrics`. */

/** Reads one sample of a Prometheus text, by its name and labels as they are written there. */
export function sampleOf(text: string, series: string): number {
  const line = text.split('\n').find((candidate) => candidate.startsWith(`${series} `));
  return line === undefined ? Number.NaN : Number(line.slice(series.length + 1));
}

/** The devices actor's read batches so far. */
export interface ReadBatches {
  readonly batches: number;
  readonly reads: number;
}

const LABELS = '{actor="devices",lane="read"}';

export async function readBatches(metricsUrl: string): Promise<ReadBatches> {
  const text = await (await fetch(`${metricsUrl}/metrics`)).text();
  return {
    batches: sampleOf(text, `halo_actor_batch_size_count${LABELS}`),
    reads: sampleOf(text, `halo_actor_batch_size_sum${LABELS}`),
  };
}

/** Reads per batch between two looks: how much work a catch-up or a wake-up was shared by. */
export function meanBatch(before: readonly ReadBatches[], after: readonly ReadBatches[]): number {
  const sum = (all: readonly ReadBatches[], pick: (one: ReadBatches) => number): number =>
    all.reduce((total, one) => total + pick(one), 0);
  const reads = sum(after, (one) => one.reads) - sum(before, (one) => one.reads);
  return reads / (sum(after, (one) => one.batches) - sum(before, (one) => one.batches));
}
