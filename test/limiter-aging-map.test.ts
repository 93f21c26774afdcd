/** The map behind the limiter's memory, compared with a plain list, and its cost when full. */
import t from 'tap';
import { type Aging, AgingMap } from '../src/actors/limiter/aging-map.js';
import { LocalBudget, TRACKED_MAX } from '../src/actors/limiter/state.js';
import { systemClock } from '../src/runtime/clock.js';
import { seededRandom } from '../src/runtime/random.js';

const SEED = Number(process.env['SEED'] ?? Math.floor(Math.random() * 1_000_000));
const LIFE_MS = 100;

t.test(`it holds what a list would hold, seed ${SEED}`, (t) => {
  const random = seededRandom(SEED);
  const map = new AgingMap<Aging>();
  let list: Aging[] = [];
  for (let nowMs = 0; nowMs < 20_000; nowMs += 1) {
    const key = `k${Math.floor(random.fraction() * 150)}`;
    const what = random.fraction();
    const listed = list.find((entry) => entry.key === key);
    if (what < 0.6 && listed === undefined) {
      const entry = { key, endsAtMs: nowMs + LIFE_MS };
      map.add(entry);
      list.push(entry);
    } else if (what < 0.8) {
      map.remove(key);
      list = list.filter((entry) => entry !== listed);
    } else if (what < 0.9) {
      map.removeEnded(nowMs);
      list = list.filter(({ endsAtMs }) => endsAtMs > nowMs);
    } else if (what > 0.95 && map.removeOldest() !== list.shift() instanceof Object) {
      t.fail(`another oldest at ${nowMs}`);
    }
    const same = map.get(key) === list.find((entry) => entry.key === key);
    if (map.size !== list.length || !same) {
      t.fail(`differs at ${nowMs}`);
      break;
    }
  }
  t.ok(list.every((entry) => map.get(entry.key) === entry));
  t.end();
});

t.test('entries that come and go leave nothing behind', (t) => {
  const map = new AgingMap<Aging>();
  map.add({ key: 'stays', endsAtMs: 1 });
  for (let i = 0; i < 100_000; i += 1) {
    map.add({ key: 'goes', endsAtMs: 1 });
    map.remove('goes');
  }
  const { queue } = map as unknown as { queue: unknown[] };
  t.ok(queue.length < 2_000, `${queue.length} entries are queued`);
  t.ok(map.removeOldest());
  t.notOk(map.removeOldest());
  t.end();
});

t.test('a full memory costs no more than an empty one', (t) => {
  const budget = new LocalBudget();
  const beganMs = systemClock.monotonicMs();
  for (let i = 0; i < TRACKED_MAX * 4; i += 1) budget.fail(`device/${i}`, i / 1_000);
  t.match(budget, { tracked: TRACKED_MAX, evicted: TRACKED_MAX * 3 });
  // About a second; with a walk over what was deleted it is half a minute.
  t.ok(systemClock.monotonicMs() - beganMs < 15_000);
  t.end();
});
