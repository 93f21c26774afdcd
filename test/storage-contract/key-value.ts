/** Contract: values with an expiry, locks and raises, each one atomic statement. */
import t from 'tap';
import type { Store } from '../../src/storage/store.js';
import type { ContractBackend } from '../storage-contract.js';
import { LIFE_MS, pass, storeTimeMs, View } from './view.js';

const forever = null;
const CONCURRENT_CALLERS = 20;

async function read(store: Store, key: string): Promise<string | undefined> {
  return (await store.kv.get([key])).get(key)?.value;
}

export function registerKeyValue(backend: ContractBackend): void {
  registerValues(backend);
  registerExpiry(backend);
  registerLocks(backend);
  registerRaise(backend);
}

function registerValues(backend: ContractBackend): void {
  const { name } = backend;

  t.test(`${name}: a value is put, read by many, replaced and deleted`, async (t) => {
    const opened = await backend.open();
    t.teardown(() => opened.close());
    const other = await opened.another();
    const { kv } = opened.store;
    await kv.put('a', '1', forever);
    await kv.put('b/"Ü 🛡️', "2\n'", forever);
    t.same(
      new Map(await other.kv.get(['a', 'b/"Ü 🛡️', 'c', 'a'])),
      new Map([
        ['a', { value: '1', expiresAtMs: forever }],
        ['b/"Ü 🛡️', { value: "2\n'", expiresAtMs: forever }],
      ]),
    );
    t.equal((await kv.get([])).size, 0);
    await other.kv.put('a', '3', forever);
    t.equal(await read(opened.store, 'a'), '3');
    await kv.delete('a');
    await kv.delete('never there');
    t.equal(await read(other, 'a'), undefined);
  });

  t.test(`${name}: add refuses a live row and says so`, async (t) => {
    const opened = await backend.open();
    t.teardown(() => opened.close());
    const { kv } = opened.store;
    t.equal(await kv.add('k', '1', forever), true);
    t.equal(await kv.add('k', '2', forever), false);
    t.equal(await read(opened.store, 'k'), '1');
    await kv.delete('k');
    t.equal(await kv.add('k', '3', forever), true);
  });

  t.test(`${name}: of concurrent adders exactly one adds`, async (t) => {
    const opened = await backend.open();
    t.teardown(() => opened.close());
    const stores = [opened.store, await opened.another()];
    const added = await Promise.all(
      Array.from({ length: CONCURRENT_CALLERS }, (_, i) =>
        stores[i % 2]!.kv.add('k', String(i), forever),
      ),
    );
    t.equal(added.filter(Boolean).length, 1);
    t.equal(await read(opened.store, 'k'), String(added.indexOf(true)));
  });

  t.test(`${name}: of concurrent takers exactly one gets the value`, async (t) => {
    const opened = await backend.open();
    t.teardown(() => opened.close());
    const stores = [opened.store, await opened.another()];
    await opened.store.kv.put('token', 'secret', forever);
    const taken = await Promise.all(
      Array.from({ length: CONCURRENT_CALLERS }, (_, i) => stores[i % 2]!.kv.take('token')),
    );
    t.same(
      taken.filter((value) => value !== undefined),
      ['secret'],
    );
    t.equal(await opened.store.kv.take('token'), undefined);
    t.equal(await read(stores[1]!, 'token'), undefined);
  });
}

function registerExpiry(backend: ContractBackend): void {
  const { name } = backend;

  t.test(`${name}: an expired value is never seen again, by any call`, async (t) => {
    const opened = await backend.open();
    t.teardown(() => opened.close());
    const { kv } = opened.store;
    const beforeMs = await storeTimeMs(opened.store);
    for (const key of ['get', 'take', 'add', 'raise', 'unit', 'unit add']) {
      await kv.put(key, '9', LIFE_MS);
    }
    await kv.put('lasting', 'l', forever);
    const live = (await kv.get(['get'])).get('get');
    t.equal(live?.value, '9');
    const expiresAtMs = live?.expiresAtMs ?? 0;
    t.ok(expiresAtMs >= beforeMs + LIFE_MS, 'judged on the store’s clock');
    await pass(opened, LIFE_MS + 100);
    t.equal((await kv.get(['get'])).size, 0);
    t.equal(await kv.take('take'), undefined);
    t.equal(await kv.add('add', '2', forever), true);
    t.equal(await read(opened.store, 'add'), '2');
    t.equal(await kv.raise('raise', 1, forever), 1, 'a raise starts anew');
    const view = await View.replay(opened.store, ['a']);
    await view.commit({ kv: ['unit'] }, (locked) => {
      t.equal(locked.kv.size, 0);
      return { kv: [{ op: 'add', key: 'unit add', value: '2', expiresAtMs: forever }] };
    });
    t.equal(await read(opened.store, 'unit add'), '2');
    t.equal(await read(opened.store, 'lasting'), 'l');
  });

  t.test(`${name}: a put gives a value a new life`, async (t) => {
    const opened = await backend.open();
    t.teardown(() => opened.close());
    const { kv } = opened.store;
    await kv.put('longer', '1', LIFE_MS);
    await kv.put('longer', '2', forever);
    await kv.put('shorter', '1', forever);
    await kv.put('shorter', '2', LIFE_MS);
    await pass(opened, LIFE_MS + 100);
    t.equal(await read(opened.store, 'longer'), '2');
    t.equal(await read(opened.store, 'shorter'), undefined);
  });
}

function registerLocks(backend: ContractBackend): void {
  const { name } = backend;

  t.test(`${name}: a lock has one owner, who may renew it and alone may free it`, async (t) => {
    const opened = await backend.open();
    t.teardown(() => opened.close());
    const { kv } = opened.store;
    const other = (await opened.another()).kv;
    t.equal(await kv.tryLock('lock', 'one', 60_000), true);
    t.equal(await other.tryLock('lock', 'two', 60_000), false);
    t.equal(await kv.tryLock('lock', 'one', 90_000), true, 'the owner renews');
    t.equal(await other.unlock('lock', 'two'), false);
    t.equal(await other.tryLock('lock', 'two', 60_000), false, 'and nothing was freed');
    t.equal(await kv.unlock('lock', 'one'), true);
    t.equal(await kv.unlock('lock', 'one'), false);
    t.equal(await other.tryLock('lock', 'two', 60_000), true);
  });

  t.test(`${name}: of concurrent lockers exactly one gets the lock`, async (t) => {
    const opened = await backend.open();
    t.teardown(() => opened.close());
    const stores = [opened.store, await opened.another()];
    const got = await Promise.all(
      Array.from({ length: CONCURRENT_CALLERS }, (_, i) =>
        stores[i % 2]!.kv.tryLock('lock', `owner ${i}`, 60_000),
      ),
    );
    t.equal(got.filter(Boolean).length, 1);
  });

  t.test(`${name}: an expired lock is free, and its former owner no longer has it`, async (t) => {
    const opened = await backend.open();
    t.teardown(() => opened.close());
    const { kv } = opened.store;
    t.equal(await kv.tryLock('lock', 'one', LIFE_MS), true);
    t.equal(await kv.tryLock('idle', 'one', LIFE_MS), true);
    await pass(opened, LIFE_MS + 100);
    t.equal(await kv.unlock('idle', 'one'), false);
    t.equal(await kv.tryLock('lock', 'two', 60_000), true);
    t.equal(await kv.unlock('lock', 'one'), false);
    t.equal(await kv.tryLock('lock', 'one', 60_000), false);
  });
}

function registerRaise(backend: ContractBackend): void {
  const { name } = backend;

  t.test(`${name}: a raise never moves a number backwards`, async (t) => {
    const opened = await backend.open();
    t.teardown(() => opened.close());
    const other = (await opened.another()).kv;
    t.equal(await opened.store.kv.raise('n', 5, forever), 5);
    t.equal(await other.raise('n', 3, forever), 5);
    t.equal(await other.raise('n', 1_790_000_000_000, forever), 1_790_000_000_000);
    t.equal(await read(opened.store, 'n'), '1790000000000');
    t.equal(
      await opened.store.kv.raise('n', 999, forever),
      1_790_000_000_000,
      'numbers are compared, not texts',
    );
    const raised = await Promise.all(
      Array.from({ length: CONCURRENT_CALLERS }, (_, i) =>
        (i % 2 === 0 ? opened.store.kv : other).raise('m', (i * 7) % CONCURRENT_CALLERS, forever),
      ),
    );
    t.equal(Math.max(...raised), CONCURRENT_CALLERS - 1);
    t.equal(await read(opened.store, 'm'), String(CONCURRENT_CALLERS - 1));
  });

  t.test(`${name}: a raise never shortens a life, in a unit neither`, async (t) => {
    const opened = await backend.open();
    t.teardown(() => opened.close());
    const { kv } = opened.store;
    const view = await View.replay(opened.store, ['a']);
    const soonMs = (await storeTimeMs(opened.store)) + LIFE_MS;
    await kv.raise('lasting', 5, forever);
    await kv.raise('lasting', 6, LIFE_MS);
    await kv.raise('unit', 5, forever);
    await view.commit({}, () => ({
      kv: [{ op: 'raise', key: 'unit', to: 4, expiresAtMs: soonMs }],
    }));
    await kv.raise('ending', 5, LIFE_MS);
    await kv.raise('lengthened', 5, LIFE_MS);
    await kv.raise('lengthened', 1, forever);
    await pass(opened, LIFE_MS + 100);
    const values = await kv.get(['lasting', 'unit', 'ending', 'lengthened']);
    t.same([...values].map(([key, { value }]) => [key, value]).sort(), [
      ['lasting', '6'],
      ['lengthened', '5'],
      ['unit', '5'],
    ]);
  });
}
