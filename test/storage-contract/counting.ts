/** Contract: counting outside a unit of work, which the failed-authentication limiter rests on. */
import t from 'tap';
import type { Counted, Store } from '../../src/storage/store.js';
import type { ContractBackend } from '../storage-contract.js';
import { LIFE_MS, pass, storeTimeMs, View } from './view.js';

const forever = null;

async function countOne(store: Store, key: string, ttlMs: number | null): Promise<Counted> {
  return (await store.count([{ key, delta: 1, ttlMs }])).get(key)!;
}

export function registerCounting(backend: ContractBackend): void {
  registerCounts(backend);
  registerConcurrentCounts(backend);
}

function registerCounts(backend: ContractBackend): void {
  const { name } = backend;

  t.test(`${name}: a count says what the counter came to and until when`, async (t) => {
    const opened = await backend.open();
    t.teardown(() => opened.close());
    const { store } = opened;
    const other = await opened.another();
    t.equal((await store.count([])).size, 0);
    const beforeMs = await storeTimeMs(store);
    const first = await store.count([
      { key: 'b', delta: 2, ttlMs: 60_000 },
      { key: 'a', delta: 1, ttlMs: forever },
    ]);
    const afterMs = await storeTimeMs(store);
    t.same(first.get('a'), { value: 1, expiresAtMs: null });
    const endMs = first.get('b')!.expiresAtMs!;
    t.ok(endMs >= beforeMs + 60_000 - 1 && endMs <= afterMs + 60_000 + 1, 'on the store’s clock');
    t.same(
      await other.count([
        { key: 'a', delta: 5, ttlMs: 1 },
        { key: 'b', delta: -1, ttlMs: forever },
        { key: 'c', delta: 0, ttlMs: forever },
      ]),
      new Map([
        ['a', { value: 6, expiresAtMs: null }],
        ['b', { value: 1, expiresAtMs: endMs }],
        ['c', { value: 0, expiresAtMs: null }],
      ]),
      'what lives keeps its end',
    );
    t.same(
      await store.counters(['a', 'b', 'c']),
      new Map([
        ['a', 6],
        ['b', 1],
        ['c', 0],
      ]),
    );
  });

  t.test(`${name}: counts of one key are added up, and the first gives the end`, async (t) => {
    const opened = await backend.open();
    t.teardown(() => opened.close());
    const { store } = opened;
    const counted = await store.count([
      { key: 'k', delta: 1, ttlMs: forever },
      { key: 'l', delta: 1, ttlMs: forever },
      { key: 'k', delta: 3, ttlMs: 1 },
    ]);
    t.same(
      counted,
      new Map([
        ['k', { value: 4, expiresAtMs: null }],
        ['l', { value: 1, expiresAtMs: null }],
      ]),
    );
  });

  t.test(`${name}: a count after the end starts anew, with a new end`, async (t) => {
    const opened = await backend.open();
    t.teardown(() => opened.close());
    const { store } = opened;
    const first = await countOne(store, 'k', LIFE_MS);
    const second = await countOne(store, 'k', LIFE_MS * 50);
    t.same(second, { value: 2, expiresAtMs: first.expiresAtMs });
    await pass(opened, LIFE_MS + 100);
    const anew = await countOne(store, 'k', LIFE_MS * 50);
    t.equal(anew.value, 1);
    t.ok(anew.expiresAtMs! >= first.expiresAtMs! + LIFE_MS * 49);
    t.equal((await countOne(store, 'k', 1)).value, 2);
  });

  t.test(`${name}: counts in and outside a unit of work meet in one counter`, async (t) => {
    const opened = await backend.open();
    t.teardown(() => opened.close());
    const { store } = opened;
    await countOne(store, 'k', forever);
    const view = await View.replay(store, []);
    await view.commit({}, () => ({ counters: [{ key: 'k', delta: 4, expiresAtMs: forever }] }));
    t.same(await countOne(store, 'k', 1), { value: 6, expiresAtMs: null });
  });
}

function registerConcurrentCounts(backend: ContractBackend): void {
  const { name } = backend;

  t.test(`${name}: of 20 who count at once each gets a number of its own`, async (t) => {
    const opened = await backend.open();
    t.teardown(() => opened.close());
    const stores = [opened.store, await opened.another()];
    const keys = Array.from({ length: 40 }, (_, i) => `k${i}`);
    const all = await Promise.all(
      Array.from({ length: 20 }, (_, i) => {
        const order = i % 3 === 0 ? keys : keys.toReversed();
        return stores[i % 2]!.count(order.map((key) => ({ key, delta: 1, ttlMs: 60_000 })));
      }),
    );
    const expected = Array.from({ length: 20 }, (_, i) => i + 1);
    for (const key of keys) {
      const values = all.map((counted) => counted.get(key)!.value).sort((a, b) => a - b);
      t.same(values, expected, key);
    }
    t.equal(new Set(all.map((counted) => counted.get('k0')!.expiresAtMs)).size, 1, 'one end');
  });

  t.test(`${name}: counts that meet at the end of a counter are never lost`, async (t) => {
    const opened = await backend.open();
    t.teardown(() => opened.close());
    const stores = [opened.store, await opened.another()];
    const ended = new Map<number, number[]>();
    const count = async (store: Store): Promise<void> => {
      for (let i = 0; i < 60; i += 1) {
        const { value, expiresAtMs } = await countOne(store, 'k', 15);
        ended.set(expiresAtMs!, [...(ended.get(expiresAtMs!) ?? []), value]);
        await opened.advance?.(1);
      }
    };
    await Promise.all(Array.from({ length: 8 }, (_, i) => count(stores[i % 2]!)));
    t.ok(ended.size > 1, `${ended.size} counters one after the other`);
    for (const [endMs, values] of ended) {
      t.same(
        values.sort((a, b) => a - b),
        values.map((_, i) => i + 1),
        `the counter that ended at ${endMs}`,
      );
    }
    t.equal([...ended.values()].flat().length, 8 * 60);
  });
}
