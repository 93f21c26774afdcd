/** The search that judges the simulation's answers, on a register that is set and read. */
import t from 'tap';
import { type Step, unexplained } from './simulation/explain.js';

type Write = { readonly set: number; readonly lost?: true };
type Read = { readonly saw: number };

function step(beganMs: number, endedMs: number, done: Write | Read): Step<number> {
  const writes = 'set' in done;
  return {
    label: JSON.stringify(done),
    name: `${beganMs} ${endedMs} ${JSON.stringify(done)}`,
    beganMs,
    endedMs,
    optional: writes && done.lost === true,
    isPure: () => !writes,
    after: (state) => (writes ? [done.set] : state === done.saw ? [state] : []),
  };
}
const fits = (...steps: Step<number>[]): boolean => unexplained(steps, 0) === undefined;

t.test('calls that overlap may have happened in either order', async (t) => {
  t.ok(fits(step(1, 4, { set: 1 }), step(2, 3, { saw: 0 })));
  t.ok(fits(step(1, 4, { set: 1 }), step(2, 3, { saw: 1 })));
  t.ok(fits(step(1, 5, { set: 1 }), step(2, 6, { set: 2 }), step(7, 8, { saw: 1 })));
});

t.test('what was answered is seen by whoever asks later', async (t) => {
  t.notOk(fits(step(1, 2, { set: 1 }), step(3, 4, { saw: 0 })));
  t.notOk(
    fits(step(1, 9, { set: 1 }), step(2, 3, { saw: 1 }), step(4, 5, { saw: 0 })),
    'nor may it be unseen again, even while the call still runs',
  );
  t.notOk(fits(step(1, 2, { set: 1 }), step(3, 4, { set: 2 }), step(5, 6, { saw: 1 })));
});

t.test('a call without an outcome has happened or not, but not after its end', async (t) => {
  const lost = step(1, 5, { set: 1, lost: true });
  t.ok(fits(lost, step(6, 7, { saw: 0 })));
  t.ok(fits(lost, step(6, 7, { saw: 1 })));
  t.ok(fits(lost, step(2, 3, { saw: 0 }), step(6, 7, { saw: 1 })));
  t.notOk(fits(lost, step(6, 7, { saw: 0 }), step(8, 9, { saw: 1 })));
});

t.test('a contradiction names the call at which every order ends', async (t) => {
  const found = unexplained(
    [step(1, 2, { set: 1 }), step(3, 4, { saw: 1 }), step(5, 6, { saw: 2 })],
    0,
  );
  t.match(found, { state: 1, gaveUp: false, stuck: [{ label: '{"saw":2}' }] });
});

t.test('many calls at the same moment do not make the search go astray', async (t) => {
  const crowd = Array.from({ length: 40 }, (_, index) => step(1, 10, { set: index % 4 }));
  t.ok(fits(...crowd, step(11, 12, { saw: 3 }), step(13, 14, { saw: 3 })));
});
