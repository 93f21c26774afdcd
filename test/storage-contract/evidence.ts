/**
 * Contract: evidence. It is durable with its unit or not at all, waits in order where the backend
 * chains later (`deferred`), and becomes one chain whoever appends to it.
 */
import t, { type Test } from 'tap';
import { KIND_CHECKPOINT, KIND_GENESIS } from '../../src/evidence/format.js';
import {
  type ChainedRecord,
  DRAIN_BATCH_MAX,
  type EvidenceEvent,
} from '../../src/storage/evidence-store.js';
import type { Changes, Store } from '../../src/storage/store.js';
import { ChainVerifier } from '../../src/verify/chain-verifier.js';
import { happened } from '../fixtures/contract-evidence.js';
import type { ContractBackend, ContractStore } from '../storage-contract.js';
import { codeOf, unkeyed, View } from './view.js';

const PAGE = 7;
const RACING_ROUNDS = 20;

export function registerEvidence(backend: ContractBackend): void {
  registerUnits(backend);
  registerOutbox(backend);
  registerDrains(backend);
  registerStatements(backend);
  registerRaces(backend);
  registerReading(backend);
  registerRestored(backend);
}

async function open(t: Test, backend: ContractBackend): Promise<ContractStore> {
  const opened = await backend.open();
  t.teardown(() => opened.close());
  return opened;
}

async function commit(store: Store, changes: Changes): Promise<void> {
  const position = await store.replay(['a'], () => undefined);
  await store.commit({ streams: ['a'], position }, () => changes);
}

/** In one unit; their refs. */
async function record(store: Store, ...names: readonly string[]): Promise<string[]> {
  const evidence = names.map(happened);
  await commit(store, { evidence });
  return evidence.map(({ ref }) => ref);
}

function numbered(count: number): string[] {
  return Array.from({ length: count }, (_, n) => String(n));
}

/** Until nothing waits. */
async function settle({ evidence }: Store): Promise<void> {
  for (;;) {
    const result = await evidence.drain(DRAIN_BATCH_MAX);
    if (result.kind === 'drained' && result.events < DRAIN_BATCH_MAX) return;
  }
}

async function chain({ evidence }: Store): Promise<ChainedRecord[]> {
  const records: ChainedRecord[] = [];
  for (;;) {
    const page = await evidence.page(records.at(-1)?.seq ?? -1, PAGE);
    if (page.length === 0) return records;
    records.push(...page);
  }
}

/** What was recorded by `happened`, in the order of the chain. */
function names(records: readonly ChainedRecord[]): string[] {
  return records
    .map(({ text }) => JSON.parse(text) as { kind: string; data: { what: string } })
    .filter(({ kind }) => kind === 'test.happened')
    .map(({ data }) => data.what);
}

function kinds(records: readonly ChainedRecord[]): string[] {
  return records.map(({ text }) => (JSON.parse(text) as { kind: string }).kind);
}

/** As an auditor would: by code that shares nothing with what wrote it. */
function verified(records: readonly ChainedRecord[]): string {
  const verifier = new ChainVerifier({});
  for (const { text } of records) {
    const step = verifier.accept(text);
    if (step !== undefined && 'status' in step) return `${step.seq}: ${step.check}`;
  }
  return verifier.finish({ isTorn: false, endsAtHead: true }).status;
}

async function isNowhere(t: Test, store: Store, events: readonly EvidenceEvent[]): Promise<void> {
  await settle(store);
  for (const { ref } of events) t.equal(await store.evidence.find(ref), undefined);
  t.equal((await store.evidence.head()).seq, -1);
  t.equal(await store.evidence.pending(), 0);
}

function registerUnits(backend: ContractBackend): void {
  const { name } = backend;

  t.test(`${name}: evidence is there as soon as its unit is, and its unit with it`, async (t) => {
    const { store, another } = await open(t, backend);
    const other = await another();
    const evidence = [happened('one'), happened('two')];
    const view = await View.replay(other, ['a']);
    await commit(store, { appends: [unkeyed('a', 1)], evidence });
    t.equal((await view.catchUp()).length, 1);
    for (const event of evidence) {
      const found = await other.evidence.find(event.ref);
      t.equal(found?.pending, store.evidence.mode === 'deferred');
      t.equal(found?.pending === true ? found.event.ref : found?.record.ref, event.ref);
      if (found?.pending === true) t.equal(found.event.text, event.text, 'as it was given');
    }
    t.equal(await other.evidence.find(happened('never').ref), undefined);
  });

  t.test(`${name}: a decision that throws leaves no evidence`, async (t) => {
    const { store } = await open(t, backend);
    const evidence = [happened('lost')];
    const position = await store.replay(['a'], () => undefined);
    await t.rejects(
      store.commit({ streams: ['a'], position }, () => {
        throw new Error('no');
      }),
      { message: 'no' },
    );
    await isNowhere(t, store, evidence);
  });

  t.test(`${name}: a unit that adds what is there leaves no evidence`, async (t) => {
    const { store } = await open(t, backend);
    await store.kv.put('taken', 'v', null);
    const made: EvidenceEvent[] = [];
    const position = await store.replay(['a'], () => undefined);
    const code = await codeOf(() =>
      store.commit({ streams: ['a'], position }, () => {
        const event = happened('refused');
        made.push(event);
        return {
          kv: [{ op: 'add', key: 'taken', value: 'w', expiresAtMs: null }],
          evidence: [event],
        };
      }),
    );
    t.equal(code, 'write_refused');
    t.ok(made.length > 1, 'it started over');
    await isNowhere(t, store, made);
  });

  t.test(`${name}: a unit that starts over leaves the evidence of its last attempt`, async (t) => {
    const { store } = await open(t, backend);
    await store.kv.put('taken', 'v', null);
    const position = await store.replay(['a'], () => undefined);
    const made: EvidenceEvent[] = [];
    await store.commit({ streams: ['a'], position }, () => {
      const event = happened(`attempt ${made.length}`);
      made.push(event);
      const key = made.length === 1 ? 'taken' : 'free';
      return { kv: [{ op: 'add', key, value: 'w', expiresAtMs: null }], evidence: [event] };
    });
    await settle(store);
    t.same(names(await chain(store)), ['attempt 1']);
    t.equal(await store.evidence.find(made[0]!.ref), undefined);
  });

  t.test(`${name}: units at the same time are each whole and in their order`, async (t) => {
    const { store, another } = await open(t, backend);
    const stores = [store, await another()];
    const units = Array.from({ length: 24 }, (_, unit) => ['x', 'y', 'z'].map((n) => unit + n));
    await Promise.all(units.map((unit, n) => record(stores[n % 2]!, ...unit)));
    await settle(store);
    const found = names(await chain(store));
    t.equal(found.length, units.length * 3);
    for (const unit of units) {
      const first = found.indexOf(unit[0]!);
      t.same(found.slice(first, first + 3), unit, 'nothing of another between');
    }
    t.equal(verified(await chain(store)), 'verified');
  });
}

/** Only where events wait: elsewhere they are chained, and `pending` is 0 for ever. */
function registerOutbox(backend: ContractBackend): void {
  const { name } = backend;

  t.test(`${name}: what waits is counted, found with its text, and found chained`, async (t) => {
    const { store } = await open(t, backend);
    const isDeferred = store.evidence.mode === 'deferred';
    t.equal(await store.evidence.pending(), 0);
    const [first = '', second = ''] = await record(store, 'first', 'second');
    t.equal(await store.evidence.pending(), isDeferred ? 2 : 0);
    if (isDeferred) {
      t.equal((await store.evidence.head()).seq, -1);
      t.same(await store.evidence.page(-1, 10), []);
    }
    await store.evidence.drain(1);
    t.equal(await store.evidence.pending(), isDeferred ? 1 : 0);
    const chained = await store.evidence.find(first);
    t.equal(chained?.pending, false);
    t.equal(chained?.pending === false && chained.record.seq, 1, 'behind the genesis');
    t.equal((await store.evidence.find(second))?.pending, isDeferred);
  });

  t.test(`${name}: what cannot be chained stays, and so does all behind it`, async (t) => {
    const { store } = await open(t, backend);
    await record(store, 'good');
    await settle(store);
    const head = await store.evidence.head();
    const bad = { ref: happened('bad').ref, text: 'not an event' };
    const code = await codeOf(() => commit(store, { evidence: [happened('with it'), bad] }));
    if (store.evidence.mode === 'direct') {
      t.equal(code, 'evidence_unreadable');
      t.equal(await store.evidence.find(bad.ref), undefined);
    } else {
      t.equal(code, undefined);
      await record(store, 'behind');
      for (let again = 0; again < 2; again += 1) {
        t.equal(await codeOf(() => store.evidence.drain(10)), 'evidence_unreadable');
        t.equal(await store.evidence.pending(), 3, 'nothing left its place');
      }
      t.equal((await store.evidence.find(bad.ref))?.pending, true);
    }
    t.same(await store.evidence.head(), head);
  });
}

function registerDrains(backend: ContractBackend): void {
  const { name } = backend;

  t.test(`${name}: a drain takes as many as it is told, in order, and says the rest`, async (t) => {
    const { store } = await open(t, backend);
    const { evidence } = store;
    t.same(await evidence.drain(5), {
      kind: 'drained',
      events: 0,
      head: { seq: -1, hash: '' },
    });
    t.equal((await evidence.head()).seq, -1, 'nothing to chain makes no genesis');
    const all = numbered(2 * DRAIN_BATCH_MAX + 3);
    await record(store, ...all.slice(0, 150));
    await record(store, ...all.slice(150));
    if (evidence.mode === 'deferred') {
      const taken: number[] = [];
      for (const limit of [3, DRAIN_BATCH_MAX, DRAIN_BATCH_MAX, DRAIN_BATCH_MAX]) {
        const result = await evidence.drain(limit);
        if (result.kind !== 'drained') return t.fail('busy');
        taken.push(result.events);
        t.same(result.head, await evidence.head());
      }
      t.same(taken, [3, DRAIN_BATCH_MAX, DRAIN_BATCH_MAX, 0]);
    }
    t.same(names(await chain(store)), all);
    t.equal(verified(await chain(store)), 'verified');
  });
}

function registerStatements(backend: ContractBackend): void {
  const { name } = backend;

  t.test(`${name}: a statement follows on the head, past what waits`, async (t) => {
    const { store } = await open(t, backend);
    const { evidence } = store;
    const first = await evidence.append({ kind: 'checkpoint' });
    t.same(kinds(first), [KIND_GENESIS, KIND_CHECKPOINT]);
    const [waiting = ''] = await record(store, 'waits');
    const [second] = await evidence.append({ kind: 'checkpoint' });
    const isDeferred = evidence.mode === 'deferred';
    t.equal(second?.seq, isDeferred ? 2 : 3);
    t.equal((await evidence.find(waiting))?.pending, isDeferred);
    t.equal((await evidence.find(second?.ref ?? ''))?.pending, false);
    await settle(store);
    const records = await chain(store);
    t.equal(verified(records), 'verified');
    t.equal(kinds(records).filter((kind) => kind === KIND_GENESIS).length, 1);
  });

  t.test(`${name}: a statement that cannot be made changes nothing`, async (t) => {
    const { store } = await open(t, backend);
    await record(store, 'one');
    await settle(store);
    const head = await store.evidence.head();
    t.equal(await codeOf(() => store.evidence.append({ kind: 'none' })), 'evidence_invalid');
    t.equal(await codeOf(() => store.evidence.append({ kind: 'rotation' })), 'signing_key_missing');
    t.same(await store.evidence.head(), head);
    t.equal((await store.evidence.append({ kind: 'checkpoint' })).length, 1, 'nothing is locked');
  });
}

/** An append that found the head locked for too long is tried again by whoever asked. */
async function insisting<T>(attempt: () => Promise<T>, done: (result: T) => boolean): Promise<T> {
  for (;;) {
    try {
      const result = await attempt();
      if (done(result)) return result;
    } catch (error) {
      if ((error as { code?: string }).code !== 'store_unavailable') throw error;
    }
    await new Promise((resolve) => setImmediate(resolve));
  }
}

function registerRaces(backend: ContractBackend): void {
  const { name } = backend;

  t.test(`${name}: racing for the first record makes one genesis`, async (t) => {
    for (let round = 0; round < 3; round += 1) {
      const opened = await backend.open();
      try {
        const stores = [opened.store, await opened.another(), await opened.another()];
        await record(opened.store, 'first');
        await Promise.all([
          ...stores.map((store) => store.evidence.drain(10)),
          ...stores.map((store) =>
            insisting(
              () => store.evidence.append({ kind: 'checkpoint' }),
              () => true,
            ),
          ),
        ]);
        await settle(opened.store);
        const records = await chain(opened.store);
        t.equal(verified(records), 'verified');
        t.equal(kinds(records).filter((kind) => kind === KIND_GENESIS).length, 1);
        t.same(names(records), ['first']);
      } finally {
        await opened.close();
      }
    }
  });

  t.test(`${name}: drains, statements and writers at once make one chain`, async (t) => {
    const { store, another } = await open(t, backend);
    const stores = [store, await another(), await another()];
    const refs: string[] = [];
    let writing = true;
    let statements = 0;
    const drainers = stores.map(async ({ evidence }) => {
      while (writing) {
        await evidence.drain(5);
        await new Promise((resolve) => setImmediate(resolve));
      }
    });
    const speakers = stores.map(async ({ evidence }) => {
      for (let round = 0; round < RACING_ROUNDS; round += 1) {
        await insisting(
          () => evidence.append({ kind: 'checkpoint' }),
          () => true,
        );
        statements += 1;
      }
    });
    const writers = stores.map(async (own, n) => {
      for (let round = 0; round < RACING_ROUNDS; round += 1) {
        refs.push(...(await record(own, `${n}/${round}a`, `${n}/${round}b`)));
      }
    });
    await Promise.all([...speakers, ...writers]);
    writing = false;
    await Promise.all(drainers);
    await settle(store);
    const records = await chain(store);
    t.equal(verified(records), 'verified');
    t.equal(records.length, 1 + refs.length + statements);
    const seen = new Set(records.map(({ ref }) => ref));
    t.equal(seen.size, records.length);
    t.ok(refs.every((ref) => seen.has(ref)));
    for (const n of stores.keys()) {
      const own = names(records).filter((one) => one.startsWith(`${n}/`));
      const inOrder = numbered(RACING_ROUNDS).flatMap((r) => [`${n}/${r}a`, `${n}/${r}b`]);
      t.same(own, inOrder, 'in the order of whoever waited for each');
    }
  });
}

function registerReading(backend: ContractBackend): void {
  const { name } = backend;

  t.test(`${name}: the chain is read in pages, forwards and backwards`, async (t) => {
    const { store, another } = await open(t, backend);
    await record(store, ...numbered(20));
    await settle(store);
    const { evidence } = await another();
    const all = await chain(store);
    t.same(
      all.map(({ seq }) => seq),
      numbered(21).map(Number),
    );
    t.same(await evidence.head(), { seq: 20, hash: all[20]?.hash });
    t.equal((await evidence.find(all[3]!.ref))?.pending, false);
    t.same(await evidence.page(-1, 5), all.slice(0, 5));
    t.same(await evidence.page(17, 100), all.slice(18));
    t.same(await evidence.page(20, 5), []);
    t.same(await evidence.page(1_000, 5), []);
    t.same(await evidence.pageBack(21, 3), all.slice(18).reverse());
    t.same(await evidence.pageBack(1_000_000, 2), all.slice(19).reverse());
    t.same(await evidence.pageBack(2, 10), all.slice(0, 2).reverse());
    t.same(await evidence.pageBack(0, 10), []);
    for (const [at, { prevHash }] of all.entries()) {
      if (at > 0) t.equal(prevHash, all[at - 1]?.hash);
    }
  });

  t.test(`${name}: an event is found at every moment of its way into the chain`, async (t) => {
    const { store, another } = await open(t, backend);
    const { evidence } = await another();
    const refs = await record(store, ...numbered(60));
    let isSettled = false;
    let missed = 0;
    const looking = [0, 1, 2, 3].map(async (n) => {
      for (let at = n; !isSettled; at += 1) {
        const found = await evidence.find(refs[at % refs.length] ?? '');
        if (found === undefined) missed += 1;
        await new Promise((resolve) => setImmediate(resolve));
      }
    });
    for (let left = refs.length; left > 0; left -= 1) await store.evidence.drain(1);
    isSettled = true;
    await Promise.all(looking);
    t.equal(missed, 0);
  });

  t.test(`${name}: a store that is closed answers nothing about evidence`, async (t) => {
    const { another } = await open(t, backend);
    const closed = await another();
    await closed.close();
    const { evidence } = closed;
    t.equal(await codeOf(() => evidence.head()), 'store_unavailable');
    t.equal(await codeOf(() => evidence.find(happened('x').ref)), 'store_unavailable');
    t.equal(await codeOf(() => evidence.page(-1, 1)), 'store_unavailable');
    t.equal(await codeOf(() => evidence.append({ kind: 'checkpoint' })), 'store_unavailable');
  });
}

function registerRestored(backend: ContractBackend): void {
  const { name } = backend;

  t.test(`${name}: a restore takes evidence back with everything else`, async (t) => {
    const opened = await open(t, backend);
    if (opened.rememberForRestore === undefined) {
      t.comment(`${name} cannot be restored while it is open`);
      return;
    }
    const { store } = opened;
    await record(store, 'chained');
    await settle(store);
    const [waiting = ''] = await record(store, 'waits');
    const head = await store.evidence.head();
    const restore = await opened.rememberForRestore();
    await settle(store);
    const [lost = ''] = await record(store, 'lost');
    await settle(store);
    await restore();
    // Connections that the restore cut are found out by whoever asks first.
    await insisting(
      () => store.evidence.head(),
      () => true,
    );
    t.same(await store.evidence.head(), head);
    t.equal(await store.evidence.find(lost), undefined);
    t.equal((await store.evidence.find(waiting))?.pending, true, 'as it was');
    t.equal(await store.evidence.pending(), 1);
    const fresh = await opened.another();
    await record(fresh, 'afterwards');
    await settle(fresh);
    t.same(names(await chain(fresh)), ['chained', 'waits', 'afterwards']);
    t.equal(verified(await chain(fresh)), 'verified');
  });
}
