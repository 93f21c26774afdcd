/** A restore or a failover that lost commits is noticed, whatever was written since. */
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import t, { type Test } from 'tap';
import { FORMAT_NEWEST } from '../src/storage/envelope.js';
import type { Position } from '../src/storage/store.js';
import { takeBackup } from './fixtures/postgres-backup.js';
import { startCluster, type TestDatabase } from './fixtures/postgres-database.js';
import { type PostgresServer, startPostgres } from './fixtures/postgres-server.js';
import { codeOf, keyed, openStore, until } from './fixtures/postgres-stores.js';
import { body, unkeyed, View } from './storage-contract/view.js';

interface Opened {
  readonly server: PostgresServer;
  readonly database: TestDatabase;
  readonly view: View;
}

async function open(t: Test): Promise<Opened> {
  const cluster = await startCluster();
  t.teardown(() => cluster.stop());
  const database = await cluster.database();
  const view = await View.replay(openStore(t, database.url), ['a', 'b']);
  await view.append(unkeyed('a', 'kept'), keyed('b', 'key', 'kept'));
  return { server: cluster.server, database, view };
}

async function isHistoryChanged(t: Test, view: View, position: Position, why: string) {
  t.equal(await codeOf(() => view.store.catchUp(position)), 'history_changed', why);
  let decided = false;
  const unit = { streams: ['a'], position };
  const code = await codeOf(() =>
    view.store.commit(unit, () => {
      decided = true;
      return { appends: [unkeyed('a', 'never')] };
    }),
  );
  t.same([code, decided], ['history_changed', false], `${why}: nothing is decided on it`);
}

t.test('each trace of another history is enough', async (t) => {
  const { database, view } = await open(t);
  const { position } = view;
  const traces: Record<string, string> = {
    'another epoch': "UPDATE halo_store SET epoch = '0123456789abcdef'",
    'an end before the cursor': "DELETE FROM halo_journal WHERE stream = 'a'",
    'another batch at the end': "UPDATE halo_journal SET batch = 'x' WHERE stream = 'b'",
    'another batch at the cursor, and more after it': `
      UPDATE halo_journal SET batch = 'x' WHERE stream = 'a';
      INSERT INTO halo_journal (stream, batch, body) VALUES ('a', 'y', '1')`,
  };
  for (const [why, change] of Object.entries(traces)) {
    await database.sql('CREATE TABLE journal AS TABLE halo_journal');
    await database.sql('CREATE TABLE store AS TABLE halo_store');
    await database.sql(change);
    await isHistoryChanged(t, view, position, why);
    await database.sql(`
      TRUNCATE halo_journal, halo_store;
      INSERT INTO halo_journal SELECT * FROM journal; INSERT INTO halo_store SELECT * FROM store;
      DROP TABLE journal, store`);
    t.same(await view.catchUp(), [], 'and it is right again');
  }
});

t.test('a restored server is noticed even when others wrote past the cursor', async (t) => {
  const { server, database, view } = await open(t);
  const backup = await takeBackup(server);
  t.teardown(() => backup.remove());
  await until('back after the backup', () => view.catchUp().then(() => true));
  const kept = view.position;
  await view.append(unkeyed('a', 'lost'), keyed('b', 'key', 'lost'));
  const lost = view.position;
  await backup.restore();
  await until(
    'back',
    async () => (await codeOf(() => view.store.catchUp(lost))) !== 'store_unavailable',
  );
  await isHistoryChanged(t, view, lost, 'before anyone wrote');
  const fresh = await View.replay(openStore(t, database.url), ['a', 'b']);
  t.same(fresh.bodies('a'), [body('kept')]);
  for (let n = 0; n < 50; n += 1) await fresh.append(keyed('a', `k${n % 3}`), keyed('b', 'key'));
  await isHistoryChanged(
    t,
    view,
    lost,
    'when the row at the cursor was written again and replaced',
  );
  t.equal(
    await codeOf(() => view.store.catchUp({ ...kept, serverStart: '' })),
    undefined,
    'a position that was not lost would be fine',
  );

  const epochs = await Promise.all([
    view.store.replaceEpoch(lost.epoch),
    fresh.store.replaceEpoch(lost.epoch),
  ]);
  t.equal(epochs[0], epochs[1], 'two that notice it replace the epoch once');
  t.not(epochs[0], lost.epoch);
  await isHistoryChanged(t, fresh, fresh.position, 'those who noticed nothing start over, too');
  const again = await View.replay(view.store, ['a', 'b']);
  t.equal(again.position.epoch, epochs[0]);
  t.notOk(again.bodies('a').includes(body('lost')), 'the right answers, never a mixture');
});

t.test('a server that only restarted is the same history', async (t) => {
  const { server, view } = await open(t);
  const before = view.position;
  await server.restart();
  await until('back', () => view.catchUp().then(() => true));
  t.not(view.position.serverStart, before.serverStart);
  t.same(view.position.cursors, before.cursors);
  await view.append(keyed('b', 'key', 'after'));
  await view.catchUp();
});

t.test(
  'a record at the cursor that its key replaced is no trace, but after a restart it is',
  async (t) => {
    const { server, database, view } = await open(t);
    const other = await View.replay(openStore(t, database.url), ['a', 'b']);
    const { position } = view;
    await other.append(keyed('b', 'key', 'newer'));
    t.equal(await codeOf(() => view.store.catchUp(position)), undefined, 'replaced, not lost');
    await server.restart();
    await until(
      'back',
      async () => (await codeOf(() => view.store.catchUp(position))) !== 'store_unavailable',
    );
    // Replaced or lost: the row cannot tell, so the view starts over, which is always right.
    await isHistoryChanged(t, view, position, 'after a restart');
  },
);

t.test('a standby and a server in recovery are no store, and a promoted one is', async (t) => {
  const { server, database, view } = await open(t);
  const backup = await takeBackup(server);
  await until('back after the backup', () => view.catchUp().then(() => true));
  writeFileSync(join(backup.folder, 'standby.signal'), '');
  const standby = await startPostgres({ dataDir: backup.folder });
  t.teardown(() => standby.stop());
  const url = new URL(database.url);
  url.port = String(standby.port);
  const store = openStore(t, url.href);
  t.equal(await codeOf(() => store.catchUp(view.position)), 'store_unavailable');
  t.equal(await codeOf(() => store.replay(['a'], () => undefined)), 'store_unavailable');
  t.equal(
    await codeOf(() => store.commit({ streams: ['a'], position: view.position }, () => ({}))),
    'store_unavailable',
  );
  await standby.sql('SELECT pg_promote()');
  const promoted = await View.replay(store, ['a', 'b']);
  t.equal(await codeOf(() => store.catchUp(view.position)), undefined, 'it lost nothing');
  await promoted.append(unkeyed('a', 'after'));
});

t.test('a format that this binary does not know stops it, in reads and in writes', async (t) => {
  const { database, view } = await open(t);
  await database.sql(`UPDATE halo_store SET write_format = ${FORMAT_NEWEST + 1}`);
  t.equal(await codeOf(() => view.catchUp()), 'incompatible');
  t.equal(await codeOf(() => view.append(unkeyed('a', 1))), 'incompatible');
  await database.sql('UPDATE halo_store SET write_format = 1');
  await view.commit({}, ({ writeFormat }) => {
    t.equal(writeFormat, 1, 'the older format is written while the store says so');
    return {};
  });
  await database.sql('DELETE FROM halo_store');
  t.equal(await codeOf(() => view.catchUp()), 'incompatible', 'a missing row is never "empty"');
});
