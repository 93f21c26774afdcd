/** A drain is all of it or nothing, whatever fails in it, and whoever comes next goes on. */
import pg from 'pg';
import t, { type Test } from 'tap';
import { type EvidenceDatabase, linkerWith, openEvidence } from './fixtures/evidence-database.js';
import { startCluster } from './fixtures/postgres-database.js';
import { codeOf, timed, until } from './fixtures/postgres-stores.js';
import { TcpProxy } from './fixtures/tcp-proxy.js';

t.setTimeout(120_000);
const cluster = await startCluster();
t.teardown(() => cluster.stop());

/** The server ends a transaction that stands still after 2 s; a busy machine adds to it. */
const FREE_WITHIN_MS = 5_000;

async function open(t: Test): Promise<EvidenceDatabase> {
  const one = openEvidence(t, await cluster.database());
  await one.record('before');
  await one.settle();
  await one.record('first', 'second');
  await one.record('third');
  return one;
}

/** Everything that a drain writes. */
async function tables({ database }: EvidenceDatabase): Promise<string> {
  const names = ['halo_audit', 'halo_audit_head', 'halo_evidence_outbox', 'halo_evidence_writers'];
  const rows: unknown[] = [];
  for (const name of names) rows.push(await database.sql(`SELECT * FROM ${name} ORDER BY 1`));
  return JSON.stringify(rows);
}

async function isWhole(t: Test, one: EvidenceDatabase): Promise<void> {
  await until('the rest is drained', () => one.settle().then(() => true));
  t.same(await one.chained(), ['before', 'first', 'second', 'third']);
  t.match(await one.verified(), { status: 'verified', pending: 0, records: 5 });
}

/** A statement made to fail, and what undoes that. */
const FAILURES: readonly (readonly [name: string, fail: string, heal: string])[] = [
  ...[
    ['the look at the lock and the head', 'UPDATE', 'halo_audit_head'],
    ['the look at the head', 'SELECT', 'halo_audit_head'],
    ['the look at the newest record', 'SELECT', 'halo_audit'],
    ['the look at what waits', 'SELECT', 'halo_evidence_outbox'],
    ['the look at the writers', 'SELECT', 'halo_evidence_writers'],
    ['the insertion of the records', 'INSERT', 'halo_audit'],
    ['leaving the outbox', 'DELETE', 'halo_evidence_outbox'],
    ['a new writer', 'INSERT', 'halo_evidence_writers'],
    ['a known writer', 'UPDATE', 'halo_evidence_writers'],
  ].map(
    ([name = '', right = '', table = '']) =>
      [
        `${name} (${right})`,
        `REVOKE ${right} ON ${table} FROM halo_serving`,
        `GRANT ${right} ON ${table} TO halo_serving`,
      ] as const,
  ),
  ...['INSERT ON halo_audit', 'UPDATE ON halo_audit_head', 'DELETE ON halo_evidence_outbox'].map(
    (event) =>
      [
        `a trigger of ${event}`,
        `CREATE TRIGGER refuses BEFORE ${event} EXECUTE FUNCTION refuse()`,
        `DROP TRIGGER refuses ${event.slice(event.indexOf('ON'))}`,
      ] as const,
  ),
  [
    'the commit',
    `CREATE CONSTRAINT TRIGGER refuses AFTER INSERT ON halo_audit
       DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION refuse()`,
    'DROP TRIGGER refuses ON halo_audit',
  ],
];

t.test('each statement of a drain failing in turn leaves everything as it was', async (t) => {
  const one = await open(t);
  await one.database.sql(`
    CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS
    $$ BEGIN RAISE EXCEPTION 'refused' USING ERRCODE = 'P0001'; END $$`);
  const before = await tables(one);
  for (const [name, fail, heal] of FAILURES) {
    await one.database.sql(fail);
    t.equal(await codeOf(() => one.store.evidence.drain(10)), 'store_unavailable', name);
    await one.database.sql(heal);
    t.equal(await tables(one), before, `${name}: nothing was written`);
  }
  await isWhole(t, one);
});

t.test('a connection that breaks at any moment of a drain loses and doubles nothing', async (t) => {
  const moments = {
    'before it began': { side: 'asked', cutAt: 'BEGIN ', code: 'store_unavailable' },
    'when it had begun': { side: 'answered', cutAt: 'BEGIN\0', code: 'store_unavailable' },
    'before the commit': { side: 'asked', cutAt: 'COMMIT\0', code: 'outcome_unknown' },
    'after the commit': { side: 'answered', cutAt: 'COMMIT\0', code: 'outcome_unknown' },
  };
  for (const [moment, { side, cutAt, code }] of Object.entries(moments)) {
    const one = await open(t);
    const proxy = await TcpProxy.start(cluster.server);
    t.teardown(() => proxy.stop());
    const { evidence } = one.another({ url: proxy.urlOf(one.database.url) });
    await evidence.head();
    const watch = (chunk: Buffer): 'cut' | 'pass' => (chunk.includes(cutAt) ? 'cut' : 'pass');
    if (side === 'asked') proxy.watch(watch);
    else proxy.watchAnswers(watch);
    t.equal(await codeOf(() => evidence.drain(10)), code, moment);
    const waits = moment === 'after the commit' ? 0 : 3;
    t.equal(await one.store.evidence.pending(), waits, `${moment}: all or none`);
    await isWhole(t, one);
  }
});

t.test('a drain whose backend is ended leaves its work to the next one', async (t) => {
  const one = await open(t);
  const linker = linkerWith(one.parts.store.linker, async () => {
    t.same(await one.store.evidence.drain(10), { kind: 'busy' }, 'it has the lock');
    await one.database.sql(`
      SELECT pg_terminate_backend(pid) FROM pg_locks
      WHERE locktype = 'advisory' AND database = (SELECT oid FROM pg_database
        WHERE datname = current_database())`);
    await until('the lock is free', async () => {
      const locks = await one.database.sql(`SELECT 1 FROM pg_locks l
        JOIN pg_database d ON d.oid = l.database AND d.datname = current_database()
        WHERE l.locktype = 'advisory'`);
      return locks.length === 0;
    });
  });
  const code = await codeOf(() => one.another({ linker }).evidence.drain(10));
  t.match(code, /^(store_unavailable|outcome_unknown)$/);
  t.equal(await one.store.evidence.pending(), 3, 'nothing was written');
  await isWhole(t, one);
});

t.test('a server that restarts in a drain has all of it or nothing', async (t) => {
  const own = await startCluster();
  t.teardown(() => own.stop());
  for (const mode of ['fast', 'immediate'] as const) {
    const one = openEvidence(t, await own.database());
    await one.record('before');
    await one.settle();
    await one.record('first', 'second');
    await one.record('third');
    const linker = linkerWith(one.parts.store.linker, () => own.server.restart(mode));
    const code = await codeOf(() => one.another({ linker }).evidence.drain(10));
    t.match(code, /^(store_unavailable|outcome_unknown)$/, mode);
    await isWhole(t, one);
  }
});

t.test('whoever stands still in a drain is busy for a moment, and not for ever', async (t) => {
  const one = await open(t);
  let go: () => void = () => undefined;
  const stands = new Promise<void>((resolve) => {
    go = resolve;
  });
  let isIn: () => void = () => undefined;
  const entered = new Promise<void>((resolve) => {
    isIn = resolve;
  });
  const linker = linkerWith(one.parts.store.linker, () => {
    isIn();
    return stands;
  });
  const stopped = codeOf(() => one.another({ linker }).evidence.drain(10));
  await entered;
  t.same(await one.store.evidence.drain(10), { kind: 'busy' });
  const { ms } = await timed(() =>
    until('it was cut off', async () => (await one.store.evidence.drain(10)).kind === 'drained'),
  );
  t.ok(ms < FREE_WITHIN_MS, `${Math.round(ms)} ms`);
  go();
  t.match(await stopped, /^(store_unavailable|outcome_unknown)$/, 'it writes nothing afterwards');
  await isWhole(t, one);
});

t.test('a head that is missing, or leads to another record, is never written behind', async (t) => {
  const one = await open(t);
  await one.database.sql('CREATE SCHEMA kept');
  for (const name of ['halo_audit', 'halo_audit_head']) {
    await one.database.sql(`CREATE TABLE kept.${name} AS TABLE ${name}`);
  }
  const damages = {
    'no head': 'DELETE FROM halo_audit_head',
    'another hash': `UPDATE halo_audit_head SET hash = repeat('a', 64)`,
    'another number': 'UPDATE halo_audit_head SET seq = 0',
    'a number beyond the end': 'UPDATE halo_audit_head SET seq = 7',
    'no newest record': 'DELETE FROM halo_audit WHERE seq = 1',
    'no record 0': 'DELETE FROM halo_audit WHERE seq = 0',
    'a record that is none': "UPDATE halo_audit SET record = 'none' WHERE seq = 1",
    'a record of another place': `UPDATE halo_audit a SET record = k.record
      FROM kept.halo_audit k WHERE k.seq = 0 AND a.seq = 1`,
  };
  for (const [name, sql] of Object.entries(damages)) {
    await one.database.sql(sql);
    const before = await tables(one);
    t.equal(await codeOf(() => one.store.evidence.drain(10)), 'damaged', name);
    const stating = () => one.store.evidence.append({ kind: 'checkpoint' });
    t.equal(await codeOf(stating), 'damaged', `${name}: a statement`);
    t.equal(await tables(one), before, `${name}: nothing was written`);
    for (const table of ['halo_audit', 'halo_audit_head']) {
      await one.database.sql(`DELETE FROM ${table}; INSERT INTO ${table} TABLE kept.${table}`);
    }
  }
  await isWhole(t, one);
});

t.test('what was numbered first and committed last is never skipped', async (t) => {
  const one = openEvidence(t, await cluster.database());
  const late = new pg.Client({ connectionString: one.database.url });
  await late.connect();
  t.teardown(() => late.end());
  const { ref, text } = one.event('late');
  const { seal } = one.parts.store;
  const place = { writer: 'late', count: 1 };
  await late.query('BEGIN');
  await late.query(
    `INSERT INTO halo_evidence_outbox (ref, record, writer, writer_count, mac_key_id, mac)
     VALUES ($1, $2, $3, $4, $5, $6)`,
    [ref, text, place.writer, place.count, seal.keyId, seal.mac(place, text)],
  );
  await one.record('early');
  t.equal(await one.settle(), 1);
  await late.query('COMMIT');
  t.equal(await one.settle(), 1);
  t.same(await one.chained(), ['early', 'late']);
  t.equal((await one.verified()).status, 'verified');
});
