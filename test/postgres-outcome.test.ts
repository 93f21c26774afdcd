/** What a lost connection means for a commit: refused for sure, or unknown until the next look. */
import { randomBytes } from 'node:crypto';
import t, { type Test } from 'tap';
import { startCluster } from './fixtures/postgres-database.js';
import { codeOf, openStore, until } from './fixtures/postgres-stores.js';
import { TcpProxy } from './fixtures/tcp-proxy.js';
import { body, unkeyed, View } from './storage-contract/view.js';

const cluster = await startCluster();
t.teardown(() => cluster.stop());

async function throughProxy(t: Test): Promise<{ proxy: TcpProxy; view: View; other: View }> {
  const { url } = await cluster.database();
  const proxy = await TcpProxy.start(cluster.server);
  const view = await View.replay(openStore(t, proxy.urlOf(url)), ['a']);
  const other = await View.replay(openStore(t, url), ['a']);
  await view.append(unkeyed('a', 'before'));
  t.teardown(() => proxy.stop());
  return { proxy, view, other };
}

t.test('a commit that never reached the server is unknown, and was not done', async (t) => {
  const { proxy, view, other } = await throughProxy(t);
  proxy.watch((chunk) => (chunk.includes('COMMIT\0') ? 'cut' : 'pass'));
  t.equal(await codeOf(() => view.append(unkeyed('a', 'lost'))), 'outcome_unknown');
  proxy.heal();
  await other.catchUp();
  t.same(other.bodies('a'), [body('before')]);
  await until('the view catches up', () => view.catchUp());
  await view.append(unkeyed('a', 'after'));
  t.same(view.bodies('a'), [body('before'), body('after')]);
});

t.test('a commit whose answer was lost is unknown, and was done', async (t) => {
  const { proxy, view } = await throughProxy(t);
  proxy.watchAnswers((chunk) => (chunk.includes('COMMIT\0') ? 'cut' : 'pass'));
  const before = view.position;
  t.equal(await codeOf(() => view.append(unkeyed('a', 'done'))), 'outcome_unknown');
  t.equal(view.position, before, 'the cursor stays where it was');
  proxy.heal();
  await until('the view catches up', () => view.catchUp());
  t.same(view.bodies('a'), [body('before'), body('done')], 'the next catch-up tells');
});

t.test('a connection that is lost before the commit was sent means nothing was done', async (t) => {
  const { proxy, view, other } = await throughProxy(t);
  proxy.watch((chunk) => (chunk.includes('BEGIN') ? 'cut' : 'pass'));
  t.equal(await codeOf(() => view.append(unkeyed('a', 'lost'))), 'store_unavailable');
  proxy.heal();
  proxy.watchAnswers((chunk) => (chunk.includes('BEGIN') ? 'cut' : 'pass'));
  let decided = false;
  const code = await codeOf(() =>
    view.commit({}, () => {
      decided = true;
      return { appends: [unkeyed('a', 'lost')] };
    }),
  );
  t.equal(code, 'store_unavailable');
  t.equal(decided, false);
  await other.catchUp();
  t.same(other.bodies('a'), [body('before')]);
});

t.test('a unit that writes nothing is never of unknown outcome', async (t) => {
  const { proxy, view } = await throughProxy(t);
  proxy.watch((chunk) => (chunk.includes('COMMIT\0') ? 'cut' : 'pass'));
  t.equal(await codeOf(() => view.commit({}, () => ({}))), 'store_unavailable');
});

t.test('a value whose write was cut is unknown, a read that was cut is not', async (t) => {
  const { url } = await cluster.database();
  const proxy = await TcpProxy.start(cluster.server);
  t.teardown(() => proxy.stop());
  const { kv } = openStore(t, proxy.urlOf(url));
  proxy.watch((chunk) => (chunk.includes('halo_kv') ? 'cut' : 'pass'));
  t.equal(await codeOf(() => kv.put('k', 'v', null)), 'outcome_unknown');
  t.equal(await codeOf(() => kv.take('k')), 'outcome_unknown');
  t.equal(await codeOf(() => kv.get(['k'])), 'store_unavailable');
  proxy.heal();
  await kv.put('k', 'v', null);
  t.equal(await kv.take('k'), 'v');
});

t.test(
  'a refused write is refused, whatever else the unit holds, and nothing of it stays',
  async (t) => {
    const { view, other } = await throughProxy(t);
    const long = randomBytes(8_000).toString('base64');
    for (const key of ['zero \0 byte', long]) {
      const kv = [{ op: 'put' as const, key, value: 'v', expiresAtMs: null }];
      const code = await codeOf(() =>
        view.commit({}, () => ({ appends: [unkeyed('a', 'x')], kv })),
      );
      t.equal(code, 'write_refused', key.slice(0, 20));
    }
    await other.catchUp();
    t.same(other.bodies('a'), [body('before')]);
    await view.append(unkeyed('a', 'after'));
  },
);

t.test('the same commit takes as many messages for one record as for five hundred', async (t) => {
  const { proxy, view } = await throughProxy(t);
  const messages = async (count: number): Promise<number> => {
    let binds = 0;
    proxy.watch((chunk) => {
      binds += countBinds(chunk);
      return 'pass';
    });
    const appends = Array.from({ length: count }, (_, n) => unkeyed('a', n));
    const kv = appends.map((_, n) => ({
      op: 'put' as const,
      key: `k${n}`,
      value: '',
      expiresAtMs: null,
    }));
    await view.commit({}, () => ({ appends, kv }));
    return binds;
  };
  await messages(1);
  t.equal(await messages(1), 3, 'read, append, values');
  t.equal(await messages(500), 3);
});

/** Statements are bound by name, so that the names in the bytes count the messages. */
function countBinds(chunk: Buffer): number {
  return chunk.toString('latin1').split(/halo_catch_up|halo_append|halo_kv_put_all/).length - 1;
}
