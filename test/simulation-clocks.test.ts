/** The clocks of the simulation: threads that are held, and a store whose clock is set. */
import t from 'tap';
import { SimulatedClock } from '../src/runtime/simulated-clock.js';
import { StoreTime } from './simulation/store-time.js';
import { ThreadClock } from './simulation/thread-clock.js';

t.test('what comes due in a held thread runs in its order when it is released', async (t) => {
  const base = new SimulatedClock();
  const thread = new ThreadClock(base);
  const ran: string[] = [];
  const note = (name: string) => () => void ran.push(`${name} ${base.monotonicMs()}`);
  thread.schedule(note('second'), 20);
  thread.schedule(note('first'), 10);
  const cancelled = thread.schedule(note('cancelled'), 10);
  thread.schedule(note('last'), 100);
  thread.hold();
  await base.advance(50);
  t.same(ran, []);
  t.equal(thread.monotonicMs(), 1_050, 'time passes');
  t.equal(thread.heldMs(), 50);
  cancelled.cancel();
  thread.release();
  await base.advance(100);
  t.same(ran, ['first 1050', 'second 1050', 'last 1100']);
  t.equal(thread.heldMs(), 50);
});

t.test('a thread that is held twice runs after both were released', async (t) => {
  const base = new SimulatedClock();
  const thread = new ThreadClock(base);
  let ran = 0;
  thread.hold();
  thread.hold();
  thread.afterTurn(() => {
    ran += 1;
  });
  thread.release();
  await base.advance(1);
  t.equal(ran, 0);
  thread.release();
  await base.advance(1);
  t.equal(ran, 1);
});

t.test('a thread that died runs nothing any more', async (t) => {
  const base = new SimulatedClock();
  const thread = new ThreadClock(base);
  let ran = 0;
  const run = (): void => {
    ran += 1;
  };
  thread.schedule(run, 5);
  thread.hold();
  await base.advance(10);
  thread.die();
  thread.release();
  thread.schedule(run, 5);
  await base.advance(10);
  t.equal(ran, 0);
});

t.test("the store's clock is known between its least and its most", async (t) => {
  const base = new SimulatedClock();
  const store = new StoreTime(base);
  const startMs = store.wallMs();
  await base.advance(100);
  store.step(-40);
  await base.advance(10);
  t.equal(store.wallMs(), startMs + 70);
  t.same(store.during(1_050, 1_110), {
    lowMs: startMs + 50,
    highMs: startMs + 100,
    highestMs: startMs + 100,
  });
  t.same(store.during(1_105, 9_999), {
    lowMs: startMs + 65,
    highMs: startMs + 70,
    highestMs: startMs + 100,
  });
});
