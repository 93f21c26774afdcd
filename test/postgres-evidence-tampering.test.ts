/** What somebody did to the outbox stops the drain, is named with its row, and is never skipped. */
import t from 'tap';
import { openEvidence } from './fixtures/evidence-database.js';
import { startCluster } from './fixtures/postgres-database.js';

t.setTimeout(120_000);
const cluster = await startCluster();
t.teardown(() => cluster.stop());

interface Tampering {
  readonly name: string;
  readonly sql: string;
  readonly code: string;
  readonly says: RegExp;
}

const TABLES = ['halo_evidence_outbox', 'halo_evidence_writers'];
const UNKNOWN_REF = "'ev_0190a1b2-c3d4-7e5f-8a9b-0c1d2e3f4a5b'";
const copyOf = (changed: string): string =>
  `INSERT INTO halo_evidence_outbox (ref, record, writer, writer_count, mac_key_id, mac)
   SELECT ${changed} FROM kept.halo_evidence_outbox ORDER BY id LIMIT 1`;
const set = (column: string, value: string, where = 'writer_count = 3'): string =>
  `UPDATE halo_evidence_outbox SET ${column} = ${value} WHERE ${where}`;

/** Three rows wait, of one writer, with the numbers 2 to 4; its first was chained. */
const TAMPERINGS: readonly Tampering[] = [
  {
    name: 'a row planted under a writer of its own',
    sql: copyOf(`${UNKNOWN_REF}, record, 'somebody', 1, mac_key_id, mac`),
    code: 'evidence_forged',
    says: /its MAC does not fit/,
  },
  {
    name: 'a row planted with the MAC of no key',
    sql: copyOf(`${UNKNOWN_REF}, record, 'somebody', 1, repeat('a', 32), mac`),
    code: 'signing_key_missing',
    says: /the signing key a{32} is not in the file/,
  },
  {
    name: 'a text changed',
    sql: set('record', `replace(record, 'two', 'too')`),
    code: 'evidence_forged',
    says: /its MAC does not fit/,
  },
  {
    name: 'a ref changed',
    sql: set('ref', UNKNOWN_REF),
    code: 'evidence_forged',
    says: /its ref is another/,
  },
  {
    name: 'a MAC changed',
    sql: set('mac', `repeat('0', 64)`),
    code: 'evidence_forged',
    says: /its MAC does not fit/,
  },
  {
    name: 'two texts exchanged',
    sql: `UPDATE halo_evidence_outbox o SET record = k.record, mac = k.mac
          FROM kept.halo_evidence_outbox k
          WHERE o.writer_count IN (2, 3) AND k.writer_count = 5 - o.writer_count`,
    code: 'evidence_forged',
    says: /its MAC does not fit/,
  },
  {
    name: 'a row removed',
    sql: 'DELETE FROM halo_evidence_outbox WHERE writer_count = 3',
    code: 'evidence_missing',
    says: /the events 3 to 3 of its writer are missing/,
  },
  {
    name: 'the first rows removed',
    sql: 'DELETE FROM halo_evidence_outbox WHERE writer_count < 4',
    code: 'evidence_missing',
    says: /the events 2 to 3 of its writer are missing/,
  },
  {
    name: 'a row moved to another number',
    sql: set('writer_count', '7'),
    code: 'evidence_forged',
    says: /its MAC does not fit/,
  },
  {
    name: 'a row moved to another writer',
    sql: set('writer', `'another'`),
    code: 'evidence_forged',
    says: /its MAC does not fit/,
  },
  {
    name: 'a row moved before the others',
    sql: `UPDATE halo_evidence_outbox SET id = DEFAULT WHERE writer_count = 2`,
    code: 'evidence_missing',
    says: /the events 2 to 2 of its writer are missing/,
  },
  {
    name: 'a row that was chained put back',
    sql: `INSERT INTO halo_evidence_outbox OVERRIDING SYSTEM VALUE TABLE kept.chained`,
    code: 'evidence_forged',
    says: /it was chained before/,
  },
  {
    name: 'the count of a writer set back',
    sql: 'UPDATE halo_evidence_writers SET last = last - 1',
    code: 'evidence_missing',
    says: /the events 1 to 1 of its writer are missing/,
  },
  {
    name: 'the count of a writer set forward',
    sql: 'UPDATE halo_evidence_writers SET last = last + 1',
    code: 'evidence_forged',
    says: /it was chained before/,
  },
];

t.test('whatever is done to what waits stops the drain at its row', async (t) => {
  const one = openEvidence(t, await cluster.database());
  const { database, store } = one;
  await one.record('zero');
  await database.sql('CREATE SCHEMA kept; CREATE TABLE kept.chained AS TABLE halo_evidence_outbox');
  await one.settle();
  await one.record('one', 'two', 'three');
  for (const name of TABLES) await database.sql(`CREATE TABLE kept.${name} AS TABLE ${name}`);
  const head = await store.evidence.head();
  for (const { name, sql, code, says } of TAMPERINGS) {
    await database.sql(sql);
    const ids = await database.sql('SELECT id FROM halo_evidence_outbox');
    const error = (await store.evidence.drain(10).catch((thrown: unknown) => thrown)) as {
      code?: string;
      message?: string;
    };
    t.equal(error.code, code, name);
    t.match(error.message, says, name);
    const row = /^outbox row (\d+): /.exec(error.message ?? '')?.[1];
    t.ok(
      ids.some(({ id }) => String(id) === row),
      `${name}: the row is named: ${error.message}`,
    );
    t.notMatch(error.message, /two|test\.happened/, 'and nothing that is in it');
    t.same(await store.evidence.head(), head, `${name}: nothing was chained`);
    t.equal(await store.evidence.pending(), ids.length, `${name}: nothing left the outbox`);
    for (const table of TABLES) {
      await database.sql(`
        DELETE FROM ${table};
        INSERT INTO ${table} OVERRIDING SYSTEM VALUE TABLE kept.${table}`);
    }
  }
  await one.settle();
  t.same(await one.chained(), ['zero', 'one', 'two', 'three']);
  t.match(await one.verified(), { status: 'verified', pending: 0 });
});

t.test('a row that was chained cannot be chained again, whatever its writer says', async (t) => {
  const one = openEvidence(t, await cluster.database());
  const { database, store } = one;
  await one.record('once');
  await database.sql('CREATE TABLE chained AS TABLE halo_evidence_outbox');
  await one.settle();
  await database.sql(`
    INSERT INTO halo_evidence_outbox OVERRIDING SYSTEM VALUE TABLE chained;
    DELETE FROM halo_evidence_writers`);
  await t.rejects(store.evidence.drain(10), {
    code: 'write_refused',
    message: /halo_audit_ref_key/,
  });
  t.equal(await store.evidence.pending(), 1);
  t.same(await one.chained(), ['once']);
});

t.test('a row that this binary cannot read, of a key that it has, waits for another', async (t) => {
  const one = openEvidence(t, await cluster.database());
  const { database, store, parts } = one;
  await one.record('before');
  await one.settle();
  const newer = one.event('newer');
  const texts = {
    evidence_newer: newer.text.replace(/"v":1}$/, '"v":2}'),
    evidence_unreadable: `${newer.text} `,
  };
  for (const [code, text] of Object.entries(texts)) {
    t.not(text, newer.text);
    const place = { writer: code, count: 1 };
    const values = [newer.ref, text, code, '1', parts.store.seal.keyId]
      .concat(parts.store.seal.mac(place, text))
      .map((value) => `'${value}'`);
    await database.sql(`
      INSERT INTO halo_evidence_outbox (ref, record, writer, writer_count, mac_key_id, mac)
      VALUES (${values.join(', ')})`);
    await one.record(`behind ${code}`);
    await t.rejects(store.evidence.drain(10), { code, message: /^outbox row \d+: / });
    t.same(await store.evidence.find(newer.ref), {
      pending: true,
      event: { ref: newer.ref, text },
    });
    t.equal(await store.evidence.pending(), 2, 'nothing before or behind it goes on');
    await database.sql(`DELETE FROM halo_evidence_outbox WHERE writer = '${code}'`);
    await one.settle();
  }
  t.equal((await one.verified()).status, 'verified');
});
