import t from 'tap';
import { meanBatch, sampleOf } from '../load/server-metrics.js';

t.test('a sample is read by its whole name and labels', async (t) => {
  const text = [
    '# TYPE halo_x histogram',
    'halo_x_sum{actor="devices",lane="read"} 120',
    'halo_x_sum{actor="devices",lane="write"} 7',
    'halo_x_sum_other 1',
    'halo_x_sum 2.5',
    '',
  ].join('\n');
  t.equal(sampleOf(text, 'halo_x_sum{actor="devices",lane="read"}'), 120);
  t.equal(sampleOf(text, 'halo_x_sum'), 2.5);
  t.ok(Number.isNaN(sampleOf(text, 'halo_y')), 'absent is no number');
});

t.test('a mean batch counts what happened between two looks, on all replicas', async (t) => {
  const before = [
    { batches: 10, reads: 10 },
    { batches: 0, reads: 0 },
  ];
  const after = [
    { batches: 12, reads: 30 },
    { batches: 3, reads: 30 },
  ];
  t.equal(meanBatch(before, after), 10);
});
