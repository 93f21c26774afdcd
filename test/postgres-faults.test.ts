/** The store fails closed and at once while the database is away, and recovers by itself. */
import t, { type Test } from 'tap';
import { CATCH_UP_MAX_MS } from '../src/storage/postgres/catch-up-reader.js';
import { lockNumber } from '../src/storage/postgres/unit-of-work.js';
import { startCluster, type TestCluster, type TestDatabase } from './fixtures/postgres-database.js';
import { codeOf, openStore, streamLocks, timed, until } from './fixtures/postgres-stores.js';
import { TcpProxy } from './fixtures/tcp-proxy.js';
import { body, unkeyed, View } from './storage-contract/view.js';

// Each test has its own server, and most of the time it waits.
t.jobs = 3;
t.setTimeout(120_000);

/** What the coarse watch adds to a bound, and what a busy machine does. */
const LEEWAY_MS = 2_000;

interface Opened {
  readonly cluster: TestCluster;
  readonly database: TestDatabase;
  readonly view: View;
}

async function open(t: Test, options = {}): Promise<Opened> {
  const cluster = await startCluster(options);
  const database = await cluster.database();
  t.teardown(() => cluster.stop());
  const view = await View.replay(openStore(t, database.url), ['a']);
  await view.append(unkeyed('a', 'before'));
  await view.catchUp();
  return { cluster, database, view };
}

async function recovers(t: Test, view: View): Promise<void> {
  await until('the reader is back', () => view.catchUp().then(() => true));
  await until('the pool is back', () => view.append(unkeyed('a', 'after')));
  t.ok(view.bodies('a').includes(body('after')), 'others may have written since');
}

t.test('a server that is killed and started again is found again', async (t) => {
  const { cluster, view } = await open(t);
  const { store } = view;
  await cluster.server.kill();
  for (let round = 0; round < 5; round += 1) {
    const { ms, code } = await timed(() => view.catchUp());
    t.equal(code, 'store_unavailable');
    t.ok(ms < 500, `at once: ${Math.round(ms)} ms`);
    t.equal(await codeOf(() => view.append(unkeyed('a', 'x'))), 'store_unavailable');
  }
  t.equal(await codeOf(() => store.kv.get(['k'])), 'store_unavailable');
  const { dbErrors = 0, dbOpenConnections = -1 } = store.facts();
  t.ok(dbErrors >= 11, `${dbErrors} errors`);
  t.equal(dbOpenConnections, 0);
  await cluster.server.start();
  await recovers(t, view);
  t.same(view.bodies('a'), [body('before'), body('after')], 'what was answered was durable');
});

t.test('a server that is restarted during traffic is back without help', async (t) => {
  const { cluster, view } = await open(t);
  let running = true;
  const codes = new Set<string | undefined>();
  const traffic = (async () => {
    while (running) {
      codes.add(await codeOf(() => view.catchUp()));
      codes.add(await codeOf(() => view.append(unkeyed('a', 'during'))));
    }
  })();
  await cluster.server.restart('fast');
  await recovers(t, view);
  running = false;
  await traffic;
  codes.delete(undefined);
  codes.delete('outcome_unknown');
  t.same(
    [...codes].filter((code) => code !== 'store_unavailable'),
    [],
  );
});

t.test('a server that hangs fails within the bound, and goes on afterwards', async (t) => {
  const { cluster, view } = await open(t);
  cluster.server.pause();
  const [reading, writing] = await Promise.all([
    timed(() => view.catchUp()),
    timed(() => view.store.kv.get(['k'])),
  ]);
  t.equal(reading.code, 'store_unavailable');
  const within = `${Math.round(reading.ms)} ms`;
  t.ok(reading.ms >= CATCH_UP_MAX_MS && reading.ms < CATCH_UP_MAX_MS + LEEWAY_MS, within);
  t.equal(writing.code, 'store_unavailable');
  const again = await timed(() => view.catchUp());
  t.equal(again.code, 'store_unavailable', 'a new connection hangs as well');
  t.ok(again.ms < CATCH_UP_MAX_MS + LEEWAY_MS);
  cluster.server.resume();
  await recovers(t, view);
});

t.test('a half-open connection is noticed and replaced', async (t) => {
  const { cluster, database } = await open(t);
  const proxy = await TcpProxy.start(cluster.server);
  t.teardown(() => proxy.stop());
  const view = await View.replay(openStore(t, proxy.urlOf(database.url)), ['a']);
  await view.catchUp();
  proxy.goSilent();
  const { ms, code } = await timed(() => view.catchUp());
  t.equal(code, 'store_unavailable');
  t.ok(ms >= CATCH_UP_MAX_MS && ms < CATCH_UP_MAX_MS + LEEWAY_MS, `after ${Math.round(ms)} ms`);
  proxy.heal();
  await recovers(t, view);
});

t.test('a slow network is not a broken one', async (t) => {
  const { cluster, database } = await open(t);
  const proxy = await TcpProxy.start(cluster.server);
  t.teardown(() => proxy.stop());
  const view = await View.replay(openStore(t, proxy.urlOf(database.url)), ['a']);
  proxy.delay(400);
  const { ms, code } = await timed(() => view.append(unkeyed('a', 'slow')));
  t.equal(code, undefined);
  t.ok(ms >= 1_600, `two round trips, each delayed both ways: ${Math.round(ms)} ms`);
  t.ok(ms < 2_400, 'and no third');
  t.same(await view.catchUp(), []);
});

t.test('a server without free connections is unavailable until there is one', async (t) => {
  const { database, view } = await open(t, { maxConnections: 20 });
  const others: ReturnType<typeof openStore>[] = [];
  const full = await (async () => {
    for (let n = 0; n < 30; n += 1) {
      const store = openStore(t, database.url);
      others.push(store);
      const code = await codeOf(() => store.kv.get(['k']));
      if (code !== undefined) return code;
    }
    return undefined;
  })();
  t.equal(full, 'store_unavailable');
  t.equal(await codeOf(() => view.catchUp()), undefined, 'those who have a connection go on');
  await Promise.all(others.map((store) => store.close()));
  await until('there is room', () => openStore(t, database.url).kv.get(['k']));
});

t.test('a read-only database lets nothing through that writes', async (t) => {
  const { cluster, view } = await open(t);
  await cluster.server.setting('default_transaction_read_only', 'on');
  await until('the setting is seen', async () => {
    return (await codeOf(() => view.append(unkeyed('a', 'x')))) === 'store_unavailable';
  });
  t.equal(await codeOf(() => view.store.kv.put('k', 'v', null)), 'store_unavailable');
  t.equal(await codeOf(() => view.catchUp()), undefined);
  await view.store.kv.get(['k']);
});

t.test('a store never holds more connections than its share', async (t) => {
  const { database } = await open(t);
  const store = openStore(t, database.url, { connectionsMax: 3 });
  const view = await View.replay(store, ['a']);
  await Promise.all([
    ...Array.from({ length: 50 }, (_, n) => store.kv.put(`k${n}`, 'v', null)),
    ...Array.from({ length: 50 }, () => store.catchUp(view.position)),
  ]);
  t.equal(store.facts().dbOpenConnections, 3);
  await store.close();
  t.equal(store.facts().dbOpenConnections, 0);
});

t.test('writers that all wait for a lock leave the reader its connection', async (t) => {
  const { database } = await open(t);
  const store = openStore(t, database.url, { connectionsMax: 3 });
  const { position } = await View.replay(store, ['a']);
  const holding = database.sql(`SELECT pg_advisory_lock(${lockNumber('a')}), pg_sleep(1)`);
  await until('the lock is held', async () => (await streamLocks(database, 'held')) === 1);
  const units = Array.from({ length: 4 }, () =>
    codeOf(() => store.commit({ streams: ['a'], position }, () => ({}))),
  );
  await until('the pool is taken', async () => (await streamLocks(database, 'waiting')) === 2);
  const { ms, code } = await timed(() => store.catchUp(position));
  t.equal(code, undefined);
  t.ok(ms < 500, `${Math.round(ms)} ms`);
  t.equal(await streamLocks(database, 'waiting'), 2, 'they still wait');
  await holding;
  t.same(await Promise.all(units), [undefined, undefined, undefined, undefined]);
});

t.test('a store that closes rejects those who wait for a connection at once', async (t) => {
  const { database } = await open(t);
  const store = openStore(t, database.url, { connectionsMax: 2 });
  await store.kv.put('k', 'v', null);
  const holding = database.sql('BEGIN; SELECT 1 FROM halo_kv FOR UPDATE; SELECT pg_sleep(1)');
  await until('the row is locked', async () => {
    const locks = await database.sql("SELECT 1 FROM pg_locks WHERE mode = 'RowShareLock'");
    return locks.length > 0;
  });
  const waiting = Array.from({ length: 5 }, () => codeOf(() => store.kv.put('k', 'v', null)));
  await until('the first of them waits for the row', async () => {
    const waiters = await database.sql(
      "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock'",
    );
    return waiters.length > 0;
  });
  const closing = timed(() => store.close());
  const ended = await Promise.all(waiting);
  t.same(ended.sort(), [
    'outcome_unknown',
    ...Array.from({ length: 4 }, () => 'store_unavailable'),
  ]);
  const { ms } = await closing;
  t.ok(ms < 500, `${Math.round(ms)} ms`);
  await holding;
});
