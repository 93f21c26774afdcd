/** What becomes of streams whose client, or whose replica, does not do its part. */
import t from 'tap';
import { type Clock, systemClock } from '../src/runtime/clock.js';
import { until } from './fixtures/http-front.js';
import { PushFront } from './fixtures/push-front.js';

/** Time that passes eight times as fast: a stall of a busy machine is not ten seconds of it. */
const FACTOR = 8;
const fastClock: Clock = {
  ...systemClock,
  monotonicMs: () => systemClock.monotonicMs() * FACTOR,
  schedule: (callback, delayMs) => systemClock.schedule(callback, delayMs / FACTOR),
};

async function start(clock?: Clock): Promise<PushFront> {
  const push = await PushFront.start(clock);
  t.teardown(() => push.close());
  await until(() => push.front.server.snapshot().push?.version === 0);
  return push;
}

/** Confirms the list as the actor does, until it is stopped. */
function confirming(push: PushFront): () => void {
  const timer = setInterval(() => push.confirm(), 50);
  t.teardown(() => clearInterval(timer));
  return () => clearInterval(timer);
}

t.test('a client that never reads is closed with 4408, and nobody waits for it', async (t) => {
  const push = await start();
  const [slow, other] = [await push.open(), await push.open({ acks: true })];
  await until(() => slow.frames.length > 0);
  slow.pause();
  let round = 0;
  const closed = (): number => push.front.server.snapshot().push?.closed['4408'] ?? 0;
  for (; closed() === 0 && round < 400; round += 1) {
    push.kill(...Array.from({ length: 500 }, (_, id) => `a${id}-${round}`));
    const { version } = push;
    await until(() => other.list.version === version || other.closed !== undefined);
    t.equal(other.closed, undefined, `round ${round}`);
    push.entries.clear();
  }
  t.equal(closed(), 1, `after ${round} rounds`);
  t.match(push.front.server.snapshot().push, { streams: 1 });
  slow.resume();
  await until(() => slow.closed !== undefined);
  t.equal(slow.closed?.code, 4408, 'it is told, once it reads');
  t.same(slow.list.faults, [], 'and what it got was in order');
  t.same(other.list.faults, []);
  t.equal(other.closed, undefined);
});

t.test('a client that takes no page of its snapshot is closed with 4408', async (t) => {
  const push = await start(fastClock);
  confirming(push);
  for (let part = 0; part < 60; part += 1) {
    push.kill(...Array.from({ length: 500 }, (_, id) => `a${id}-${part}`));
  }
  const slow = await push.open();
  slow.pause();
  const other = await push.open();
  await until(() => other.list.version === push.version);
  await until(() => push.front.server.snapshot().push?.closed['4408'] === 1, 15_000);
  t.equal(other.closed, undefined);
  slow.destroy();
});

t.test('a peer that gives no sign of life is dropped, one that answers pings stays', async (t) => {
  const push = await start(fastClock);
  confirming(push);
  const [dead, alive] = [await push.open(), await push.open()];
  dead.answersPings = false;
  await until(() => push.front.server.snapshot().push?.closed['silent'] === 1, 10_000);
  await until(() => dead.closed !== undefined);
  t.ok(dead.pings >= 2, 'it was asked');
  t.equal(alive.closed, undefined);
  t.ok(alive.ofType('heartbeat').length >= 7, 'every five seconds');
});

t.test(
  'a replica that hears nothing for 10 s closes its streams and takes no others',
  async (t) => {
    const push = await start(fastClock);
    const stop = confirming(push);
    const client = await push.open();
    await until(() => client.ofType('heartbeat').length >= 3);
    t.equal(client.closed, undefined, 'while it is confirmed it stays');
    stop();
    await until(() => client.closed !== undefined);
    t.equal(client.closed?.code, 1013);
    const refused = await push.open().catch((error: unknown) => error);
    t.match(refused, { status: 503, code: 'store_unavailable' });
    push.confirm();
    const again = await push.open();
    await until(() => again.frames.length > 0);
  },
);

t.test('a process that stood still hears its news before it judges them too old', async (t) => {
  let aheadMs = 0;
  const push = await start({
    ...systemClock,
    monotonicMs: () => systemClock.monotonicMs() + aheadMs,
  });
  const client = await push.open();
  await until(() => client.frames.length > 0);
  aheadMs = 20_000;
  await until(() => client.closed !== undefined);
  t.equal(client.closed?.code, 1013, 'without news it is closed');
  const other = await PushFront.start({
    ...systemClock,
    monotonicMs: () => systemClock.monotonicMs() + aheadMs,
  });
  t.teardown(() => other.close());
  await until(() => other.front.server.snapshot().push?.version === 0);
  const kept = await other.open();
  await until(() => kept.frames.length > 0);
  aheadMs = 40_000;
  const reports = other.reports.length;
  // The first tick after the standstill reports; a tick later it would be too late for the news.
  await until(() => other.reports.length > reports);
  other.confirm();
  const seen = kept.frames.length;
  await until(() => kept.frames.length > seen, 10_000);
  t.equal(kept.closed, undefined);
});
