/** The audit chainer on PostgreSQL: what it drains and states, and what stops it. */
import t from 'tap';
import { settle } from '../src/actors/audit-chainer/settle.js';
import { KIND_CHECKPOINT, KIND_GENESIS, KIND_RESTORE_ACCEPTED } from '../src/evidence/format.js';
import { systemClock } from '../src/runtime/clock.js';
import { seededRandom } from '../src/runtime/random.js';
import { checkpointFile } from '../src/storage/file/checkpoint-file.js';
import type { checkpointsInMemory } from '../src/storage/published-checkpoints.js';
import type { Store } from '../src/storage/store.js';
import { ChainVerifier } from '../src/verify/chain-verifier.js';
import { firstBadSignature } from '../src/verify/signatures.js';
import {
  type ChainingReplica,
  evidenceParts,
  newSigningKeyPem,
  openChainer,
} from './fixtures/chaining-replica.js';
import { startCluster } from './fixtures/postgres-database.js';
import { codeOf, openStore, until } from './fixtures/postgres-stores.js';

t.setTimeout(120_000);
const cluster = await startCluster();
t.teardown(() => cluster.stop());
let seed = 1;

async function replica(
  test: { teardown(work: () => unknown): void },
  url: string,
  pem: string,
  options: {
    published?: ReturnType<typeof checkpointsInMemory>;
    waits?: boolean;
    id?: string;
  } = {},
): Promise<ChainingReplica & { store: Store }> {
  const clock = systemClock;
  seed += 1;
  const random = seededRandom(seed + Date.now());
  const parts = evidenceParts(pem, clock, random);
  const store = openStore(test, url, { evidence: parts.store });
  return { ...(await openChainer(test, { store, parts, clock, random, ...options })), store };
}

async function kinds(store: Store): Promise<string[]> {
  const records = await store.evidence.page(-1, 10_000);
  return records.map(({ text }) => (JSON.parse(text) as { kind: string }).kind);
}

/** The whole chain, verified by the independent verifier, each signature included. */
async function verified(store: Store): Promise<string> {
  const verifier = new ChainVerifier({});
  for (const { text, seq } of await store.evidence.page(-1, 100_000)) {
    const step = verifier.accept(text);
    if (step === undefined) continue;
    if ('status' in step) return `${step.seq} ${step.check}`;
    const claims = Buffer.from(step.hash + step.signature, 'hex');
    const isBad = firstBadSignature({ publicKey: step.publicKey, claims, count: 1 }) !== -1;
    if (isBad) return `${seq} signature`;
  }
  return verifier.finish({ isTorn: false, endsAtHead: true }).status;
}

t.test('what is enqueued is chained within a moment, after a genesis and the start', async (t) => {
  const database = await cluster.database();
  const one = await replica(t, database.url, newSigningKeyPem());
  const ref = await one.record('test.happened');
  const waiting = await one.audit.find({ ref });
  t.not(waiting, undefined, 'a ref is good at once');
  const atMs = systemClock.monotonicMs();
  await until('it is chained', async () => (await one.audit.find({ ref }))?.pending === false);
  t.ok(systemClock.monotonicMs() - atMs < 1_000, 'by the wake, before the next tick');
  t.strictSame(await kinds(one.store), [KIND_GENESIS, 'server.started', 'test.happened']);
  t.equal(await verified(one.store), 'verified');
  const found = await one.audit.find({ seq: 2 });
  t.equal(found?.pending === false && found.record.ref, ref, 'a number leads to it as well');
  t.equal(await one.audit.find({ seq: 3 }), undefined);
  t.equal(await one.audit.find({ ref: 'ev_00000000-0000-7000-8000-000000000000' }), undefined);
});

t.test('two replicas chain each event once, and an orderly stop is the last record', async (t) => {
  const database = await cluster.database();
  const pem = newSigningKeyPem();
  const one = await replica(t, database.url, pem, { id: 'one' });
  const two = await replica(t, database.url, pem, { id: 'two' });
  const refs = await Promise.all(
    Array.from({ length: 300 }, (_, n) => (n % 2 ? one : two).record(`test.number`)),
  );
  await two.host.close();
  await until('all are chained', async () => (await one.store.evidence.pending()) === 0);
  const records = await one.store.evidence.page(-1, 1_000);
  t.equal(new Set(records.map(({ ref }) => ref)).size, records.length);
  for (const ref of refs) t.ok(records.some((record) => record.ref === ref));
  t.equal((await kinds(one.store)).filter((kind) => kind === 'server.stopped').length, 1);
  t.equal(await verified(one.store), 'verified');
});

t.test('a command settles its own work, also while a server is at it', async (t) => {
  const database = await cluster.database();
  const pem = newSigningKeyPem();
  const server = await replica(t, database.url, pem, { id: 'server' });
  const parts = evidenceParts(pem, systemClock, seededRandom(Date.now()));
  const store = openStore(t, database.url, { evidence: parts.store });
  const refs: string[] = [];
  for (let round = 0; round < 20; round += 1) {
    const position = await store.replay([], () => undefined);
    await store.commit({ streams: [], position }, ({ storeTimeMs: atMs }) => {
      const by = { type: 'test', id: 'command' };
      const event = parts.recorder.event({ kind: 'test.command', by, atMs, data: {} });
      refs.push(event.ref);
      return { evidence: [event] };
    });
    void server.record('test.server');
    t.ok(await settle(store.evidence, refs.slice(-1), systemClock));
  }
  for (const ref of refs) t.equal((await store.evidence.find(ref))?.pending, false);
  await until('all are chained', async () => (await store.evidence.pending()) === 0);
  t.equal(await verified(store), 'verified');
});

t.test('checkpoints are stated every thousand records, and on demand', async (t) => {
  const database = await cluster.database();
  const one = await replica(t, database.url, newSigningKeyPem());
  await Promise.all(Array.from({ length: 1_100 }, () => one.record('test.number')));
  const state = (): Promise<number> =>
    kinds(one.store).then((all) => all.filter((kind) => kind === KIND_CHECKPOINT).length);
  await until('a checkpoint is stated', async () => (await state()) === 1);
  const record = await one.audit.checkpoint({ by: { type: 'admin', id: 'ada' } });
  t.equal(await state(), 2);
  t.equal((await one.published.read()).at(-1)?.seq, record.seq, 'what was given out is kept');
  t.equal(await verified(one.store), 'verified');
});

t.test(
  'a chain behind its published checkpoint is not extended until it is accepted',
  async (t) => {
    const database = await cluster.database();
    const pem = newSigningKeyPem();
    const path = `${t.testdir()}/published.json`;
    const first = await replica(t, database.url, pem, { published: checkpointFile(path) });
    await Promise.all(Array.from({ length: 10 }, () => first.record('test.number')));
    await until('all are chained', async () => (await first.store.evidence.pending()) === 0);
    const { seq } = await first.audit.checkpoint({ by: { type: 'admin', id: 'ada' } });
    await first.host.close();
    const hashOf5 = (await first.store.evidence.page(4, 1))[0]?.hash;
    await database.sql('DELETE FROM halo_audit WHERE seq > 5');
    await database.sql('DELETE FROM halo_evidence_outbox');
    await database.sql(`UPDATE halo_audit_head SET seq = 5, hash = '${hashOf5}'`);
    const again = await replica(t, database.url, pem, { published: checkpointFile(path) });
    await until('it is said', () => String(again.facts()['stopped']).startsWith('chain_rewound'));
    const ref = await again.record('test.later');
    t.equal(
      await codeOf(() => again.audit.checkpoint({ by: { type: 'admin', id: 'a' } })),
      'chain_rewound',
    );
    t.equal((await again.store.evidence.head()).seq, 5, 'nothing was chained');
    t.equal((await again.audit.find({ ref }))?.pending, true, 'what is decided is durable');
    await again.audit.acceptRestore({ by: { type: 'admin', id: 'ada' } });
    await until('it goes on', async () => (await again.audit.find({ ref }))?.pending === false);
    const [accepted] = await again.store.evidence.page(5, 1);
    const { kind, data } = JSON.parse(accepted?.text ?? '{}') as {
      kind: string;
      data: { lost_to: number };
    };
    t.equal(kind, KIND_RESTORE_ACCEPTED);
    t.equal(data.lost_to, seq, 'it names what is lost');
    t.equal(
      await codeOf(() => again.audit.acceptRestore({ by: { type: 'admin', id: 'ada' } })),
      'chain_not_rewound',
    );
  },
);

t.test('after a rotation a replica without the new key neither opens nor enqueues', async (t) => {
  const database = await cluster.database();
  const [old, next] = [newSigningKeyPem(), newSigningKeyPem()];
  const both = await replica(t, database.url, old + next, { id: 'both' });
  const only = await replica(t, database.url, old, { id: 'only' });
  t.ok(only.allowed());
  await both.audit.rotateKey({ by: { type: 'admin', id: 'ada' } });
  await until('it may not enqueue', () => !only.allowed());
  const late = await replica(t, database.url, old, { id: 'late', waits: false });
  const ref = await both.record('test.later');
  await until('it is chained', async () => (await both.audit.find({ ref }))?.pending === false);
  t.notOk(late.allowed());
  t.equal(
    await codeOf(() => both.audit.rotateKey({ by: { type: 'admin', id: 'a' }, nextKeyId: 'none' })),
    'signing_key_missing',
  );
  t.equal(await verified(both.store), 'verified');
});

t.test(
  'the verified prefix grows by looking, and starts over when it reads back changed',
  async (t) => {
    const database = await cluster.database();
    const one = await replica(t, database.url, newSigningKeyPem());
    await Promise.all(Array.from({ length: 600 }, () => one.record('test.number')));
    await until('all are chained', async () => (await one.store.evidence.pending()) === 0);
    const look = () => one.audit.page({ afterSeq: -1, limit: 1 });
    await until('all is verified', async () => {
      const { verifiedUpTo, head } = await look();
      return verifiedUpTo === head.seq;
    });
    await database.sql(`
    UPDATE halo_audit SET record = replace(record, 'test.number', 'test.nimber') WHERE seq = 300`);
    t.equal((await look()).verifiedUpTo, (await look()).head.seq, 'the last hash is the same');
    await database.sql(`
    UPDATE halo_audit SET hash = 'x' || hash WHERE seq = (SELECT max(seq) FROM halo_audit)`);
    await until('it stops before what was changed', async () => {
      const { verifiedUpTo } = await look();
      return verifiedUpTo >= 0 && verifiedUpTo < 300;
    });
    await until('a tail is newest first', async () => {
      const { records } = await one.audit.tail({ limit: 5 });
      return records.length === 5 && (records[0]?.seq ?? 0) > (records[4]?.seq ?? 0);
    });
    const some = await one.audit.page({ afterSeq: -1, limit: 3, kind: 'test.number' });
    t.strictSame(
      some.records.map(({ seq }) => seq),
      [2, 3, 4],
    );
    t.equal(some.nextAfterSeq, 4);
  },
);
