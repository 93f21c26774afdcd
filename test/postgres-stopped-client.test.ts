/** A client that stops while it holds a lock does not stop the others. */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import t from 'tap';
import { lockNumber } from '../src/storage/postgres/unit-of-work.js';
import { startCluster } from './fixtures/postgres-database.js';
import { codeOf, openStore, streamLocks, timed, until } from './fixtures/postgres-stores.js';
import { TcpProxy } from './fixtures/tcp-proxy.js';
import { body, unkeyed, View } from './storage-contract/view.js';

const cluster = await startCluster();
t.teardown(() => cluster.stop());

// They mostly wait, each for its own lock on its own database.
t.jobs = 3;

/** The server frees the lock after two seconds, and a waiter gives up after three. */
const FREE_WITHIN_MS = 3_000;

t.test('a process that is stopped in its unit loses the lock, and writes nothing', async (t) => {
  const { url } = await cluster.database();
  const view = await View.replay(openStore(t, url), ['a']);
  const program = fileURLToPath(new URL('./fixtures/stopped-writer.js', import.meta.url));
  const child = spawn(process.execPath, [program, url], { stdio: ['ignore', 'pipe', 'inherit'] });
  t.teardown(() => child.kill('SIGKILL'));
  const lines = createInterface({ input: child.stdout })[Symbol.asyncIterator]();
  t.equal((await lines.next()).value, 'locked');
  const { ms, code } = await timed(() => view.append(unkeyed('a', 'mine')));
  t.equal(code, undefined);
  t.ok(ms < FREE_WITHIN_MS, `waited ${Math.round(ms)} ms`);
  const ended = once(child, 'exit');
  child.kill('SIGCONT');
  t.equal((await lines.next()).value, 'store_unavailable', 'nothing of its unit was done');
  await ended;
  await view.catchUp();
  t.same(view.bodies('a'), [body('mine')]);
});

t.test('a unit whose network went silent loses the lock', async (t) => {
  const { url } = await cluster.database();
  const proxy = await TcpProxy.start(cluster.server);
  t.teardown(() => proxy.stop());
  const cutOff = await View.replay(openStore(t, proxy.urlOf(url)), ['a']);
  const view = await View.replay(openStore(t, url), ['a']);
  const lost = codeOf(() =>
    cutOff.commit({}, () => {
      proxy.goSilent();
      return { appends: [unkeyed('a', 'lost')] };
    }),
  );
  await until('the unit of the cut off holds the lock', () => proxy.connections > 0);
  const { ms, code } = await timed(() => view.append(unkeyed('a', 'mine')));
  t.equal(code, undefined);
  t.ok(ms < FREE_WITHIN_MS, `waited ${Math.round(ms)} ms`);
  t.equal(await lost, 'outcome_unknown', 'its commit was sent and never answered');
  t.same(view.bodies('a'), [body('mine')]);
});

t.test('whoever waits for a lock longer than its bound is told to come back', async (t) => {
  const database = await cluster.database();
  const view = await View.replay(openStore(t, database.url), ['a', 'b']);
  const holding = database.sql(`SELECT pg_advisory_lock(${lockNumber('a')}), pg_sleep(5)`);
  await until('the lock is held', async () => (await streamLocks(database, 'held')) === 1);
  const { ms, code } = await timed(() => view.commit({ streams: ['a'] }, () => ({})));
  t.equal(code, 'store_unavailable');
  t.ok(ms > 2_500 && ms < 4_500, `after ${Math.round(ms)} ms`);
  await view.commit({ streams: ['b'] }, () => ({ appends: [unkeyed('b', 1)] }));
  await holding;
  await view.append(unkeyed('a', 2));
});
