/** Contract: documents, counters, sightings, sweeping. */
import t from 'tap';
import type { DocumentChange, Store } from '../../src/storage/store.js';
import type { ContractBackend } from '../storage-contract.js';
import { LIFE_MS, pass, storeTimeMs, View } from './view.js';

const forever = null;

async function write(store: Store, documents: readonly DocumentChange[]): Promise<void> {
  const view = await View.replay(store, []);
  await view.commit({}, () => ({ documents }));
}

function put(
  kind: string,
  id: string,
  body: string,
  expiresAtMs: number | null = forever,
): DocumentChange {
  return { op: 'put', kind, id, body, expiresAtMs };
}

export function registerTables(backend: ContractBackend): void {
  registerDocuments(backend);
  registerCounters(backend);
  registerSightings(backend);
  registerSweep(backend);
}

function registerDocuments(backend: ContractBackend): void {
  const { name } = backend;

  t.test(`${name}: a document's version grows by one with each put`, async (t) => {
    const opened = await backend.open();
    t.teardown(() => opened.close());
    const other = await opened.another();
    const key = { kind: 'k', id: '1' };
    t.same(await opened.store.documents([key]), []);
    t.same(await opened.store.documents([]), []);
    await write(opened.store, [put('k', '1', 'one')]);
    await write(other, [put('k', '1', 'two'), put('other', '1', 'x')]);
    t.same(await opened.store.documents([key, { kind: 'k', id: 'no' }]), [
      { ...key, version: 2, body: 'two', expiresAtMs: forever },
    ]);
    await write(opened.store, [
      { op: 'delete', ...key },
      { op: 'delete', kind: 'k', id: 'no' },
    ]);
    t.same(await other.documents([key]), []);
    await write(opened.store, [put('k', '1', 'again')]);
    t.equal((await other.documents([key]))[0]?.version, 1, 'a new document');
    t.equal((await other.documents([{ kind: 'other', id: '1' }])).length, 1);
  });

  t.test(`${name}: documents list by kind in the order of their bytes, page by page`, async (t) => {
    const opened = await backend.open();
    t.teardown(() => opened.close());
    const ids = ['B', '_', 'a', 'a b', 'a-b', 'a/b', 'aB', 'ab', 'b', '~', '10', '9', 'é'];
    await write(opened.store, [...ids.map((id) => put('k', id, id)), put('ka', 'x', 'x')]);
    const listed: string[] = [];
    for (let after = ''; ; ) {
      const page = await opened.store.listDocuments('k', after, 4);
      t.ok(page.length <= 4);
      listed.push(...page.map((document) => document.id));
      const last = page.at(-1);
      if (last === undefined) break;
      after = last.id;
    }
    t.same(
      listed,
      ids.toSorted((a, b) => Buffer.compare(Buffer.from(a), Buffer.from(b))),
    );
    t.same(await opened.store.listDocuments('none', '', 4), []);
    t.same(
      (await opened.store.listDocuments('k', 'aA', 1)).map(({ id }) => id),
      ['aB'],
      'after an id that does not exist',
    );
  });

  t.test(`${name}: an expired document is never seen again, and a put starts anew`, async (t) => {
    const opened = await backend.open();
    t.teardown(() => opened.close());
    const { store } = opened;
    const soonMs = (await storeTimeMs(store)) + LIFE_MS;
    await write(store, [
      put('k', 'a', '1', soonMs),
      put('k', 'b', '1', soonMs),
      put('k', 'c', '1'),
      put('k', 'd', '1', soonMs),
    ]);
    await write(store, [put('k', 'b', '2', soonMs), put('k', 'd', '2')]);
    t.equal((await store.documents([{ kind: 'k', id: 'a' }]))[0]?.expiresAtMs, soonMs);
    t.equal((await store.listDocuments('k', '', 9)).length, 4);
    await pass(opened, LIFE_MS + 100);
    t.same(
      (await store.listDocuments('k', '', 9)).map(({ id }) => id),
      ['c', 'd'],
    );
    t.same(
      (await store.listDocuments('k', '', 1)).map(({ id }) => id),
      ['c'],
      'the limit counts live documents',
    );
    t.same(await store.documents([{ kind: 'k', id: 'a' }]), []);
    const view = await View.replay(store, []);
    await view.commit({ documents: [{ kind: 'k', id: 'a' }] }, (locked) => {
      t.equal(locked.documents.size, 0);
      return { documents: [put('k', 'b', '3')] };
    });
    t.match((await store.documents([{ kind: 'k', id: 'b' }]))[0], { version: 1, body: '3' });
  });
}

function registerCounters(backend: ContractBackend): void {
  const { name } = backend;

  t.test(`${name}: counters add in place and lose no concurrent increment`, async (t) => {
    const opened = await backend.open();
    t.teardown(() => opened.close());
    const stores = [opened.store, await opened.another()];
    const { position } = await View.replay(opened.store, []);
    await Promise.all(
      Array.from({ length: 20 }, (_, i) =>
        stores[i % 2]!.commit({ streams: [], position }, () => ({
          counters: [
            { key: i % 3 === 0 ? 'x' : 'y', delta: 2, expiresAtMs: forever },
            { key: i % 3 === 0 ? 'y' : 'x', delta: -1, expiresAtMs: forever },
          ],
        })),
      ),
    );
    const counted = await opened.store.counters(['x', 'y', 'absent']);
    t.same([counted.get('x'), counted.get('y'), counted.get('absent') ?? 0], [1, 19, 0]);
    t.equal((await opened.store.counters([])).size, 0);
  });

  t.test(`${name}: a counter keeps the expiry it was created with, then starts at 0`, async (t) => {
    const opened = await backend.open();
    t.teardown(() => opened.close());
    const { store } = opened;
    const view = await View.replay(store, []);
    const soonMs = (await storeTimeMs(store)) + LIFE_MS;
    const add = (delta: number, expiresAtMs: number | null): Promise<unknown> =>
      view.commit({}, () => ({ counters: [{ key: 'c', delta, expiresAtMs }] }));
    await add(5, soonMs);
    await add(1, forever);
    t.equal((await store.counters(['c'])).get('c'), 6);
    await pass(opened, LIFE_MS + 100);
    t.equal((await store.counters(['c'])).get('c') ?? 0, 0);
    await add(2, forever);
    t.equal((await store.counters(['c'])).get('c'), 2);
  });
}

function registerSightings(backend: ContractBackend): void {
  const { name } = backend;

  t.test(`${name}: a sighting is never moved backwards`, async (t) => {
    const opened = await backend.open();
    t.teardown(() => opened.close());
    const other = await opened.another();
    await opened.store.recordSightings(
      new Map([
        ['d1', 2_000],
        ['d2', 1_000],
      ]),
    );
    await other.recordSightings(
      new Map([
        ['d1', 1_000],
        ['d2', 3_000],
        ['d3', 1_790_000_000_000],
      ]),
    );
    await other.recordSightings(new Map());
    t.same(
      new Map(await opened.store.sightings(['d1', 'd2', 'd3', 'd4'])),
      new Map([
        ['d1', 2_000],
        ['d2', 3_000],
        ['d3', 1_790_000_000_000],
      ]),
    );
    t.equal((await opened.store.sightings([])).size, 0);
  });

  t.test(`${name}: concurrent sightings of the same devices neither fail nor lose`, async (t) => {
    const opened = await backend.open();
    t.teardown(() => opened.close());
    const stores = [opened.store, await opened.another()];
    const ids = Array.from({ length: 50 }, (_, i) => `d${i}`);
    await Promise.all(
      Array.from({ length: 10 }, (_, round) => {
        const order = round % 2 === 0 ? ids : ids.toReversed();
        return stores[round % 2]!.recordSightings(new Map(order.map((id) => [id, 1_000 + round])));
      }),
    );
    const seen = await opened.store.sightings(ids);
    t.ok(ids.every((id) => seen.get(id) === 1_009));
  });
}

function registerSweep(backend: ContractBackend): void {
  const { name } = backend;

  t.test(`${name}: sweeping removes what expired, at most so much at a time`, async (t) => {
    const opened = await backend.open();
    t.teardown(() => opened.close());
    const { store } = opened;
    const view = await View.replay(store, ['a']);
    const soonMs = (await storeTimeMs(store)) + LIFE_MS;
    const each = 10;
    const names = Array.from({ length: each }, (_, i) => `n${i}`);
    await view.commit({}, () => ({
      kv: [...names, 'live'].map((key) => ({
        op: 'put' as const,
        key,
        value: 'v',
        expiresAtMs: key === 'live' ? forever : soonMs,
      })),
      documents: [...names, 'live'].map((id) =>
        put('k', id, 'd', id === 'live' ? forever : soonMs),
      ),
      counters: [...names, 'live'].map((key) => ({
        key,
        delta: 1,
        expiresAtMs: key === 'live' ? forever : soonMs,
      })),
    }));
    t.equal(await store.sweep(100), 0, 'nothing has expired yet');
    await pass(opened, LIFE_MS + 100);
    let swept = 0;
    for (let last = -1; last !== 0; swept += last) {
      last = await store.sweep(4);
      t.ok(last <= 3 * 4, 'at most four of each');
    }
    t.equal(swept, 3 * each);
    t.equal((await store.kv.get(['live'])).size, 1);
    t.same(
      (await store.listDocuments('k', '', 99)).map(({ id }) => id),
      ['live'],
    );
    t.equal((await store.counters(['live'])).get('live'), 1);
  });
}
