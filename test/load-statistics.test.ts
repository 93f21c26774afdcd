import t from 'tap';
import { LatencyHistogram, median } from '../load/statistics.js';

t.test('a percentile is the value below which that share of the latencies lies', async (t) => {
  const histogram = new LatencyHistogram();
  for (let latencyMs = 1; latencyMs <= 1000; latencyMs += 1) histogram.record(latencyMs * 1000);
  t.equal(histogram.count, 1000);
  t.ok(Math.abs(histogram.percentile(50) - 500_000) <= 10, 'the median, to a bucket');
  t.ok(Math.abs(histogram.percentile(95) - 950_000) <= 10);
  t.ok(Math.abs(histogram.percentile(99) - 990_000) <= 10);
  t.equal(histogram.percentile(100), 1_000_000);
  t.equal(histogram.max, 1_000_000);
});

t.test('a percentile is never above the maximum and never below the only value', async (t) => {
  const histogram = new LatencyHistogram();
  histogram.record(1234.5);
  t.equal(histogram.percentile(1), 1234.5);
  t.equal(histogram.percentile(99), 1234.5);
});

t.test('latencies beyond the last bucket keep their count and their maximum', async (t) => {
  const histogram = new LatencyHistogram();
  histogram.record(1000, 99);
  histogram.record(60_000_000);
  t.equal(histogram.count, 100);
  t.equal(histogram.max, 60_000_000);
  t.equal(histogram.percentile(99), 1010);
  t.ok(histogram.percentile(99.5) >= 10_000_000);
});

t.test('merging two histograms is the same as recording into one', async (t) => {
  const [left, right, whole] = [1, 2, 3].map(() => new LatencyHistogram());
  for (let latencyUs = 0; latencyUs < 5000; latencyUs += 7) {
    (latencyUs % 2 === 0 ? left : right)!.record(latencyUs);
    whole!.record(latencyUs);
  }
  const merged = new LatencyHistogram();
  merged.merge(JSON.parse(JSON.stringify(left!.samples())));
  merged.merge(right!.samples());
  t.same(merged.samples(), whole!.samples());
  t.equal(merged.count, whole!.count);
});

t.test('an answer that took 5 intervals also counts for those that waited behind it', async (t) => {
  const histogram = new LatencyHistogram();
  histogram.recordCorrected(50_000, 10_000);
  t.equal(histogram.count, 5, '50, 40, 30, 20 and 10 ms');
  t.equal(histogram.percentile(20), 10_010);
  const uncorrected = new LatencyHistogram();
  uncorrected.recordCorrected(50_000, 0);
  t.equal(uncorrected.count, 1, 'without a rate nothing waited');
});

t.test('the median of an even number of values is between the middle ones', async (t) => {
  t.equal(median([3, 1, 2]), 2);
  t.equal(median([4, 1, 2, 3]), 2.5);
  t.ok(Number.isNaN(median([])));
});
