/** A short run of the simulation; `npm run sim` has the long ones (docs/testing.md). */
import t from 'tap';
import { simulate } from './simulation/simulator.js';

/** Enough to meet every kind of fault a few times, in a few seconds. */
const SEEDS = 40;
const FIRST_SEED = Number(process.env['SEED'] ?? 1);

t.test(`every promise is kept in ${SEEDS} simulated runs from seed ${FIRST_SEED}`, async (t) => {
  for (let seed = FIRST_SEED; seed < FIRST_SEED + SEEDS; seed += 1) {
    const { failure } = await simulate(seed);
    if (failure !== undefined) t.fail(`seed ${seed}: ${failure}`);
  }
});

t.test('the same seed replays the same run, and another seed another', async (t) => {
  const [first, again, other] = [await simulate(7), await simulate(7), await simulate(8)];
  t.ok(first.calls > 100);
  t.same(again.trace, first.trace);
  t.equal(again.hash, first.hash);
  t.not(other.hash, first.hash);
});
