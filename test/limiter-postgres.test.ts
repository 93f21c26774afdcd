/** The limiters of three replicas on a real PostgreSQL, without threads between. */
import t, { type Test } from 'tap';
import { limiterActor } from '../src/actors/limiter/actor.js';
import { LIMITER_ACTOR, LimiterClient } from '../src/actors/limiter/client.js';
import type { FailureClass, LimiterFacts } from '../src/actors/limiter/messages.js';
import { STORE_WAIT_MAX_MS } from '../src/actors/limiter/shared-budget.js';
import { ActorHost } from '../src/runtime/actor-host.js';
import { type Clock, systemClock } from '../src/runtime/clock.js';
import { isFailure } from '../src/runtime/failure.js';
import { silentLog } from '../src/runtime/log.js';
import { systemRandom } from '../src/runtime/random.js';
import { startCluster } from './fixtures/postgres-database.js';
import { openStore, until } from './fixtures/postgres-stores.js';

const cluster = await startCluster();
t.teardown(() => cluster.stop());

const ADDRESS = '2001:db8::/64';
/** A busy machine must not make a store that is only slow look as if it were away. */
const PATIENT: Clock = {
  ...systemClock,
  schedule: (callback, delayMs) => systemClock.schedule(callback, delayMs * 50),
};

interface Limiter {
  fail(address?: string, failureClass?: FailureClass): Promise<string>;
  facts(): LimiterFacts;
}

async function openLimiter(t: Test, url: string, clock: Clock): Promise<Limiter> {
  const environment = { store: openStore(t, url), clock, random: systemRandom, log: silentLog };
  const host = new ActorHost([limiterActor(environment)], {
    ...environment,
    onExhausted: () => undefined,
  });
  await host.open();
  t.teardown(() => host.close());
  const client = new LimiterClient(host.localRef(LIMITER_ACTOR));
  return {
    fail: (address = ADDRESS, failureClass = 'device') =>
      new Promise((resolve) => {
        client.failed(
          { class: failureClass, address },
          { answered: (answer) => resolve(isFailure(answer) ? answer.failure : String(answer)) },
        );
      }),
    facts: () => host.snapshots()[0]!.facts as unknown as LimiterFacts,
  };
}

function withinOf(outcomes: readonly string[]): number {
  return outcomes.filter((outcome) => outcome === 'within_budget').length;
}

t.test('one address that fails on three replicas at once has one budget', async (t) => {
  const { url, sql } = await cluster.database();
  const limiters = await Promise.all([1, 2, 3].map(() => openLimiter(t, url, PATIENT)));
  const one = async (limiter: Limiter): Promise<string[]> => {
    const outcomes: string[] = [];
    for (let i = 0; i < 20; i += 1) outcomes.push(await limiter.fail());
    return outcomes;
  };
  const outcomes = (await Promise.all(limiters.map(one))).flat();
  t.equal(withinOf(outcomes), 10);
  t.equal(outcomes.filter((outcome) => outcome === 'too_many_failures').length, 50);
  const rows = await sql(
    'SELECT key, count::int, expires_at - now() AS left, ' +
      "expires_at BETWEEN now() AND now() + interval '1 minute' AS inside FROM halo_counters",
  );
  t.match(rows, [{ key: `auth-failures/device/${ADDRESS}`, inside: true }]);
  t.ok(Number(rows[0]!['count']) <= 13, `${rows[0]!['count']} writes`);
  t.ok(limiters.every((limiter) => limiter.facts().storeErrors === 0));
});

t.test('many addresses on three replicas at once neither deadlock nor mix', async (t) => {
  const { url } = await cluster.database();
  const limiters = await Promise.all([1, 2, 3].map(() => openLimiter(t, url, PATIENT)));
  const addresses = Array.from({ length: 40 }, (_, i) => `192.0.2.${i}`);
  const within = new Map(addresses.map((address) => [address, 0]));
  const one = async (limiter: Limiter, order: readonly string[]): Promise<void> => {
    for (let round = 0; round < 6; round += 1) {
      const outcomes = await Promise.all(order.map((address) => limiter.fail(address)));
      for (const [index, address] of order.entries()) {
        if (outcomes[index] === 'within_budget') within.set(address, within.get(address)! + 1);
      }
    }
  };
  await Promise.all(
    limiters.map((limiter, i) => one(limiter, i === 1 ? addresses.toReversed() : addresses)),
  );
  t.same([...new Set(within.values())], [10], 'each address failed 18 times');
  t.ok(limiters.every((limiter) => limiter.facts().storeErrors === 0));
});

t.test('a lock on the counters holds no refusal up, and what it counted late counts', async (t) => {
  const { url, sql } = await cluster.database();
  const [a, b] = await Promise.all([
    openLimiter(t, url, PATIENT),
    openLimiter(t, url, systemClock),
  ]);
  t.equal(await b!.fail('192.0.2.9'), 'within_budget', 'its connection is there');
  for (let i = 0; i < 10; i += 1) t.equal(await a!.fail(), 'within_budget');
  const holding = sql(
    'DO $$ BEGIN PERFORM 1 FROM halo_counters FOR UPDATE; PERFORM pg_sleep(2); END $$',
  );
  await until('the lock is held', async () => {
    const [row] = await sql("SELECT count(*)::int AS n FROM pg_locks WHERE mode = 'RowShareLock'");
    return Number(row!['n']) > 0;
  });
  const beganMs = systemClock.monotonicMs();
  t.equal(await b!.fail(), 'within_budget', 'as far as it knows');
  const tookMs = systemClock.monotonicMs() - beganMs;
  t.ok(tookMs >= STORE_WAIT_MAX_MS - 50 && tookMs < 1_900, `${Math.round(tookMs)} ms`);
  t.equal(b!.facts().storeErrors, 1);
  await holding;
  await until('the late count blocks', () => b!.facts().blocked === 1);
  t.equal(await b!.fail(), 'too_many_failures');
});
