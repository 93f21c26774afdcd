/** Numbers of writers have no gaps, and what was acknowledged is chained once, whoever dies. */
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import t, { type Test } from 'tap';
import { seededRandom } from '../src/runtime/random.js';
import { type EvidenceDatabase, openEvidence, recordIn } from './fixtures/evidence-database.js';
import { hasPgbouncer, startPgbouncer } from './fixtures/pgbouncer.js';
import { startCluster } from './fixtures/postgres-database.js';
import { codeOf, until } from './fixtures/postgres-stores.js';
import { TcpProxy } from './fixtures/tcp-proxy.js';

/** `EVIDENCE_ROUNDS=100` for a night. */
const ROUNDS = Number(process.env['EVIDENCE_ROUNDS'] ?? 10);
const REPLICAS = 3;
/** Acknowledged between two deaths, at most: enough for every process to be in the midst of it. */
const ACKNOWLEDGED_MAX = 120;
const seed = Number(process.env['SEED'] ?? Date.now() % 2 ** 31);

t.setTimeout(60_000 + ROUNDS * 20_000);
t.comment(`SEED=${seed}`);
const random = seededRandom(seed);
const cluster = await startCluster();
t.teardown(() => cluster.stop());

/** Each writer's numbers in the outbox, by writer. */
async function numbers({ database }: EvidenceDatabase): Promise<Record<string, number[]>> {
  const rows = await database.sql(
    'SELECT writer, writer_count FROM halo_evidence_outbox ORDER BY id',
  );
  const found: Record<string, number[]> = {};
  for (const { writer, writer_count: count } of rows) {
    found[String(writer)] = [...(found[String(writer)] ?? []), Number(count)];
  }
  return found;
}

t.test('what is rolled back gives its numbers to the next unit', async (t) => {
  const one = openEvidence(t, await cluster.database());
  await one.record('a', 'b');
  await one.store.kv.put('taken', 'v', null);
  const position = await one.store.replay([], () => undefined);
  const refused = one.store.commit({ streams: [], position }, () => ({
    kv: [{ op: 'add', key: 'taken', value: 'w', expiresAtMs: null }],
    evidence: [one.event('refused')],
  }));
  t.equal(await codeOf(() => refused), 'write_refused');
  const { ref } = one.event('twice');
  const same = [
    { ...one.event('x'), ref },
    { ...one.event('y'), ref },
  ];
  t.equal(await codeOf(() => recordIn(one.store, same)), 'write_refused', 'a ref is unique');
  await one.record('c');
  t.same(Object.values(await numbers(one)), [[1, 2, 3]]);
  await one.settle();
  await one.record('d');
  await one.settle();
  t.same(await one.chained(), ['a', 'b', 'c', 'd']);
});

t.test('a ref that waits cannot be queued a second time', async (t) => {
  const one = openEvidence(t, await cluster.database());
  const event = one.event('once');
  await recordIn(one.store, [event]);
  t.equal(await codeOf(() => recordIn(one.store, [event])), 'write_refused');
  await one.settle();
  t.same(await one.chained(), ['once']);
});

t.test('after an unknown outcome a writer is never used again', async (t) => {
  for (const side of ['asked', 'answered'] as const) {
    const one = openEvidence(t, await cluster.database());
    const proxy = await TcpProxy.start(cluster.server);
    t.teardown(() => proxy.stop());
    const store = one.another({ url: proxy.urlOf(one.database.url) });
    await recordIn(store, [one.event('before')]);
    const [writer = ''] = Object.keys(await numbers(one));
    const watch = (chunk: Buffer) =>
      (chunk.includes('COMMIT\0') ? 'cut' : 'pass') as 'cut' | 'pass';
    if (side === 'asked') proxy.watch(watch);
    else proxy.watchAnswers(watch);
    const unknown = one.event('unknown');
    t.equal(await codeOf(() => recordIn(store, [unknown])), 'outcome_unknown', side);
    proxy.heal();
    await until('it can write', async () => {
      await recordIn(store, [one.event('after')]);
      return true;
    });
    const found = await numbers(one);
    t.equal(Object.keys(found).length, 2, 'a writer of its own');
    t.same(found[writer], side === 'asked' ? [1] : [1, 2], 'and nothing more of the other');
    await one.settle();
    const isDone = side === 'answered';
    t.same(await one.chained(), isDone ? ['before', 'unknown', 'after'] : ['before', 'after']);
    t.equal((await one.verified()).status, 'verified');
  }
});

t.test('units at the same time have writers of their own', async (t) => {
  const one = openEvidence(t, await cluster.database());
  const units = Array.from({ length: 40 }, (_, n) => one.record(`${n}a`, `${n}b`));
  await Promise.all(units);
  const found = Object.values(await numbers(one));
  t.ok(found.length > 1 && found.length <= 4, `${found.length} writers for as many connections`);
  for (const counts of found) {
    t.same(
      counts,
      counts.map((_, index) => index + 1),
      'without a gap, in the order of the ids',
    );
  }
  t.equal(await one.settle(), 80);
});

interface Replica {
  readonly child: ChildProcess;
  readonly acknowledged: string[];
  readonly complaints: string[];
}

function startReplica(one: EvidenceDatabase, url: string, pooled: boolean): Replica {
  const program = fileURLToPath(new URL('./fixtures/evidence-writer.js', import.meta.url));
  const env = {
    ...process.env,
    TEST_DATABASE_URL: url,
    TEST_SIGNING_KEY: one.pem,
    TEST_POOLED: pooled ? 'yes' : 'no',
  };
  const child = spawn(process.execPath, [program], { stdio: ['ignore', 'pipe', 'inherit'], env });
  const replica: Replica = { child, acknowledged: [], complaints: [] };
  // What was cut in the midst of a line was no acknowledgement.
  createInterface({ input: child.stdout }).on('line', (line) => {
    if (/^ev_[0-9a-f-]{36}$/.test(line)) replica.acknowledged.push(line);
    else if (line.startsWith('!')) replica.complaints.push(line);
  });
  return replica;
}

async function kill({ child }: Replica): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return;
  const ended = once(child, 'close');
  child.kill('SIGKILL');
  await ended;
}

/** Processes die one after another, at random, and others take their places. */
async function dieInTurn(
  t: Test,
  one: EvidenceDatabase,
  rounds: number,
  { url, pooled }: { readonly url: string; readonly pooled: boolean },
): Promise<void> {
  const all: Replica[] = [];
  t.teardown(() => Promise.all(all.map(kill)));
  const start = (): Replica => {
    const replica = startReplica(one, url, pooled);
    all.push(replica);
    return replica;
  };
  const running = Array.from({ length: REPLICAS }, start);
  const total = (): number => all.reduce((sum, { acknowledged }) => sum + acknowledged.length, 0);
  await until('all record', () => running.every(({ acknowledged }) => acknowledged.length > 0));
  for (let round = 0; round < rounds; round += 1) {
    const wanted = total() + 1 + Math.floor(random.fraction() * ACKNOWLEDGED_MAX);
    await until(`${wanted} acknowledged`, () => total() >= wanted);
    const victim = Math.floor(random.fraction() * REPLICAS);
    await kill(running[victim]!);
    running[victim] = start();
  }
  await Promise.all(all.map(kill));
  t.same(
    all.flatMap(({ complaints }) => complaints),
    [],
  );
  await until('what waits is chained', () => one.settle().then(() => true));
  const rows = await one.database.sql('SELECT ref FROM halo_audit');
  const chained = new Set(rows.map(({ ref }) => String(ref)));
  const acknowledged = all.flatMap((replica) => replica.acknowledged);
  t.equal(chained.size, rows.length, 'each once');
  t.ok(acknowledged.length > rounds);
  t.same(
    acknowledged.filter((ref) => !chained.has(ref)),
    [],
    `all ${acknowledged.length} that were acknowledged`,
  );
  t.match(await one.verified(), { status: 'verified', pending: 0, records: rows.length });
}

t.test(
  'processes that record and chain are killed: nothing is lost, doubled or forked',
  async (t) => {
    const one = openEvidence(t, await cluster.database());
    await dieInTurn(t, one, ROUNDS, { url: one.database.url, pooled: false });
  },
);

if (hasPgbouncer()) {
  t.test('the same behind a transaction pooler', async (t) => {
    const one = openEvidence(t, await cluster.database());
    const pooler = await startPgbouncer(cluster.server, ['halo_serving']);
    t.teardown(() => pooler.stop());
    await dieInTurn(t, one, 3, { url: pooler.urlOf(one.database.url), pooled: true });
  });
} else {
  t.not(process.env.CI, 'true', 'pgbouncer is not installed: the pooler was not tried');
}
