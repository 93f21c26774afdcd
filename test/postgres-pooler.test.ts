/** What a pooler in transaction mode could break: state of a session, and half a transaction. */
import t from 'tap';
import { systemClock } from '../src/runtime/clock.js';
import { check, finish, migrate, plan } from '../src/storage/postgres/migrate.js';
import { PostgresProbe } from '../src/storage/postgres/probe.js';
import { hasPgbouncer, startPgbouncer } from './fixtures/pgbouncer.js';
import { startCluster } from './fixtures/postgres-database.js';
import { codeOf, openStore, until } from './fixtures/postgres-stores.js';
import { body, unkeyed, View } from './storage-contract/view.js';

if (hasPgbouncer()) {
  const cluster = await startCluster();
  // One server connection: everything that one client leaves behind is found by the next.
  const pooler = await startPgbouncer(cluster.server, ['halo_serving', 'halo_owner'], 1);
  t.teardown(async () => {
    await pooler.stop();
    await cluster.stop();
  });

  t.test('clients that share one server connection leave nothing on it', async (t) => {
    const database = await cluster.database();
    const url = pooler.urlOf(database.url);
    const views = await Promise.all(
      Array.from({ length: 4 }, () => View.replay(openStore(t, url, { pooled: true }), ['a'])),
    );
    for (let round = 0; round < 10; round += 1) {
      await Promise.all([
        ...views.map((view, n) => view.append(unkeyed('a', `${round}/${n}`))),
        ...views.map((view) => view.store.kv.get(['k'])),
      ]);
    }
    for (const view of views) await view.catchUp();
    t.equal(new Set(views.map((view) => view.contents().join())).size, 1);
    const left = await database.sql("SELECT 1 FROM pg_locks WHERE locktype = 'advisory'");
    t.same(left, []);
  });

  t.test('a server connection that dies in a unit leaves none of its writes behind', async (t) => {
    const database = await cluster.database();
    const url = pooler.urlOf(database.url);
    const view = await View.replay(openStore(t, url, { pooled: true }), ['a']);
    await view.append(unkeyed('a', 'before'));
    const terminate = `SELECT pg_terminate_backend(pid) FROM pg_stat_activity
      WHERE datname = '${database.name}' AND usename = 'halo_serving'`;
    for (let round = 0; round < 10; round += 1) {
      let terminated: Promise<unknown> = Promise.resolve();
      const code = await codeOf(() =>
        view.commit({}, () => {
          terminated = cluster.server.sql(terminate);
          return { appends: [unkeyed('a', `lost ${round}`), unkeyed('a', `lost ${round}`)] };
        }),
      );
      await terminated;
      await until('back', () => view.catchUp().then(() => true));
      const written = view.bodies('a').filter((one) => one === body(`lost ${round}`)).length;
      if (code === undefined) t.equal(written, 2, 'answered, and whole');
      if (code === 'store_unavailable') t.equal(written, 0, 'nothing was done');
      if (code === 'outcome_unknown') t.ok(written === 0 || written === 2, 'all or nothing');
    }
  });

  t.test('a pooler that the store was not told of is named', async (t) => {
    const { url } = await cluster.database();
    const store = openStore(t, pooler.urlOf(url));
    const hint = { code: 'store_unavailable', message: /needs --database-pooled/ };
    await t.rejects(store.kv.get(['k']), hint);
    await t.rejects(
      store.replay(['a'], () => undefined),
      hint,
    );
  });

  t.test('migrations and the probe pass a pooler, too', async (t) => {
    const { ownerUrl, url } = await cluster.emptyDatabase();
    const owner = { url: pooler.urlOf(ownerUrl) };
    await migrate(owner);
    t.match(await plan(owner), { pending: [] });
    await check({ url: pooler.urlOf(url) });
    await finish(owner);
    const options = { url: pooler.urlOf(url), replica: 'one', clock: systemClock };
    await new PostgresProbe(options).ping();
  });
} else {
  t.not(process.env.CI, 'true', 'pgbouncer is not installed: the pooler was not tried');
}
