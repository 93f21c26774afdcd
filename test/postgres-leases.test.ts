/** Leases and fences on PostgreSQL, where they could race: row locks, clocks, lost rows, waits. */
import pg from 'pg';
import t, { type Test } from 'tap';
import { systemClock } from '../src/runtime/clock.js';
import { Elector } from '../src/runtime/elector.js';
import { type Fence, leaseTiming } from '../src/runtime/lease.js';
import { silentLog } from '../src/runtime/log.js';
import { systemRandom } from '../src/runtime/random.js';
import { TermBoard, termBoardData } from '../src/runtime/term-board.js';
import { LOCK_TERM, PostgresLeases } from '../src/storage/postgres/leases.js';
import { lockNumber } from '../src/storage/postgres/unit-of-work.js';
import { startCluster } from './fixtures/postgres-database.js';
import { codeOf, openStore, timed, until } from './fixtures/postgres-stores.js';
import { TcpProxy } from './fixtures/tcp-proxy.js';
import { body, unkeyed, View } from './storage-contract/view.js';

const cluster = await startCluster();
t.teardown(() => cluster.stop());

// They mostly wait, each on a database of its own.
t.jobs = 4;

const TTL_MS = 1_000;
/** A candidate that hears hints asks for leases of 15 s each five. */
const IDLE_MS = 6_000;
/** A claim for that long waits for two seconds. */
const LONG_TTL_MS = 6_000;

/** The test itself is what keeps the process. */
function systemDelay(ms: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, ms));
}

function openLeases(t: Test, url: string): PostgresLeases {
  const leases = new PostgresLeases({
    url,
    pooled: false,
    clock: systemClock,
    random: systemRandom,
  });
  t.teardown(() => leases.close());
  return leases;
}

/** A session of its own, in which the test stops in the middle of a transaction. */
async function openSession(t: Test, url: string): Promise<pg.Client> {
  const client = new pg.Client({ connectionString: url });
  client.on('error', () => undefined);
  await client.connect();
  t.teardown(() => client.end());
  return client;
}

async function claimed(leases: PostgresLeases, holder: string, ttlMs: number): Promise<Fence> {
  const [answer] = await leases.claim([{ lease: 'l', holder }], ttlMs);
  if (!answer?.granted) throw new Error(`${holder} was refused`);
  const { lease, token } = answer;
  return { lease, holder, token };
}

/** In a session that is in no transaction, where what it sees would stay the same. */
async function untilOneWaits(t: Test, url: string): Promise<void> {
  const session = await openSession(t, url);
  await until('one session waits for the row', async () => {
    const { rows } = await session.query(
      `SELECT count(*)::int AS n FROM pg_stat_activity
       WHERE datname = current_database() AND wait_event_type = 'Lock'`,
    );
    return rows[0].n === 1;
  });
}

t.test('a takeover waits for a fenced write that is in flight', async (t) => {
  const { url } = await cluster.database();
  const leases = openLeases(t, url);
  const fence = await claimed(leases, 'a', 300);
  const writing = await openSession(t, url);
  await writing.query('BEGIN');
  const held = await writing.query(LOCK_TERM.text, [fence.lease, fence.holder, fence.token]);
  t.equal(held.rowCount, 1);
  await until('the lease ran out', async () => {
    const { rows } = await writing.query(
      'SELECT expires_at < clock_timestamp() AS o FROM halo_leases',
    );
    return rows[0].o === true;
  });
  let taken: Fence | undefined;
  const takeover = claimed(openLeases(t, url), 'b', LONG_TTL_MS).then((next) => {
    taken = next;
  });
  takeover.catch(() => undefined);
  await untilOneWaits(t, url);
  t.equal(taken, undefined);
  await writing.query('COMMIT');
  await takeover;
  t.ok((taken?.token ?? 0) > fence.token);
});

t.test('a fenced write that waited for a takeover fails, and writes nothing', async (t) => {
  const { url } = await cluster.database();
  const fence = await claimed(openLeases(t, url), 'a', 60_000);
  const view = await View.replay(openStore(t, url), ['s']);
  const taking = await openSession(t, url);
  await taking.query('BEGIN');
  // The holder's name alone, which a takeover would change as well, must not be enough.
  await taking.query('UPDATE halo_leases SET token = token + 1');
  const writing = codeOf(() => view.commit({ fence }, () => ({ appends: [unkeyed('s', 1)] })));
  await untilOneWaits(t, url);
  await taking.query('COMMIT');
  t.equal(await writing, 'fenced');
  await view.catchUp();
  t.same(view.bodies('s'), []);
});

t.test('a long transaction cannot pass its fence on the time at which it began', async (t) => {
  const { url } = await cluster.database();
  const leases = openLeases(t, url);
  const view = await View.replay(openStore(t, url), ['s']);
  const holding = await openSession(t, url);
  await holding.query('BEGIN');
  await holding.query(`SELECT pg_advisory_xact_lock(${lockNumber('s')})`);
  const fence = await claimed(leases, 'a', TTL_MS);
  // It begins while the term lives, and waits for the stream's lock until it does not.
  const writing = timed(() => view.commit({ fence }, () => ({ appends: [unkeyed('s', 1)] })));
  await until('the lease ran out', async () => {
    const [row] = await view.store.leases();
    return (row?.remainingMs ?? 1) <= 0;
  });
  await holding.query('COMMIT');
  const { ms, code } = await writing;
  t.equal(code, 'fenced');
  t.ok(ms >= TTL_MS * 0.8, 'it had begun before');
  await view.catchUp();
  t.same(view.bodies('s'), []);
});

interface Candidate {
  readonly elector: Elector;
  readonly board: TermBoard;
  readonly begun: Fence[];
  readonly ended: Fence[];
}

function elect(
  t: Test,
  name: string,
  url: string,
  ttlMs = TTL_MS,
  leases: readonly string[] = ['l'],
): Candidate {
  const data = termBoardData(leases);
  const board = new TermBoard(data, systemClock);
  const begun: Fence[] = [];
  const ended: Fence[] = [];
  const elector = new Elector({
    leases,
    replica: name,
    store: openLeases(t, url),
    timing: leaseTiming(ttlMs),
    board,
    clock: systemClock,
    random: systemRandom,
    log: silentLog,
    onBegin: (fence) => void begun.push(fence),
    onEnd: async (fence) => void ended.push(fence),
  });
  t.teardown(() => elector.stop());
  elector.start();
  return { elector, board, begun, ended };
}

t.test(
  'a failover that lost the lease’s row ends the term, and no token comes twice',
  async (t) => {
    const database = await cluster.database();
    const { board, begun, ended } = elect(t, 'a', database.url);
    await until('it leads', () => begun.length === 1);
    await database.sql('DELETE FROM halo_leases');
    await until('the term ended', () => ended.length === 1);
    await until('it leads anew', () => begun.length === 2);
    const [first, second] = begun;
    if (first === undefined || second === undefined) throw new Error('no term');
    t.ok(second.token > first.token);
    t.not(second.holder, first.holder);
    t.notOk(board.isTrusted(first));
    // A restore that brings back an older row: its token is behind what was given out since.
    await database.sql(`UPDATE halo_leases SET holder = 'old', token = 5,
    expires_at = clock_timestamp()`);
    await until('it leads a third time', () => begun.length === 3);
    t.ok((begun[2]?.token ?? 0) > second.token);
  },
);

t.test('of twenty candidates one leads, and another within a second of each end', async (t) => {
  const database = await cluster.database();
  const candidates = Array.from({ length: 20 }, (_, i) => elect(t, `c${i}`, database.url, 3_000));
  const trusted = (): Candidate[] =>
    candidates.filter(({ board, begun }) => begun.some((fence) => board.isTrusted(fence)));
  await until('somebody leads', () => trusted().length === 1);
  for (let round = 0; round < 5; round += 1) {
    const [leader] = trusted();
    if (leader === undefined) throw new Error('nobody leads');
    const { ms } = await timed(async () => {
      await leader.elector.stop();
      await until('another leads', () => trusted().length === 1);
    });
    t.ok(ms < 1_000, `round ${round}: ${Math.round(ms)} ms`);
  }
  t.equal(trusted().length, 1);
  const tokens = candidates.flatMap(({ begun }) => begun.map(({ token }) => token));
  t.equal(new Set(tokens).size, tokens.length, 'every term has a token of its own');
});

t.test('a database that answers no claim ends the term in time, and is asked again', async (t) => {
  const database = await cluster.database();
  const proxy = await TcpProxy.start(cluster.server);
  t.teardown(() => proxy.stop());
  const { board, begun, ended } = elect(t, 'a', proxy.urlOf(database.url));
  await until('it leads', () => begun.length === 1);
  const [first] = begun;
  if (first === undefined) throw new Error('no term');
  proxy.goSilent();
  const { ms } = await timed(() => until('the term ended', () => ended.length === 1));
  t.ok(ms < TTL_MS, `it ended after ${Math.round(ms)} ms, before the lease`);
  t.notOk(board.isTrusted(first));
  const other = elect(t, 'b', database.url);
  await until('another leads', () => other.begun.length === 1, 2 * TTL_MS + 1_000);
  proxy.heal();
  await other.elector.stop();
  await until('the first leads again', () => begun.length === 2);
  t.ok((begun[1]?.token ?? 0) > (other.begun[0]?.token ?? 0));
});

t.test('an operator’s DELETE, UPDATE or LOCK of the row harms nobody but the leader', async (t) => {
  const database = await cluster.database();
  const { begun, ended } = elect(t, 'a', database.url);
  await until('it leads', () => begun.length === 1);
  const view = await View.replay(openStore(t, database.url), ['s']);
  const blocking = await openSession(t, database.ownerUrl);
  await blocking.query('BEGIN; LOCK TABLE halo_leases IN ACCESS EXCLUSIVE MODE');
  await until('the term ended', () => ended.length === 1);
  t.equal(await codeOf(() => view.append(unkeyed('s', 1))), undefined, 'others write on');
  await blocking.query('ROLLBACK');
  await until('it leads again', () => begun.length === 2);
  const fence = begun[1];
  if (fence === undefined) throw new Error('no term');
  const done = await codeOf(() => view.commit({ fence }, () => ({ appends: [unkeyed('s', 2)] })));
  t.equal(done, undefined);
  t.same(view.bodies('s'), [body(1), body(2)]);
});

t.test('fifty leases are one connection, and an idle elector asks seldom', async (t) => {
  const database = await cluster.database();
  const names = Array.from({ length: 50 }, (_, index) => `l${index}`);
  const proxy = await TcpProxy.start(cluster.server);
  t.teardown(() => proxy.stop());
  let statements = 0;
  proxy.watch((chunk) => {
    if (chunk.includes('INSERT INTO halo_leases')) statements += 1;
    return 'pass';
  });
  const leader = elect(t, 'a', database.url, 15_000, names);
  await until('it leads everywhere', () => leader.begun.length === names.length);
  const idle = elect(t, 'b', proxy.urlOf(database.url), 15_000, names);
  await until('the other has asked', () => statements > 0);
  await systemDelay(500);
  const before = statements;
  await systemDelay(IDLE_MS);
  const perLease = (statements - before) / (IDLE_MS / 1_000) / names.length;
  t.ok(perLease < 1, `${perLease} statements a second for each lease`);
  t.ok(statements - before <= 3, `${statements - before} statements in ${IDLE_MS} ms for all`);
  t.equal(proxy.connections, 1, 'over one connection');
  t.same(idle.begun, []);
});

t.test('an elector keeps its lease while every connection of the pool is held up', async (t) => {
  const database = await cluster.database();
  const { begun, ended } = elect(t, 'a', database.url);
  await until('it leads', () => begun.length === 1);
  const holding = await openSession(t, database.url);
  await holding.query('BEGIN');
  await holding.query(`SELECT pg_advisory_xact_lock(${lockNumber('s')})`);
  const store = openStore(t, database.url);
  const view = await View.replay(store, ['s']);
  const writes = Array.from({ length: 40 }, (_, index) =>
    codeOf(() =>
      view.store.commit({ streams: ['s'], position: view.position }, () => ({
        appends: [unkeyed('s', index)],
      })),
    ),
  );
  await systemDelay(3 * TTL_MS);
  t.same(ended, [], 'three lives of the lease later');
  t.equal(begun.length, 1);
  await holding.query('COMMIT');
  await Promise.all(writes);
});
