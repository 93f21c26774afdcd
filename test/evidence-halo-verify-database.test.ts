/** `halo-verify` on a database: whatever is done to a table shows; a clean one is not accused. */
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { availableParallelism, tmpdir } from 'node:os';
import { join } from 'node:path';
import t, { type Test } from 'tap';
import { runHaloVerify } from '../src/cli/halo-verify/program.js';
import { parseKeyring } from '../src/evidence/keyring.js';
import { systemClock } from '../src/runtime/clock.js';
import { seededRandom } from '../src/runtime/random.js';
import { EvidenceReader } from '../src/storage/postgres/evidence-reader.js';
import type { Store } from '../src/storage/store.js';
import { OutboxVerifier } from '../src/verify/outbox-rules.js';
import {
  type ChainingReplica,
  evidenceParts,
  newSigningKeyPem,
  openChainer,
} from './fixtures/chaining-replica.js';
import { ChainBuilder, edit, forge, keyOfSeed } from './fixtures/evidence-chains.js';
import { startCluster, type TestDatabase } from './fixtures/postgres-database.js';
import { openStore, until } from './fixtures/postgres-stores.js';
import { rawVerifyCpuUs, runProgram } from './fixtures/verify-program.js';

t.setTimeout(120_000);
const cluster = await startCluster();
t.teardown(() => cluster.stop());
const seed = Number(process.env['SEED'] ?? Date.now() % 2 ** 31);
t.comment(`seed ${seed}`);
const random = seededRandom(seed);

interface Found {
  readonly exitCode: number;
  readonly result: any;
  readonly err: string;
}

async function verify(args: readonly string[]): Promise<Found> {
  let out = '';
  let err = '';
  const console = {
    environment: {},
    out: (text: string) => {
      out += text;
    },
    err: (text: string) => {
      err += text;
    },
  };
  const exitCode = await runHaloVerify([...args, '--json'], console, { isTerminal: false });
  return { exitCode, result: out === '' ? undefined : JSON.parse(out), err };
}

interface Chained {
  readonly database: TestDatabase;
  readonly urlFile: string;
  readonly pem: string;
  readonly replica: ChainingReplica;
  readonly store: Store;
}

/** A database whose chain has some records and two checkpoints, written by a replica. */
async function chained(t: Test, events = 6): Promise<Chained> {
  const database = await cluster.database();
  const pem = newSigningKeyPem();
  const parts = evidenceParts(pem, systemClock, random);
  const store = openStore(t, database.url, { evidence: parts.store });
  const replica = await openChainer(t, { store, parts, clock: systemClock, random });
  for (let count = 0; count < events; count += 1) await replica.record('test.happened', { n: 'x' });
  await until('all are chained', async () => (await store.evidence.pending()) === 0);
  await replica.audit.checkpoint({ by: { type: 'test', id: 'auditor' } });
  await replica.record('test.happened');
  await until('all are chained', async () => (await store.evidence.pending()) === 0);
  const dir = await mkdtemp(join(tmpdir(), 'evidence-'));
  t.teardown(() => rm(dir, { recursive: true, force: true }));
  const urlFile = join(dir, 'url');
  await writeFile(urlFile, `${database.url}\n`);
  return { database, urlFile, pem, replica, store };
}

/** An event that nobody chains: put there as a writer does, without a drain behind it. */
async function enqueue(t: Test, { database, pem }: Chained, count: number): Promise<void> {
  const parts = evidenceParts(pem, systemClock, random);
  const store = openStore(t, database.url, { evidence: parts.store });
  for (let done = 0; done < count; done += 1) {
    const position = await store.replay([], () => undefined);
    await store.commit({ streams: [], position }, ({ storeTimeMs: atMs }) => ({
      evidence: [
        parts.recorder.event({ kind: 'test.waits', by: { type: 't', id: 'x' }, atMs, data: {} }),
      ],
    }));
  }
}

const literal = (text: string): string => `'${text.replaceAll("'", "''")}'`;

t.test('a chain in a database is verified, also against its key and a checkpoint', async (t) => {
  const one = await chained(t);
  const dir = t.testdir({});
  const key = Buffer.from(parseKeyring(one.pem).current.publicKey).toString('hex');
  await writeFile(join(dir, 'key'), key);
  const rows = await one.database.sql(
    "SELECT record FROM halo_audit WHERE record LIKE '%chain.checkpoint%' ORDER BY seq",
  );
  await writeFile(join(dir, 'checkpoint'), String(rows.at(-1)?.['record']));
  const { exitCode, result } = await verify([
    ...['--database-url-file', one.urlFile],
    ...['--key', join(dir, 'key'), '--checkpoint', join(dir, 'checkpoint')],
  ]);
  t.equal(exitCode, 0);
  t.match(result, { ok: true, pinned: true, pending: 0, records: 10 });
  const { exitCode: other, result: accused } = await verify([
    ...['--database-url-file', (await chained(t)).urlFile],
    ...['--checkpoint', join(dir, 'checkpoint')],
  ]);
  t.equal(other, 10, 'a checkpoint of another chain');
  t.equal(accused.firstBad.check, 'pinned_checkpoint');
});

t.test('what waits for its place is counted and not accused', async (t) => {
  const one = await chained(t);
  await one.replica.host.close();
  await enqueue(t, one, 5);
  const { exitCode, result } = await verify(['--database-url-file', one.urlFile]);
  t.equal(exitCode, 0);
  t.match(result, { ok: true, pending: 5 });
});

t.test('a chain is not accused while it is being written', async (t) => {
  const one = await chained(t);
  let writing = true;
  const writers = [1, 2].map(async () => {
    while (writing) await one.replica.record('test.concurrent');
  });
  let records = 0;
  for (let round = 0; round < 15; round += 1) {
    const { exitCode, result } = await verify(['--database-url-file', one.urlFile]);
    t.equal(exitCode, 0, JSON.stringify(result));
    t.ok(result.records >= records);
    records = result.records;
  }
  writing = false;
  await Promise.all(writers);
  t.ok(records > 50, `${records} records`);
});

t.test('what cannot be read says nothing about the chain, nor where it is', async (t) => {
  const dir = t.testdir({
    wrong: 'postgres://x:secret-word@127.0.0.1:1/none',
    remote: 'postgres://x:secret-word@db.example/none',
    two: 'a b',
  });
  for (const name of ['wrong', 'remote', 'two', 'missing']) {
    const { exitCode, result, err } = await verify(['--database-url-file', join(dir, name)]);
    t.equal(exitCode, 12, name);
    t.equal(result, undefined);
    t.match(err, /^halo-verify: it cannot be read: /);
    t.notMatch(err, /secret-word|db\.example/);
  }
  const two = await verify(['--database-url-file', join(dir, 'wrong'), '--data-dir', dir]);
  t.equal(two.exitCode, 2);
});

/** What somebody did to the tables, and how it is called. `at` is a record in the middle. */
interface Tampering {
  readonly name: string;
  readonly sql: (records: readonly string[]) => string;
  readonly check: string;
  readonly seq?: number;
}

const AT = 4;
const stranger = keyOfSeed('42'.repeat(32));

const setColumn = (column: string, value: string, check = 'columns'): Tampering => ({
  name: `the column ${column}`,
  sql: () => `UPDATE halo_audit SET ${column} = ${value} WHERE seq = ${AT}`,
  check,
  seq: AT,
});
const setRecord = (
  name: string,
  check: string,
  change: (record: string, records: readonly string[]) => string,
): Tampering => ({
  name,
  sql: (records) =>
    `UPDATE halo_audit SET record = ${literal(change(records[AT]!, records))} WHERE seq = ${AT}`,
  check,
  seq: AT,
});
const setField = (field: string, value: unknown, check = 'hash'): Tampering =>
  setRecord(`the field ${field}`, check, (record) =>
    edit(record, (fields) => {
      fields[field] = value;
    }),
  );

const TAMPERINGS: readonly Tampering[] = [
  setColumn('seq', '1000', 'seq'),
  setColumn('ref', "'ev_0190a1b2-c3d4-7e5f-8a9b-0c1d2e3f4a5b'"),
  setColumn('prev_hash', literal('1'.repeat(64))),
  setColumn('hash', literal('2'.repeat(64))),
  setRecord('the record emptied', 'line', () => ''),
  setField('at', '2026-01-01T00:00:00.000Z'),
  setField('by', { type: 'x', id: 'y' }),
  setField('chained_at', '2026-01-01T00:00:00.000Z'),
  setField('data', { n: 'y' }),
  setField('hash', '3'.repeat(64)),
  setField('key_id', '4'.repeat(32)),
  setField('kind', 'test.other'),
  setField('masked', ['/data/n']),
  setField('prev_hash', '5'.repeat(64), 'prev_hash'),
  setField('ref', 'ev_0190a1b2-c3d4-7e5f-8a9b-0c1d2e3f4a5b'),
  setField('seq', 1000, 'seq'),
  setField('sig', '6'.repeat(128), 'signature'),
  setField('v', 0, 'fields'),
  setRecord('white space in the record', 'canonical', (record) => record.replace(',', ', ')),
  setRecord('a signature moved', 'signature', (record, records) =>
    edit(record, (fields) => {
      fields['sig'] = JSON.parse(records[AT + 1]!).sig;
    }),
  ),
  setRecord('signed again with another key', 'key_id', (record) =>
    forge(record, stranger, () => undefined),
  ),
  {
    name: 'a row dropped',
    sql: () => `DELETE FROM halo_audit WHERE seq = ${AT}`,
    check: 'seq',
    seq: AT,
  },
  {
    name: 'a row duplicated',
    sql: () => `INSERT INTO halo_audit SELECT * FROM halo_audit WHERE seq = ${AT}`,
    check: 'seq',
    seq: AT + 1,
  },
  {
    name: 'two rows swapped',
    sql: () => `UPDATE halo_audit SET seq = ${2 * AT + 1} - seq WHERE seq IN (${AT}, ${AT + 1})`,
    check: 'seq',
    seq: AT,
  },
  {
    name: 'the tail cut',
    sql: () => 'DELETE FROM halo_audit WHERE seq >= 7',
    check: 'head',
    seq: 7,
  },
  {
    name: 'the head set back',
    sql: (records) =>
      `UPDATE halo_audit_head SET seq = 6, hash = ${literal(JSON.parse(records[6]!).hash)}`,
    check: 'head',
    seq: 7,
  },
  {
    name: 'another hash in the head',
    sql: () => `UPDATE halo_audit_head SET hash = ${literal('7'.repeat(64))}`,
    check: 'head',
    seq: 10,
  },
  { name: 'the head removed', sql: () => 'DELETE FROM halo_audit_head', check: 'head', seq: 0 },
  { name: 'all records removed', sql: () => 'DELETE FROM halo_audit', check: 'head', seq: 0 },
  {
    name: 'an outbox row removed from between',
    sql: () => 'DELETE FROM halo_evidence_outbox WHERE writer_count = 2',
    check: 'outbox',
  },
  {
    name: 'an outbox row planted behind a gap',
    sql: () => `
      INSERT INTO halo_evidence_outbox (ref, record, writer, writer_count, mac_key_id, mac)
      SELECT 'ev_0190a1b2-c3d4-7e5f-8a9b-0c1d2e3f4a5b', record, 'somebody', 3, mac_key_id, mac
      FROM halo_evidence_outbox LIMIT 1`,
    check: 'outbox',
  },
  {
    name: 'an outbox row with the text of another',
    sql: () => `
      UPDATE halo_evidence_outbox SET record =
        (SELECT record FROM halo_evidence_outbox WHERE writer_count = 1)
      WHERE writer_count = 2`,
    check: 'outbox',
  },
  {
    name: 'an outbox row that would be chained a second time',
    sql: () => `
      UPDATE halo_evidence_outbox o SET ref = a.ref, record = replace(o.record, o.ref, a.ref)
      FROM halo_audit a WHERE a.seq = ${AT} AND o.writer_count = 2`,
    check: 'outbox',
  },
  {
    name: 'a chained outbox row put back',
    sql: () =>
      'INSERT INTO halo_evidence_writers SELECT writer, 1 FROM halo_evidence_outbox LIMIT 1',
    check: 'outbox',
  },
];

const TABLES = ['halo_audit', 'halo_audit_head', 'halo_evidence_outbox', 'halo_evidence_writers'];

t.test('whatever is done to the tables shows, and is named', async (t) => {
  const one = await chained(t);
  await one.replica.host.close();
  await enqueue(t, one, 3);
  const { database, urlFile } = one;
  // Who may change a table may also drop what would stand in the way.
  await database.sql(`
    ALTER TABLE halo_audit DROP CONSTRAINT halo_audit_pkey,
      DROP CONSTRAINT halo_audit_ref_key, DROP CONSTRAINT halo_audit_prev_hash_key,
      DROP CONSTRAINT halo_audit_hash_key;
    CREATE SCHEMA kept;
    ${TABLES.map((name) => `CREATE TABLE kept.${name} AS TABLE ${name}`).join(';')}`);
  const rows = await database.sql('SELECT record FROM halo_audit ORDER BY seq');
  const records = rows.map(({ record }) => String(record));
  t.equal((await verify(['--database-url-file', urlFile])).exitCode, 0, 'clean at first');
  for (const { name, sql, check, seq } of TAMPERINGS) {
    await database.sql(sql(records));
    const { exitCode, result } = await verify(['--database-url-file', urlFile]);
    t.equal(exitCode, 10, `${name}: tampered`);
    t.equal(result.firstBad?.check, check, `${name}: ${JSON.stringify(result.firstBad)}`);
    if (seq !== undefined) t.equal(result.firstBad?.seq, seq, `${name}: its place`);
    await database.sql(
      TABLES.map(
        (table) =>
          `DELETE FROM ${table};
           INSERT INTO ${table} OVERRIDING SYSTEM VALUE SELECT * FROM kept.${table}`,
      ).join(';'),
    );
  }
  t.equal((await verify(['--database-url-file', urlFile])).exitCode, 0, 'clean again');
});

t.test('a duplicate between two pages is not skipped', async (t) => {
  const one = await chained(t, 300);
  await one.replica.host.close();
  await one.database.sql(`
    ALTER TABLE halo_audit DROP CONSTRAINT halo_audit_pkey,
      DROP CONSTRAINT halo_audit_ref_key, DROP CONSTRAINT halo_audit_prev_hash_key,
      DROP CONSTRAINT halo_audit_hash_key`);
  for (const at of [255, 256, 257]) {
    await one.database.sql(`INSERT INTO halo_audit SELECT * FROM halo_audit WHERE seq = ${at}`);
    const { exitCode, result } = await verify(['--database-url-file', one.urlFile]);
    t.equal(exitCode, 10, `${at}`);
    t.match(result.firstBad, { seq: at + 1, check: 'seq' });
    await one.database.sql(`DELETE FROM halo_audit WHERE ctid IN
      (SELECT max(ctid) FROM halo_audit WHERE seq = ${at})`);
  }
  t.equal((await verify(['--database-url-file', one.urlFile])).exitCode, 0);
});

t.test('head and outbox are of one moment, however long the outbox', async (t) => {
  const one = await chained(t);
  await one.replica.host.close();
  await enqueue(t, one, 600);
  const reader = await EvidenceReader.open({ url: one.database.url });
  t.teardown(() => reader.close());
  const outbox = new OutboxVerifier();
  let pages = 0;
  await reader.table(async (rows) => {
    for (const row of rows) outbox.accept(row);
    pages += 1;
    // What a drain and a writer do meanwhile.
    await one.database.sql('DELETE FROM halo_evidence_outbox WHERE writer_count < 400');
  });
  t.equal(pages, 3);
  t.equal(outbox.pending, 600);
  t.equal(outbox.finding(0), undefined);
});

/** With HALO_TEST_EVIDENCE_RECORDS=1000000 the figures of the page on performance. */
const records = Number(process.env['HALO_TEST_EVIDENCE_RECORDS'] ?? 20_000);
const RSS_MAX_MB = 300;

t.test(
  'a long chain in a database is verified in bounded memory',
  { timeout: 900_000 },
  async (t) => {
    const database = await cluster.database();
    const chain = new ChainBuilder();
    for (let written = 0; written < records; ) {
      while (chain.records.length < 1000) chain.add('decision.made', { action: 'read', written });
      const rows = chain.records.map((row) => [row.seq, row.ref, row.prevHash, row.hash, row.text]);
      const values = rows.map((row) => `(${row.map((value) => literal(String(value))).join(',')})`);
      await database.sql(`INSERT INTO halo_audit
      SELECT seq::int8, ref, prev_hash, hash, record
      FROM (VALUES ${values.join(',')}) AS v (seq, ref, prev_hash, hash, record)`);
      written += chain.records.length;
      chain.forget();
    }
    const { seq, hash } = chain.head;
    await database.sql(`UPDATE halo_audit_head SET seq = ${seq}, hash = ${literal(hash)}`);
    const dir = t.testdir({ url: database.url });
    const rawUs = rawVerifyCpuUs();
    const { exitCode, out, rssMb, cpuUs, seconds } = await runProgram(
      ...['--database-url-file', join(dir, 'url')],
    );
    t.equal(exitCode, 0, out);
    t.equal(JSON.parse(out).records, seq + 1);
    const rate = (seq + 1) / seconds;
    const eachUs = cpuUs / (seq + 1);
    const cores = availableParallelism();
    t.comment(
      `${seq + 1} records in ${seconds.toFixed(1)} s, ${Math.round(rate)}/s on ${cores} cores`,
    );
    t.comment(`${rssMb.toFixed(0)} MB; ${eachUs.toFixed(1)} µs of processor for each record`);
    t.comment(`a signature alone ${rawUs.toFixed(1)} µs: ${(rawUs / eachUs).toFixed(2)} of that`);
    t.comment(`by the clock ${((rate * rawUs) / 1e6 / cores).toFixed(2)} of raw verification`);
    t.ok(rssMb < RSS_MAX_MB, `${rssMb.toFixed(0)} MB`);
  },
);
