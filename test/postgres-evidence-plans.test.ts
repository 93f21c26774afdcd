/** Reading and draining stay fast when the chain is long and the outbox has seen a lot. */
import pg from 'pg';
import t from 'tap';
import { systemClock } from '../src/runtime/clock.js';
import { DRAIN_BATCH_MAX } from '../src/storage/evidence-store.js';
import type { PostgresStore } from '../src/storage/postgres/postgres-store.js';
import { type EvidenceDatabase, openEvidence, recordIn } from './fixtures/evidence-database.js';
import { startCluster } from './fixtures/postgres-database.js';

t.setTimeout(180_000);
const CHAIN_ROWS = 100_000;
const WRITER_ROWS = 20_000;
const BURST = 20_000;
const BURST_UNIT = 500;
/** More than the server plans anew before it settles for a plan of any values. */
const TIMES = 8;
/** Drains at the end of a burst may take so much longer than those at its beginning. */
const SLOWER_MAX = 4;
/** What is lost in the noise of a busy machine. */
const NOISE_MS = 25;

const cluster = await startCluster();
t.teardown(() => cluster.stop());

/** A long chain, whose records are none, under one that was chained. */
async function lengthen({ database }: EvidenceDatabase): Promise<void> {
  await database.sql(`
    INSERT INTO halo_audit (seq, ref, prev_hash, hash, record)
    SELECT 1000 + n, 'ev_' || n, 'prev ' || n, 'hash ' || n, repeat('x', 200)
    FROM generate_series(1, ${CHAIN_ROWS}) n;
    INSERT INTO halo_evidence_writers
    SELECT 'w' || n, n FROM generate_series(1, ${WRITER_ROWS}) n`);
  await database.sql('ANALYZE');
}

/** Rows that scans of whole tables have read so far. Backends report when they end. */
async function scanned({ database }: EvidenceDatabase): Promise<Record<string, number>> {
  const rows = await database.sql(`
    SELECT relname, seq_tup_read FROM pg_stat_user_tables
    WHERE relname IN ('halo_audit', 'halo_evidence_outbox', 'halo_evidence_writers')`);
  return Object.fromEntries(
    rows.map((row) => [String(row['relname']), Number(row['seq_tup_read'])]),
  );
}

t.test('nothing that is read or chained scans a table', async (t) => {
  const one = openEvidence(t, await cluster.database());
  const [chained = ''] = await one.record('chained');
  await one.settle();
  await lengthen(one);
  const names = Array.from({ length: 3 * DRAIN_BATCH_MAX }, (_, n) => String(n));
  const waiting = await one.record(...names);
  const asks: Record<string, (store: PostgresStore) => Promise<unknown>> = {
    find: (store) => store.evidence.find(chained),
    'find what waits': (store) => store.evidence.find(waiting[7] ?? ''),
    'find nothing': (store) => store.evidence.find('ev_none'),
    page: (store) => store.evidence.page(50_000, 100),
    'the first page': (store) => store.evidence.page(-1, 100),
    pageBack: (store) => store.evidence.pageBack(50_000, 100),
    'the last page': (store) => store.evidence.pageBack(Number.MAX_SAFE_INTEGER, 100),
    head: (store) => store.evidence.head(),
    drain: (store) => store.evidence.drain(10),
    append: (store) => store.evidence.append({ kind: 'checkpoint' }),
    commit: (store) => recordIn(store, [one.event('more')]),
  };
  for (const [name, ask] of Object.entries(asks)) {
    const store = one.another();
    const before = await scanned(one);
    for (let time = 0; time < TIMES; time += 1) await ask(store);
    await store.close();
    t.same(await scanned(one), before, name);
  }
});

/** How long each drain took, in ms. */
async function drainTimes({ evidence }: PostgresStore): Promise<number[]> {
  const times: number[] = [];
  for (;;) {
    const beginMs = systemClock.monotonicMs();
    const result = await evidence.drain(DRAIN_BATCH_MAX);
    if (result.kind === 'busy') continue;
    if (result.events === 0) return times;
    times.push(systemClock.monotonicMs() - beginMs);
  }
}

function median(values: readonly number[]): number {
  return values.toSorted((a, b) => a - b)[Math.floor(values.length / 2)] ?? Number.NaN;
}

async function burst(one: EvidenceDatabase): Promise<{ first: number; last: number }> {
  for (let done = 0; done < BURST; done += BURST_UNIT) {
    await one.record(...Array.from({ length: BURST_UNIT }, (_, n) => String(done + n)));
  }
  const times = await drainTimes(one.store);
  const part = Math.floor(times.length / 10);
  return { first: median(times.slice(0, part)), last: median(times.slice(-part)) };
}

for (const held of [false, true]) {
  const whoever = held ? ', nor the rows that an open snapshot keeps' : '';
  t.test(`rows that have left the outbox slow nothing${whoever}`, async (t) => {
    const one = openEvidence(t, await cluster.database());
    const reader = new pg.Client({ connectionString: one.database.url });
    await reader.connect();
    t.teardown(() => reader.end());
    if (held) {
      await reader.query('BEGIN ISOLATION LEVEL REPEATABLE READ');
      await reader.query('SELECT count(*) FROM halo_audit');
    }
    for (let round = 0; round < 2; round += 1) {
      const { first, last } = await burst(one);
      const told = `${first.toFixed(1)} ms at first, ${last.toFixed(1)} ms at last`;
      t.comment(told);
      t.ok(last < SLOWER_MAX * first + NOISE_MS, told);
    }
    t.match(await one.verified(), { status: 'verified', records: 2 * BURST + 1, pending: 0 });
  });
}
