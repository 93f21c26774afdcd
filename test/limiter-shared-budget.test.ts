/** N replicas on one store grant one budget, whatever the store does never more than N. */
import t from 'tap';
import {
  SHARED_KEYS_PER_SECOND_MAX,
  STORE_WAIT_MAX_MS,
} from '../src/actors/limiter/shared-budget.js';
import { FAILURE_WINDOW_MS } from '../src/actors/limiter/state.js';
import { isFailure } from '../src/runtime/failure.js';
import { StoreError } from '../src/storage/store-error.js';
import {
  ADDRESS,
  type LimiterReplica,
  type Outcome,
  openLimiters,
} from './fixtures/limiter-replica.js';

type Two = [LimiterReplica, LimiterReplica];
type Three = [LimiterReplica, LimiterReplica, LimiterReplica];

const away = (): never => {
  throw new StoreError('store_unavailable', 'The database is away.');
};

function withinOf(outcomes: readonly Outcome[]): number {
  return outcomes.filter((outcome) => outcome === 'in budget').length;
}

t.test('ten failures are within the budget, then the address waits for a minute', async (t) => {
  const { clock, replicas, close } = await openLimiters(1);
  t.teardown(close);
  const [replica] = replicas as [LimiterReplica];
  for (let i = 1; i <= 10; i += 1) t.equal(await replica.fail(), 'in budget', `failure ${i}`);
  t.equal(await replica.fail(), 60);
  await clock.advance(25_500);
  t.equal(await replica.fail(), 35, 'what is left, rounded up');
  t.match(replica.facts, { blocked: 1, tracked: 1, failures: { device: 12, admin: 0 } });
  await clock.advance(35_000);
  t.match(replica.facts, { blocked: 0, tracked: 0 });
  t.equal(await replica.withinBudget(20), 10, 'and has ten again');
});

t.test('each address and each class has a budget of its own', async (t) => {
  const { replicas, close } = await openLimiters(1);
  t.teardown(close);
  const [replica] = replicas as [LimiterReplica];
  t.equal(await replica.withinBudget(12), 10);
  t.equal(await replica.fail('192.0.2.2'), 'in budget');
  for (const other of ['enrolment', 'gateway', 'admin'] as const) {
    t.equal(await replica.fail(ADDRESS, other), 'in budget', other);
  }
  t.ok(Number(await replica.fail()) > 0);
});

t.test('one address on three replicas has one budget, and costs few writes', async (t) => {
  const { replicas, close } = await openLimiters(3);
  t.teardown(close);
  let within = 0;
  for (let i = 0; i < 60; i += 1) {
    if ((await replicas[i % 3]!.fail()) === 'in budget') within += 1;
  }
  t.equal(within, 10);
  const writes = replicas.reduce((sum, { keysWritten }) => sum + keysWritten, 0);
  t.ok(writes <= 10 + 3, `${writes} writes`);
  t.ok(replicas.every(({ facts }) => facts.blocked === 1));
});

t.test('failures that arrive together are one statement, and get ten places', async (t) => {
  const { replicas, close } = await openLimiters(3);
  t.teardown(close);
  const [a, b, c] = replicas as Three;
  const times = Array.from({ length: 30 }, () => ADDRESS);
  const outcomes = await Promise.all([a.failAll(times), b.failAll(times), c.failAll(times)]);
  t.equal(withinOf(outcomes.flat()), 10);
  for (const { written } of replicas) {
    t.same(
      written.map((counts) => counts.map(({ delta }) => delta)),
      [[10]],
      'no more than the burst is counted',
    );
  }
});

t.test('of a batch only as many are within the budget as others have left', async (t) => {
  const { replicas, close } = await openLimiters(2);
  t.teardown(close);
  const [a, b] = replicas as Two;
  t.equal(await a.withinBudget(7), 7);
  const outcomes = await b.failAll(Array.from({ length: 6 }, () => ADDRESS));
  t.same(outcomes, ['in budget', 'in budget', 'in budget', 60, 60, 60]);
});

t.test('a replica that has not seen the address blocks it at its next failure', async (t) => {
  const { clock, replicas, close } = await openLimiters(2);
  t.teardown(close);
  const [a, b] = replicas as Two;
  t.equal(await a.withinBudget(10), 10);
  await clock.advance(30_000);
  t.equal(await b.fail(), 60, 'for a minute from then');
  await clock.advance(30_000);
  t.equal(await b.fail(), 30);
  t.equal(await a.fail(), 'in budget', 'the window is over where it was used up first');
});

t.test('whoever is blocked is answered from memory, also while the store hangs', async (t) => {
  const { clock, replicas, close } = await openLimiters(1);
  t.teardown(close);
  const [replica] = replicas as [LimiterReplica];
  await replica.withinBudget(10);
  const { length } = replica.written;
  t.equal(await replica.withinBudget(100), 0);
  t.equal(replica.written.length, length, 'nothing is written');
  replica.before = () => new Promise(() => undefined);
  const other = replica.send(['192.0.2.2']);
  const beganMs = clock.monotonicMs();
  t.ok(Number(await replica.fail()) > 0);
  t.ok(clock.monotonicMs() - beganMs < 10, 'at once');
  t.equal(other.size, 0, 'while the other still waits');
  t.ok(await clock.runUntil(() => other.size === 1, STORE_WAIT_MAX_MS + 10));
});

t.test('failures at the end of a window are not erased by those of the next', async (t) => {
  const { clock, replicas, close } = await openLimiters(3);
  t.teardown(close);
  const [a, b, c] = replicas as Three;
  t.equal(await a.withinBudget(4), 4);
  await clock.advance(FAILURE_WINDOW_MS - 50);
  t.equal(await b.withinBudget(5), 5, 'nine in the window');
  await clock.advance(50);
  const together = await Promise.all(
    [a, b, c].map((replica) => replica.failAll([ADDRESS, ADDRESS])),
  );
  t.equal(withinOf(together.flat()), 6, 'six in the next');
  t.equal(await c.withinBudget(20), 4, 'and four more');
});

t.test('while the store is away each replica holds its own budget, and says so once', async (t) => {
  const { clock, replicas, close } = await openLimiters(2);
  t.teardown(close);
  const [a, b] = replicas as Two;
  for (const replica of replicas) replica.before = away;
  t.equal(await a.withinBudget(30), 10);
  t.equal(await b.withinBudget(30), 10);
  for (let second = 0; second < 10; second += 1) {
    await clock.advance(1_000);
    t.equal(await a.fail(`192.0.2.${100 + second}`), 'in budget');
  }
  t.equal(a.log.lines.filter(({ level }) => level === 'warn').length, 1);
  t.match(a.log.text(), /The database is away/);
  t.ok(a.facts.storeErrors > 1 && a.facts.storeErrors <= 11);
  t.ok(a.facts.writesDropped >= 9, 'nobody waits for a store that has just failed');
  for (const replica of replicas) replica.before = () => undefined;
  await clock.advance(60_000);
  let within = 0;
  for (let i = 0; i < 30; i += 1) {
    if ((await replicas[i % 2]!.fail()) === 'in budget') within += 1;
  }
  t.equal(within, 10, 'shared again');
  t.equal(a.log.lines.filter(({ level }) => level === 'info').length, 1);
});

t.test('a slow store holds nobody up for long, and its late answer still blocks', async (t) => {
  const { clock, replicas, close } = await openLimiters(2);
  t.teardown(close);
  const [a, b] = replicas as Two;
  t.equal(await a.withinBudget(10), 10);
  let answer = (): void => undefined;
  b.before = () => new Promise((resolve) => (answer = resolve));
  const beganMs = clock.monotonicMs();
  t.equal(await b.fail(), 'in budget', 'as far as this replica knows');
  t.ok(clock.monotonicMs() - beganMs <= STORE_WAIT_MAX_MS + 1);
  t.equal(await b.fail(), 'in budget');
  t.ok(clock.monotonicMs() - beganMs <= STORE_WAIT_MAX_MS + 2, 'the second does not wait at all');
  await clock.advance(5_000);
  t.equal(await b.fail(), 'in budget');
  t.equal(b.written.length, 1, 'never two calls at a time');
  answer();
  await clock.advance(1);
  t.equal(await b.fail(), 60);
  t.match(b.facts, { storeErrors: 1, writesDropped: 2, blocked: 1 });
});

t.test('a call that is given up and then fails is one error', async (t) => {
  const { clock, replicas, close } = await openLimiters(1);
  t.teardown(close);
  const [replica] = replicas as [LimiterReplica];
  let fail = (_: Error): void => undefined;
  replica.before = () => new Promise((_, reject) => (fail = reject));
  await replica.fail();
  fail(new StoreError('outcome_unknown', 'lost'));
  await clock.advance(2_000);
  t.equal(replica.facts.storeErrors, 1);
  replica.before = () => undefined;
  await replica.fail();
  t.equal(replica.written.length, 2, 'it is asked again');
});

t.test('ever new addresses cost the store no more than the cap', async (t) => {
  const { clock, replicas, close } = await openLimiters(1);
  t.teardown(close);
  const [replica] = replicas as [LimiterReplica];
  const beganMs = clock.monotonicMs();
  for (let batch = 0; batch < 25; batch += 1) {
    const addresses = Array.from({ length: 400 }, (_, i) => `2001:db8:${batch}:${i}::/64`);
    t.equal(withinOf(await replica.failAll(addresses)), 400, 'the local budgets are there');
    await clock.advance(100);
  }
  const seconds = (clock.monotonicMs() - beganMs) / 1000;
  t.ok(replica.keysWritten <= SHARED_KEYS_PER_SECOND_MAX * (seconds + 1), `in ${seconds} s`);
  t.ok(replica.keysWritten > SHARED_KEYS_PER_SECOND_MAX, 'and what may be written is');
  t.equal(replica.facts.writesDropped, 10_000 - replica.keysWritten);
  t.ok(
    replica.written.every((counts) => counts.length <= 512),
    'in bounded statements',
  );
  await clock.advance(60_000);
  t.equal(await replica.withinBudget(20), 10);
});

t.test('above the cap one address still has no more than its local budget', async (t) => {
  const { replicas, close } = await openLimiters(1);
  t.teardown(close);
  const [replica] = replicas as [LimiterReplica];
  const flood = Array.from({ length: 4_000 }, (_, i) => `2001:db8:0:${i}::/64`);
  const guesses = Array.from({ length: 100 }, () => ADDRESS);
  const outcomes = await replica.failAll([...flood, ...guesses]);
  t.equal(withinOf(outcomes.slice(flood.length)), 10);
});

t.test('a restart forgets what one replica saw, and not what all of them did', async (t) => {
  const { clock, replicas, close } = await openLimiters(1);
  t.teardown(close);
  const [replica] = replicas as [LimiterReplica];
  t.equal(await replica.withinBudget(11), 10);
  const codes: string[] = [];
  replica.host.localRef('limiter').ask('nonsense', null, {
    answered: (answer) => codes.push(isFailure(answer) ? answer.failure : 'answered'),
  });
  await clock.advance(5_000);
  t.same(codes, ['actor_restarted']);
  t.equal(replica.facts.tracked, 0);
  t.equal(await replica.fail(), 60);
});
