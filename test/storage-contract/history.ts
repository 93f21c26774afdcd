/** Contract: the epoch, a history that changed, and the end of a store. */
import t from 'tap';
import type { Position } from '../../src/storage/store.js';
import type { ContractBackend } from '../storage-contract.js';
import { body, codeOf, unkeyed, View } from './view.js';

/** The position as one of a longer history, which the store has lost. */
function ahead(position: Position, stream: string): Position {
  const id = (position.cursors[stream]?.id ?? 0) + 1_000_000;
  return { ...position, cursors: { ...position.cursors, [stream]: { id, batch: 'f'.repeat(16) } } };
}

export function registerHistory(backend: ContractBackend): void {
  registerPositions(backend);
  registerRestore(backend);
  registerClose(backend);
}

function registerPositions(backend: ContractBackend): void {
  const { name } = backend;

  t.test(`${name}: every store of the same data has one epoch`, async (t) => {
    const opened = await backend.open();
    t.teardown(() => opened.close());
    const one = await View.replay(opened.store, ['a']);
    const two = await View.replay(await opened.another(), ['a']);
    t.equal(one.position.epoch, two.position.epoch);
  });

  t.test(
    `${name}: a position of another epoch is history_changed, and writes nothing`,
    async (t) => {
      const opened = await backend.open();
      t.teardown(() => opened.close());
      const view = await View.replay(opened.store, ['a']);
      const foreign = { ...view.position, epoch: '0123456789abcdef' };
      t.equal(await codeOf(() => opened.store.catchUp(foreign)), 'history_changed');
      let decided = false;
      const code = await codeOf(() =>
        opened.store.commit({ streams: ['a'], position: foreign }, () => {
          decided = true;
          return { appends: [unkeyed('a', 1)] };
        }),
      );
      t.equal(code, 'history_changed');
      t.equal(decided, false);
      t.same(await view.catchUp(), []);
    },
  );

  t.test(`${name}: a cursor past the end of its stream is history_changed`, async (t) => {
    const opened = await backend.open();
    t.teardown(() => opened.close());
    const view = await View.replay(opened.store, ['a', 'b']);
    t.equal(
      await codeOf(() => opened.store.catchUp(ahead(view.position, 'a'))),
      'history_changed',
      'of an empty stream too',
    );
    await view.append(unkeyed('a', 1));
    const lost = ahead(view.position, 'a');
    t.equal(await codeOf(() => opened.store.catchUp(lost)), 'history_changed');
    t.equal(
      await codeOf(() => opened.store.commit({ streams: ['a'], position: lost }, () => ({}))),
      'history_changed',
    );
    t.equal(
      await codeOf(() => opened.store.commit({ streams: ['b'], position: lost }, () => ({}))),
      'history_changed',
      'whatever stream is locked',
    );
    await view.append(unkeyed('a', 2));
  });

  t.test(`${name}: a newest record of another batch is history_changed`, async (t) => {
    const opened = await backend.open();
    t.teardown(() => opened.close());
    const view = await View.replay(opened.store, ['a']);
    await view.append(unkeyed('a', 1));
    const { id } = view.position.cursors['a']!;
    const other = { ...view.position, cursors: { a: { id, batch: 'f'.repeat(16) } } };
    t.equal(await codeOf(() => opened.store.catchUp(other)), 'history_changed');
    t.equal(
      await codeOf(() => opened.store.commit({ streams: ['a'], position: other }, () => ({}))),
      'history_changed',
    );
  });

  t.test(`${name}: the epoch is replaced once, by whoever comes first`, async (t) => {
    const opened = await backend.open();
    t.teardown(() => opened.close());
    const stores = [opened.store, await opened.another()] as const;
    const view = await View.replay(stores[0], ['a']);
    await view.append(unkeyed('a', 1));
    const old = view.position;
    t.equal(await stores[0].replaceEpoch('0123456789abcdef'), old.epoch, 'not the one in force');
    for (const store of stores) {
      t.equal(await codeOf(() => store.catchUp(ahead(old, 'a'))), 'history_changed');
    }
    const [first, second] = await Promise.all(stores.map((store) => store.replaceEpoch(old.epoch)));
    t.equal(first, second);
    t.match(first, /^[0-9a-f]{16}$/);
    t.not(first, old.epoch);
    for (const store of stores) {
      t.equal(await codeOf(() => store.catchUp(old)), 'history_changed');
      t.equal(
        await codeOf(() => store.commit({ streams: ['a'], position: old }, () => ({}))),
        'history_changed',
      );
      const again = await View.replay(store, ['a']);
      t.equal(again.position.epoch, first);
      t.ok(again.bodies('a').includes(body(1)), 'the records stay');
      await again.append(unkeyed('a', 2));
      t.equal(await store.replaceEpoch(old.epoch), first, 'a late caller changes nothing');
      t.same(await again.catchUp(), []);
    }
  });
}

function registerRestore(backend: ContractBackend): void {
  const { name } = backend;

  t.test(`${name}: a restore is noticed even when others wrote past the cursor`, async (t) => {
    const opened = await backend.open();
    t.teardown(() => opened.close());
    if (opened.rememberForRestore === undefined) {
      t.comment(`${name} cannot be restored while it is open`);
      return;
    }
    const two = await View.replay(await opened.another(), ['a']);
    const one = await View.replay(opened.store, ['a']);
    await one.append(unkeyed('a', 'kept'));
    await two.catchUp();
    const restore = await opened.rememberForRestore();
    await one.append(unkeyed('a', 'lost'));
    const lost = one.position;
    await restore();
    t.equal(await codeOf(() => opened.store.catchUp(lost)), 'history_changed');
    t.same(await two.catchUp(), [], 'a position from before stays good');
    for (let n = 0; n < 5; n += 1) await two.append(unkeyed('a', n));
    t.equal(await codeOf(() => opened.store.catchUp(lost)), 'history_changed');
    t.equal(
      await codeOf(() => opened.store.commit({ streams: ['a'], position: lost }, () => ({}))),
      'history_changed',
    );
    const again = await View.replay(opened.store, ['a']);
    t.same(again.bodies('a'), [body('kept'), ...[0, 1, 2, 3, 4].map((n) => body(n))]);
  });
}

function registerClose(backend: ContractBackend): void {
  const { name } = backend;

  t.test(`${name}: close is idempotent and leaves the data to the other stores`, async (t) => {
    const opened = await backend.open();
    t.teardown(() => opened.close());
    const store = await opened.another();
    const view = await View.replay(store, ['a']);
    await view.append(unkeyed('a', 1));
    await Promise.all([store.close(), store.close()]);
    await store.close();
    t.same((await View.replay(opened.store, ['a'])).bodies('a'), [body(1)]);
  });

  t.test(`${name}: a closed store answers store_unavailable, pending calls too`, async (t) => {
    const opened = await backend.open();
    t.teardown(() => opened.close());
    const store = await opened.another();
    const { position } = await View.replay(store, ['a']);
    const pending = Promise.all([
      ...Array.from({ length: 5 }, (_, i) => codeOf(() => store.kv.put(`k${i}`, 'v', null))),
      ...Array.from({ length: 5 }, (_, i) =>
        codeOf(() =>
          store.commit({ streams: ['a'], position }, () => ({ appends: [unkeyed('a', i)] })),
        ),
      ),
    ]);
    await store.close();
    for (const code of await pending) {
      t.ok([undefined, 'store_unavailable', 'outcome_unknown'].includes(code), String(code));
    }
    t.equal(await codeOf(() => store.catchUp(position)), 'store_unavailable');
    t.equal(await codeOf(() => store.replay(['a'], () => undefined)), 'store_unavailable');
    t.equal(await codeOf(() => store.kv.get(['k'])), 'store_unavailable');
    t.equal(
      await codeOf(() => store.commit({ streams: ['a'], position }, () => ({}))),
      'store_unavailable',
    );
    const view = await View.replay(opened.store, ['a']);
    await view.append(unkeyed('a', 'free'));
  });
}
