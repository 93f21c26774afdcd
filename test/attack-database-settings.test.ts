/** What is set for a role or a database changes nothing that Halos promises. */
import pg from 'pg';
import t, { type Test } from 'tap';
import { systemClock } from '../src/runtime/clock.js';
import { systemRandom } from '../src/runtime/random.js';
import { clientConfig, directConfig } from '../src/storage/postgres/connection.js';
import { HintListener } from '../src/storage/postgres/listener.js';
import { migrate } from '../src/storage/postgres/migrate.js';
import { PostgresProbe } from '../src/storage/postgres/probe.js';
import { startCluster, type TestDatabase } from './fixtures/postgres-database.js';
import { codeOf, openStore, until } from './fixtures/postgres-stores.js';
import { body, unkeyed, View } from './storage-contract/view.js';

const cluster = await startCluster();
t.teardown(() => cluster.stop());

/** Settings that ordinary installations have, each at a value that hurts. */
const HARSH = {
  default_transaction_isolation: 'serializable',
  lock_timeout: '1ms',
  idle_session_timeout: '150ms',
  statement_timeout: '20s',
  client_encoding: 'LATIN1',
  DateStyle: 'German, DMY',
  IntervalStyle: 'sql_standard',
  TimeZone: 'Pacific/Kiritimati',
  extra_float_digits: '-15',
};

async function harshDatabase(): Promise<TestDatabase> {
  const database = await cluster.database();
  for (const [name, value] of Object.entries(HARSH)) {
    await database.sql(
      `ALTER ROLE halo_serving IN DATABASE ${database.name} SET ${name} = '${value}'`,
    );
  }
  return database;
}

/** What a connection of ours is held to, beside what was asked for. */
async function settingsOf(database: TestDatabase): Promise<Record<string, unknown>> {
  const client = new pg.Client(directConfig(clientConfig({ url: database.url })));
  await client.connect();
  const { rows } = await client.query<{ name: string; setting: string }>(
    'SELECT name, setting FROM pg_settings WHERE name = ANY($1)',
    [Object.keys(HARSH)],
  );
  await client.end();
  return Object.fromEntries(rows.map(({ name, setting }) => [name, setting]));
}

t.test('a direct connection has bounds and an isolation of its own', async (t: Test) => {
  const settings = await settingsOf(await harshDatabase());
  t.match(settings, {
    default_transaction_isolation: 'read committed',
    lock_timeout: '0',
    idle_session_timeout: '0',
    statement_timeout: '0',
    client_encoding: 'UTF8',
    DateStyle: 'German, DMY',
  });
});

/** Waits until the server would have closed every connection of that role that may be idle. */
async function idleLongerThan(database: TestDatabase, role: string): Promise<void> {
  await until('all have been idle for long', async () => {
    const [row] = await database.sql(`
      SELECT coalesce(bool_and(clock_timestamp() - state_change > interval '400 ms'), true) AS idle
      FROM pg_stat_activity WHERE usename = '${role}' AND datname = current_database()`);
    return row?.['idle'] === true;
  });
}

async function atOnce(
  count: number,
  call: (number: number) => Promise<unknown>,
): Promise<string[]> {
  const codes = await Promise.all(
    Array.from({ length: count }, (_, number) => codeOf(() => call(number))),
  );
  return codes.filter((code) => code !== undefined);
}

for (const pooled of [false, true]) {
  const way = pooled ? 'behind a pooler' : 'directly';
  t.test(
    `replicas that touch the same rows at once never fail, reached ${way}`,
    async (t: Test) => {
      const database = await harshDatabase();
      // Behind a pooler a wait for a row is bounded as the role says.
      if (pooled) {
        await database.sql(
          `ALTER ROLE halo_serving IN DATABASE ${database.name} RESET lock_timeout`,
        );
      }
      const stores = [1, 2, 3].map(() => openStore(t, database.url, { pooled }));
      const failed = await atOnce(120, async (number) => {
        const store = stores[number % stores.length]!;
        await store.count([{ key: 'attempts', delta: 1, ttlMs: 60_000 }]);
        await store.kv.raise('highest', number, null);
        await store.recordSightings(new Map([['dev_1', 1_700_000_000_000 + number]]));
      });
      t.same(failed, [], 'every call was answered');
      t.equal((await stores[0]!.counters(['attempts'])).get('attempts'), 120);
      t.equal((await stores[0]!.sightings(['dev_1'])).get('dev_1'), 1_700_000_000_119);
      t.equal((await stores[0]!.kv.get(['highest'])).get('highest')?.value, '119');
    },
  );
}

t.test('a connection that may not be idle is still there when it is needed', async (t: Test) => {
  const database = await harshDatabase();
  const store = openStore(t, database.url);
  const view = await View.replay(store, ['a']);
  await view.append(unkeyed('a', 'before'));
  await view.catchUp();
  const before = store.facts()['dbErrors'];
  await idleLongerThan(database, 'halo_serving');
  await view.append(unkeyed('a', 'ünï ✓'));
  await view.catchUp();
  t.equal(view.bodies('a').at(-1), body('ünï ✓'));
  t.equal(store.facts()['dbErrors'], before, 'no connection was lost');
});

t.test('hints arrive though connections may not be idle', async (t: Test) => {
  const database = await harshDatabase();
  const stopped: string[] = [];
  const log = { debug: note, info: note, warn: note, error: note };
  function note(_: unknown, message: string): void {
    stopped.push(message);
  }
  const listener = new HintListener({
    config: clientConfig({ url: database.url }),
    clock: systemClock,
    random: systemRandom,
    log,
    onHint: () => undefined,
  });
  t.teardown(() => listener.close());
  listener.start();
  await until('it listens', () => listener.isListening);
  await idleLongerThan(database, 'halo_serving');
  t.same(stopped, ['Hints of other replicas arrive.']);
});

t.test('a unit is durable before its answer though somebody turned that off', async (t: Test) => {
  const database = await cluster.database();
  const store = openStore(t, database.url);
  const view = await View.replay(store, ['a']);
  await database.sql(`
    CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
      IF current_setting('synchronous_commit') <> TG_ARGV[0] THEN
        RAISE EXCEPTION 'not durable' USING ERRCODE = '57014';
      END IF;
      RETURN new;
    END $$`);
  for (const [said, used] of [
    ['off', 'on'],
    ['local', 'local'],
    ['remote_apply', 'remote_apply'],
  ] as const) {
    await database.sql(`ALTER DATABASE ${database.name} SET synchronous_commit = ${said}`);
    await database.sql(`CREATE OR REPLACE TRIGGER durable BEFORE INSERT ON halo_journal
      FOR EACH ROW EXECUTE FUNCTION refuse(${used})`);
    const later = await View.replay(openStore(t, database.url), ['a']);
    t.equal(await codeOf(() => later.append(unkeyed('a', said))), undefined, said);
  }
  await view.catchUp();
  t.equal(view.bodies('a').length, 3);
});

t.test('a replica whose answers would not be durable is not ready', async (t: Test) => {
  const database = await cluster.database();
  const probe = new PostgresProbe({ url: database.url, replica: 'a', clock: systemClock });
  await probe.ping();
  await database.sql(`ALTER DATABASE ${database.name} SET synchronous_commit = off`);
  await t.rejects(probe.ping(), { code: 'store_unavailable', message: /synchronous_commit/ });
  await database.sql(`ALTER DATABASE ${database.name} SET synchronous_commit = remote_write`);
  await probe.ping();
});

t.test('a bound for queries ends no migration that waits for another', async (t: Test) => {
  const database = await cluster.emptyDatabase();
  const bounds = ['statement_timeout', 'transaction_timeout', 'lock_timeout'];
  for (const name of bounds) {
    await database.sql(`ALTER DATABASE ${database.name} SET ${name} = '300ms'`);
  }
  const holding = database.sql(`SET statement_timeout = 0; SET transaction_timeout = 0;
    BEGIN; SELECT pg_advisory_xact_lock(7521983763894560626); SELECT pg_sleep(0.6); COMMIT`);
  await until('the lock is held', async () => {
    const rows = await database.sql(`SELECT 1 FROM pg_locks l JOIN pg_database d
      ON d.oid = l.database WHERE l.locktype = 'advisory' AND d.datname = current_database()`);
    return rows.length > 0;
  });
  t.ok((await migrate({ url: database.ownerUrl })).to >= 1);
  await holding;
});
