import t from 'tap';
import { killListActor } from '../src/actors/kill-list/actor.js';
import { KILL_LIST_ACTOR, KillListClient } from '../src/actors/kill-list/client.js';
import type { KillListNews } from '../src/actors/kill-list/messages.js';
import { KILL_LIST_ENTRIES_MAX } from '../src/actors/kill-list/overlay.js';
import { ActorHost } from '../src/runtime/actor-host.js';
import { silentLog } from '../src/runtime/log.js';
import { seededRandom } from '../src/runtime/random.js';
import { ModelStore } from '../src/storage/model/model-store.js';
import { codeOf, enrol, openReplica, openReplicas } from './fixtures/device-replica.js';
import { keepAlive } from './fixtures/keep-alive.js';
import { testRecorder } from './fixtures/test-recorder.js';
import { until } from './fixtures/toy-actor.js';

keepAlive(t);

/** Two replicas, each with a devices actor and a kill-list actor on one model database. */
async function open(seed = 1) {
  const { clock, database, replicas, close } = await openReplicas(seed);
  const lists = await Promise.all(
    replicas.map(async () => {
      const store = new ModelStore(database);
      const host = new ActorHost(
        [killListActor({ store, log: silentLog, evidence: testRecorder })],
        {
          clock,
          random: seededRandom(seed),
          log: silentLog,
          onExhausted: () => undefined,
        },
      );
      await host.open();
      return { host, kills: new KillListClient(host.localRef(KILL_LIST_ACTOR)) };
    }),
  );
  const [a, b] = lists.map(({ kills }) => kills) as [KillListClient, KillListClient];
  return {
    clock,
    database,
    replicas,
    hosts: lists.map(({ host }) => host),
    a,
    b,
    close: async () => {
      await Promise.all(lists.map(({ host }) => host.close()));
      await close();
    },
  };
}

/** A port that keeps what the host publishes. */
function subscribed(host: ActorHost): KillListNews[] {
  const news: KillListNews[] = [];
  host.subscribe({
    postMessage: (message) => {
      if (message.type === 'publish') news.push(message.message as KillListNews);
    },
  });
  return news;
}

const KILL = { kind: 'device', id: 'dev_1', reason: 'lost', by: 'root' };

t.test('a change raises the version by one, the same kill again by nothing', async (t) => {
  const { clock, a, b, close } = await open();
  t.teardown(close);
  const first = await a.kill(KILL);
  t.equal(first.version, 1);
  const again = await b.kill({ ...KILL, reason: 'another', by: 'eve' });
  t.equal(again.version, 1);
  t.same(again.entry, first.entry, 'the first reason stays');
  const ending = await a.kill({ ...KILL, expiresAtMs: clock.wallMs() + 1_000 });
  t.equal(ending.version, 2, 'another end is a change');
  t.equal((await b.kill(KILL)).version, 3, 'no end over one is a change too');
  t.equal((await a.lift({ kind: 'device', id: 'dev_1', by: 'root' })).version, 4);
  t.equal((await b.lift({ kind: 'device', id: 'dev_1', by: 'root' })).version, 4);
  t.same((await b.list()).entries, []);
  const past = { ...KILL, expiresAtMs: clock.wallMs() };
  t.equal(await codeOf(a.kill(past)), 'kill_already_expired');
});

t.test('an expiry is a lift that raises the version once, whoever notices', async (t) => {
  const { clock, a, b, close } = await open();
  t.teardown(close);
  await a.kill({ ...KILL, expiresAtMs: clock.wallMs() + 500 });
  t.equal((await b.list()).version, 1);
  clock.advance(500);
  const versions = new Set<number>();
  let settled = 0;
  await until(() => {
    void b.list().then((list) => {
      versions.add(list.version);
      if (list.entries.length === 0) settled += 1;
    });
    return settled > 50;
  });
  t.same([...versions].sort(), [1, 2]);
  t.equal((await a.list()).version, 2);
});

t.test('every change is told once, in order, where it was made and elsewhere', async (t) => {
  const { hosts, a, b, close } = await open();
  t.teardown(close);
  const told = hosts.map(subscribed);
  await a.kill(KILL);
  await b.kill({ ...KILL, id: 'dev_2' });
  await a.lift({ kind: 'device', id: 'dev_1', by: 'root' });
  t.same(await b.version(), await a.version());
  for (const news of told) {
    const changes = news.flatMap((one) => (one.type === 'changes' ? one.changes : []));
    t.same(
      changes.map(({ type, version }) => [type, version]),
      [
        ['kill', 1],
        ['kill', 2],
        ['lift', 3],
      ],
    );
    const told = news.flatMap((one) => (one.type === 'changes' ? [one] : []));
    t.ok(told.every((one, index) => one.from === (told[index - 1]?.version ?? 0)));
  }
  const [news = []] = told;
  const quiet = news.length;
  await until(() => news.slice(quiet).some((one) => one.type === 'unchanged'));
  t.match(news.at(-1), { type: 'unchanged', version: 3 }, 'and how fresh the list is');
});

t.test(
  'a killed device or user is refused at the next request, and let in after a lift',
  async (t) => {
    const { clock, replicas, a, b, close } = await open();
    t.teardown(close);
    const [first, second] = replicas as [(typeof replicas)[0], (typeof replicas)[0]];
    const device = await enrol(first, 'ann');
    const passed = `${device.id}ann`;
    t.equal(await second.authenticate(device.credential), passed);
    await a.kill({ ...KILL, id: device.id });
    t.equal(await second.authenticate(device.credential), 'device_killed');
    await b.lift({ kind: 'device', id: device.id, by: 'root' });
    t.equal(await first.authenticate(device.credential), passed);
    await b.kill({
      kind: 'user',
      id: 'ann',
      reason: 'r',
      by: 'root',
      expiresAtMs: clock.wallMs() + 100,
    });
    t.equal(await first.authenticate(device.credential), 'device_killed');
    clock.advance(100);
    t.equal(await first.authenticate(device.credential), passed, 'over when the store says so');
    await first.devices.revoke({ id: device.id, reason: 'r', by: 'root' });
    await a.kill({ ...KILL, id: device.id });
    t.equal(await second.authenticate(device.credential), 'device_revoked');
  },
);

t.test('kills and lifts racing from two replicas end in one list, 200 seeded rounds', async (t) => {
  const { a, b, close } = await open(7);
  t.teardown(close);
  const random = seededRandom(7);
  let changes = 0;
  for (let round = 0; round < 200; round += 1) {
    const acts = Array.from({ length: 4 }, async () => {
      const list = random.fraction() < 0.5 ? a : b;
      const id = `dev_${Math.floor(random.fraction() * 3)}`;
      if (random.fraction() < 0.5) await list.kill({ ...KILL, id });
      else await list.lift({ kind: 'device', id, by: 'root' });
    });
    await Promise.all(acts);
    const [one, other] = await Promise.all([a.list(), b.list()]);
    if (one.version !== other.version) t.fail(`round ${round}: ${one.version}, ${other.version}`);
    t.same(one.entries, other.entries);
    t.ok(one.version >= changes && one.version <= changes + 4);
    changes = one.version;
  }
});

t.test('the list is bounded, and a fresh replica counts the same', async (t) => {
  const { clock, database, a, close } = await open();
  t.teardown(close);
  const ids = Array.from({ length: KILL_LIST_ENTRIES_MAX }, (_, index) => `agent-${index}`);
  for (let from = 0; from < ids.length; from += 1_000) {
    const some = ids.slice(from, from + 1_000);
    await Promise.all(some.map((id) => a.kill({ ...KILL, kind: 'agent', id })));
  }
  t.equal(await codeOf(a.kill({ ...KILL, kind: 'agent', id: 'one more' })), 'kill_list_full');
  t.equal((await a.kill({ ...KILL, kind: 'agent', id: 'agent-7' })).version, KILL_LIST_ENTRIES_MAX);
  await a.lift({ kind: 'agent', id: 'agent-7', by: 'root' });
  await a.kill({ ...KILL, kind: 'agent', id: 'one more' });
  const fresh = await openReplica(new ModelStore(database), clock, seededRandom(3));
  t.match(fresh.host.snapshots()[0]?.facts, { cursors: {} });
  await fresh.host.close();
  t.equal((await a.list()).version, KILL_LIST_ENTRIES_MAX + 2);
});
