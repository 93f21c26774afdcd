/** Nobody who follows a stream ever skips a record, in whatever order the writers commit. */
import pg from 'pg';
import t, { type Test } from 'tap';
import { seededRandom, systemRandom } from '../src/runtime/random.js';
import { lockNumber } from '../src/storage/postgres/unit-of-work.js';
import { startCluster } from './fixtures/postgres-database.js';
import { keyed, openStore, streamLocks, until } from './fixtures/postgres-stores.js';
import { unkeyed, View } from './storage-contract/view.js';

const cluster = await startCluster();
t.teardown(() => cluster.stop());

async function rawClient(t: Test, url: string): Promise<pg.Client> {
  const client = new pg.Client({ connectionString: url });
  await client.connect();
  t.teardown(() => client.end());
  return client;
}

t.test('three writers and a reader see every record, in the order of its stream', async (t) => {
  const { url } = await cluster.database();
  const seed = Math.floor(systemRandom.fraction() * 2 ** 32);
  t.comment(`seed ${seed}`);
  const random = seededRandom(seed);
  const streams = ['a', 'b', 'c'];
  const views = await Promise.all([1, 2, 3, 4].map(() => View.replay(openStore(t, url), streams)));
  const written = new Map(streams.map((stream) => [stream, new Set<string>()]));
  const write = async (view: View, writer: number): Promise<void> => {
    for (let round = 0; round < 25; round += 1) {
      const appends = streams
        .filter(() => random.fraction() < 0.6)
        .map((stream) => unkeyed(stream, `${writer}-${round}-${stream}`));
      for (const { stream, body } of appends) written.get(stream)?.add(body);
      await view.append(...appends);
      if (random.fraction() < 0.3) await view.catchUp();
    }
  };
  const [one, two, three, reader] = views as [View, View, View, View];
  let writing = true;
  const reading = (async () => {
    while (writing) await reader.catchUp();
  })();
  await Promise.all([write(one, 1), write(two, 2), write(three, 3)]);
  writing = false;
  await reading;
  const fresh = await View.replay(openStore(t, url), streams);
  for (const view of [...views, fresh]) {
    await view.catchUp();
    for (const stream of streams) {
      const applied = view.applied.filter((record) => record.stream === stream);
      t.same(
        applied.map(({ id }) => id),
        applied.map(({ id }) => id).sort((a, b) => a - b),
        'applied in id order',
      );
      t.same(new Set(applied.map(({ body }) => body)), written.get(stream), 'none is missing');
      t.equal(applied.length, written.get(stream)?.size, 'and none came twice');
    }
  }
});

t.test('a stream that commits later with lower ids is not skipped', async (t) => {
  const { url } = await cluster.database();
  const view = await View.replay(openStore(t, url), ['early', 'late']);
  const slow = await rawClient(t, url);
  await slow.query('BEGIN');
  await slow.query(`SELECT pg_advisory_xact_lock(${lockNumber('early')})`);
  await slow.query("INSERT INTO halo_journal (stream, batch, body) VALUES ('early', 'x', '1')");
  await view.commit({ streams: ['late'] }, () => ({ appends: [unkeyed('late', 2)] }));
  t.same(await view.catchUp(), [], 'the newer id is read, the older is not visible yet');
  await slow.query('COMMIT');
  t.match(await view.catchUp(), [{ stream: 'early', body: '1' }]);
  const { early, late } = view.position.cursors;
  t.ok((early?.id ?? 0) < (late?.id ?? 0), 'one sequence for all streams');
});

t.test('lock and read in one statement miss what is committed during the wait', async (t) => {
  const database = await cluster.database();
  const { url } = database;
  const store = openStore(t, url);
  const view = await View.replay(store, ['a']);
  const [holder, waiter] = [await rawClient(t, url), await rawClient(t, url)];
  const lock = `pg_advisory_xact_lock(${lockNumber('a')})`;
  await holder.query('BEGIN');
  await holder.query(`SELECT ${lock}`);
  await holder.query("INSERT INTO halo_journal (stream, batch, body) VALUES ('a', 'x', '1')");
  const inOne = waiter.query<{ n: number }>(
    `SELECT ${lock}, (SELECT count(*)::int FROM halo_journal WHERE stream = 'a') AS n`,
  );
  const inTwo = view.commit({}, ({ records }) => {
    t.same(
      records.map(({ body }) => body),
      ['1'],
      'the unit of work reads after the lock',
    );
    return {};
  });
  await until('both wait', async () => (await streamLocks(database, 'waiting')) === 2);
  await holder.query('COMMIT');
  t.equal((await inOne).rows[0]?.n, 0, 'the snapshot is from before the wait');
  await inTwo;
});

t.test('a key that is written over and over keeps one row, on few pages', async (t) => {
  const { url, sql } = await cluster.database();
  const view = await View.replay(openStore(t, url), ['a']);
  const body = 'x'.repeat(250);
  for (let round = 0; round < 300; round += 1) {
    const appends = Array.from({ length: 20 }, (_, key) => keyed('a', `k${key}`, body));
    await view.append(...appends);
  }
  t.match(await sql('SELECT count(*)::int AS n FROM halo_journal'), [{ n: 20 }]);
  const [size] = await sql("SELECT pg_relation_size('halo_journal')::int AS bytes");
  t.ok(Number(size?.bytes) < (6_000 * 250) / 2, `6,000 versions take ${size?.bytes} bytes`);
});

t.test('all records of a unit carry one random batch mark, each unit another', async (t) => {
  const { url, sql } = await cluster.database();
  const view = await View.replay(openStore(t, url), ['a', 'b']);
  await view.append(unkeyed('a', 1), unkeyed('b', 2), unkeyed('a', 3));
  await view.append(unkeyed('a', 4));
  const rows = await sql('SELECT batch FROM halo_journal ORDER BY id');
  const batches = rows.map(({ batch }) => String(batch));
  t.match(batches[0], /^[0-9a-f]{16}$/);
  t.same([batches[1], batches[2]], [batches[0], batches[0]]);
  t.not(batches[3], batches[0]);
});
