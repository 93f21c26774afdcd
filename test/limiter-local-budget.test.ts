/** What one replica remembers of failures: bounded, and forgotten in the right order. */
import t from 'tap';
import {
  BLOCK_MS,
  FAILURE_BURST,
  FAILURE_WINDOW_MS,
  LocalBudget,
} from '../src/actors/limiter/state.js';

/** Fails often enough to be blocked. */
function useUp(budget: LocalBudget, key: string, nowMs: number): void {
  for (let i = 0; i < FAILURE_BURST; i += 1) budget.fail(key, nowMs);
}

t.test('the last failure of the burst blocks, and the one before it does not', (t) => {
  const budget = new LocalBudget();
  for (let i = 1; i < FAILURE_BURST; i += 1) budget.fail('a', 1_000 + i);
  t.equal(budget.blockedForMs('a', 2_000), 0);
  budget.fail('a', 2_000);
  t.equal(budget.blockedForMs('a', 2_000), BLOCK_MS);
  t.equal(budget.blockedForMs('a', 2_000 + BLOCK_MS - 1), 1, 'what is left');
  t.equal(budget.blockedForMs('a', 2_000 + BLOCK_MS), 0);
  t.equal(budget.blockedForMs('b', 2_000), 0, 'another key');
  t.end();
});

t.test('failures count for a window that begins with the first', (t) => {
  const budget = new LocalBudget();
  budget.fail('a', 0);
  for (let i = 1; i < FAILURE_BURST - 1; i += 1) budget.fail('a', FAILURE_WINDOW_MS - 1);
  budget.fail('a', FAILURE_WINDOW_MS);
  t.equal(budget.blockedForMs('a', FAILURE_WINDOW_MS), 0, 'the first of a new window');
  for (let i = 2; i < FAILURE_BURST; i += 1) budget.fail('a', FAILURE_WINDOW_MS + i);
  t.equal(budget.blockedForMs('a', FAILURE_WINDOW_MS + 20), 0);
  budget.fail('a', FAILURE_WINDOW_MS * 2 - 1);
  t.ok(budget.blockedForMs('a', FAILURE_WINDOW_MS * 2) > 0, 'the new window kept its failures');
  t.end();
});

t.test('a block is not made longer by being told of again', (t) => {
  const budget = new LocalBudget();
  budget.block('a', 0);
  budget.block('a', 30_000);
  t.equal(budget.blockedForMs('a', 30_000), BLOCK_MS - 30_000);
  budget.block('a', BLOCK_MS);
  t.equal(budget.blockedForMs('a', BLOCK_MS), BLOCK_MS, 'but a new one begins after it');
  t.end();
});

t.test('what is over is forgotten', (t) => {
  const budget = new LocalBudget();
  budget.fail('a', 0);
  useUp(budget, 'b', 10);
  budget.fail('c', 20);
  t.match(budget, { tracked: 3, blocked: 1 });
  budget.forgetEnded(FAILURE_WINDOW_MS);
  t.match(budget, { tracked: 2, blocked: 1 });
  budget.forgetEnded(FAILURE_WINDOW_MS + 10);
  t.match(budget, { tracked: 1, blocked: 0 });
  budget.forgetEnded(FAILURE_WINDOW_MS + 20);
  t.match(budget, { tracked: 0, evicted: 0 });
  t.end();
});

t.test('when there are too many, the oldest that is not blocked is forgotten first', (t) => {
  const budget = new LocalBudget(4);
  budget.fail('old', 0);
  useUp(budget, 'blocked', 1);
  for (let i = 1; i < FAILURE_BURST - 1; i += 1) budget.fail('close', 2);
  budget.fail('close', 2);
  for (let i = 0; i < 100; i += 1) budget.fail(`x${i}`, 3 + i);
  t.equal(budget.tracked, 4);
  t.equal(budget.evicted, 99);
  t.ok(budget.blockedForMs('blocked', 200) > 0, 'the blocked one is still there');
  budget.fail('close', 200);
  t.equal(budget.blockedForMs('close', 200), 0, 'the failures of the old ones are gone');
  t.end();
});

t.test('when all are blocked, the oldest block is forgotten', (t) => {
  const budget = new LocalBudget(3);
  for (const [at, key] of ['a', 'b', 'c', 'd'].entries()) budget.block(key, at);
  t.match(budget, { tracked: 3, blocked: 3, evicted: 1 });
  t.equal(budget.blockedForMs('a', 5), 0);
  t.ok(['b', 'c', 'd'].every((key) => budget.blockedForMs(key, 5) > 0));
  budget.fail('e', 6);
  t.match(budget, { tracked: 3, blocked: 2, evicted: 2 });
  t.end();
});
