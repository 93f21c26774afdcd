/** A short run of the faults; `npm run faults` has the long ones (docs/testing.md). */
import t from 'tap';
import { play } from './faults/play.js';
import { roundOf } from './faults/schedule.js';

// Real replicas, and faults that take their time.
t.setTimeout(240_000);

const SEED = Number(process.env['SEED'] ?? 3);
const ROUNDS = Number(process.env['ROUNDS'] ?? 4);

t.test(`every promise is kept through ${ROUNDS} rounds of faults, seed ${SEED}`, async (t) => {
  t.comment(`SEED=${SEED}`);
  const played = await play({ seed: SEED, rounds: ROUNDS, log: (line) => t.comment(line) });
  t.same(played.failures, []);
  t.ok(played.calls > 100, `${played.calls} calls: ${JSON.stringify(played.answers)}`);
});

t.test('the same seed draws the same rounds, and another seed others', async (t) => {
  const draw = (seed: number) => Array.from({ length: 50 }, (_, at) => roundOf(seed, at + 1, 3));
  t.same(draw(5), draw(5));
  t.not(JSON.stringify(draw(5)), JSON.stringify(draw(6)));
  const faults = new Set(draw(5).flatMap(({ strikes }) => strikes.map(({ fault }) => fault)));
  t.ok(faults.size >= 8, 'and most kinds of fault are among them');
});
