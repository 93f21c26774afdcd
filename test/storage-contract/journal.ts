/** Contract: streams, ids, keys, replay, catch-up and paging. */
import t from 'tap';
import { CATCH_UP_PAGE_MAX, type StoredRecord } from '../../src/storage/store.js';
import type { ContractBackend } from '../storage-contract.js';
import { body, keyed, storeTimeMs, unkeyed, View } from './view.js';

/** In several commits, so that a page also ends inside one. */
const RECORDS_OVER_A_PAGE = CATCH_UP_PAGE_MAX + 2_500;
const COMMIT_RECORDS = 2_500;

export function registerJournal(backend: ContractBackend): void {
  const { name } = backend;

  t.test(`${name}: an empty stream replays nothing and starts at cursor 0`, async (t) => {
    const opened = await backend.open();
    t.teardown(() => opened.close());
    const view = await View.replay(opened.store, ['b', 'a']);
    t.equal(view.applied.length, 0);
    t.match(view.position.epoch, /^[0-9a-f]{16}$/);
    t.same(view.position.cursors, { a: { id: 0, batch: '' }, b: { id: 0, batch: '' } });
    const caught = await opened.store.catchUp(view.position);
    t.same(caught.records, []);
    t.equal(caught.more, false);
    t.same(caught.position.cursors, view.position.cursors);
  });

  t.test(`${name}: an append is seen by catch-up and by replay with the same id`, async (t) => {
    const opened = await backend.open();
    t.teardown(() => opened.close());
    const writer = await View.replay(opened.store, ['a']);
    const reader = await View.replay(await opened.another(), ['a']);
    const { records, position } = await writer.append(unkeyed('a', 1), keyed('a', 'k', 2));
    t.same(
      records.map((record) => [record.stream, record.key, record.body]),
      [
        ['a', null, body(1)],
        ['a', 'k', body(2)],
      ],
    );
    t.ok(records.every((record) => record.id > 0 && record.batch !== ''));
    t.ok(records[1]!.id > records[0]!.id, 'ids grow in the order of the appends');
    t.same(position.cursors['a'], { id: records[1]!.id, batch: records[1]!.batch });
    t.same(await reader.catchUp(), records);
    t.same(reader.position, position);
    const fresh = await View.replay(await opened.another(), ['a']);
    t.same(fresh.contents(), writer.contents());
    t.same(fresh.position, position);
  });

  t.test(`${name}: a writer's own commit is not caught up again`, async (t) => {
    const opened = await backend.open();
    t.teardown(() => opened.close());
    const view = await View.replay(opened.store, ['a']);
    await view.append(unkeyed('a', 1));
    t.same(await view.catchUp(), []);
  });

  t.test(`${name}: ids grow within a stream over commits of different stores`, async (t) => {
    const opened = await backend.open();
    t.teardown(() => opened.close());
    const one = await View.replay(opened.store, ['a']);
    const two = await View.replay(await opened.another(), ['a']);
    for (let round = 0; round < 5; round += 1) {
      await one.append(unkeyed('a', round));
      await two.append(unkeyed('a', -round));
    }
    const ids = two.applied.map((record) => record.id);
    t.same(
      ids,
      [...new Set(ids)].sort((a, b) => a - b),
    );
    t.equal(ids.length, 10);
  });

  t.test(`${name}: records of one key replace each other, unkeyed ones all stay`, async (t) => {
    const opened = await backend.open();
    t.teardown(() => opened.close());
    const view = await View.replay(opened.store, ['a', 'b']);
    await view.append(keyed('a', 'k', 1), unkeyed('a', 2), keyed('b', 'k', 3));
    await view.append(keyed('a', 'k', 4), unkeyed('a', 5));
    const replayed: StoredRecord[] = [];
    await opened.store.replay(['a', 'b'], (page) => void replayed.push(...page));
    const ofStream = (stream: string): string[] =>
      replayed.filter((record) => record.stream === stream).map((record) => record.body);
    t.same(ofStream('a'), [body(2), body(4), body(5)], 'in id order, the replaced one gone');
    t.same(ofStream('b'), [body(3)], 'the key of another stream is another key');
  });

  t.test(`${name}: of one key in a unit only the last append remains`, async (t) => {
    const opened = await backend.open();
    t.teardown(() => opened.close());
    const view = await View.replay(opened.store, ['a']);
    const reader = await View.replay(await opened.another(), ['a']);
    const { records, position } = await view.append(
      keyed('a', 'k', 1),
      keyed('a', 'other', 2),
      keyed('a', 'k', 3),
    );
    t.same(
      records.map((record) => record.body),
      [body(2), body(3)],
    );
    t.equal(position.cursors['a']?.id, records[1]!.id);
    t.same(await reader.catchUp(), records);
    t.same((await View.replay(opened.store, ['a'])).bodies('a'), [body(2), body(3)]);
  });

  t.test(`${name}: a view follows only its own streams`, async (t) => {
    const opened = await backend.open();
    t.teardown(() => opened.close());
    const all = await View.replay(opened.store, ['a', 'b', 'c']);
    const some = await View.replay(opened.store, ['a', 'c']);
    await all.append(unkeyed('a', 1), unkeyed('b', 2), unkeyed('c', 3));
    const caught = await some.catchUp();
    t.same(caught.map((record) => record.stream).sort(), ['a', 'c']);
    t.same(Object.keys(some.position.cursors).sort(), ['a', 'c']);
    t.same(some.position.cursors['a'], all.position.cursors['a']);
    t.same((await View.replay(opened.store, ['b'])).bodies('b'), [body(2)]);
  });

  t.test(`${name}: a catch-up from an older position brings what came after it`, async (t) => {
    const opened = await backend.open();
    t.teardown(() => opened.close());
    const view = await View.replay(opened.store, ['a']);
    const { position } = await view.append(unkeyed('a', 1));
    await view.append(unkeyed('a', 2));
    await view.append(unkeyed('a', 3));
    const caught = await opened.store.catchUp(position);
    t.same(
      caught.records.map((record) => record.body),
      [body(2), body(3)],
    );
  });

  t.test(`${name}: keys and bodies come back as they were written`, async (t) => {
    const opened = await backend.open();
    t.teardown(() => opened.close());
    const texts = [
      '',
      '"quoted" \\ \n\r\t',
      'tür/Ünïcode 🛡️ \u2028',
      `${'x'.repeat(100_000)}`,
      "'; --",
    ];
    const view = await View.replay(opened.store, ['a']);
    await view.append(...texts.map((text, i) => keyed('a', `${i} ${text.slice(0, 40)}`, text)));
    const fresh = await View.replay(await opened.another(), ['a']);
    t.same(
      fresh.bodies('a'),
      texts.map((text) => body(text)),
    );
    t.same(fresh.contents(), view.contents());
  });

  t.test(`${name}: catch-up pages, replay pages, and a unit lets everything through`, async (t) => {
    const opened = await backend.open();
    t.teardown(() => opened.close());
    const writer = await View.replay(opened.store, ['a', 'b']);
    const start = writer.position;
    for (let n = 0; n < RECORDS_OVER_A_PAGE; n += COMMIT_RECORDS) {
      await writer.append(
        ...Array.from({ length: COMMIT_RECORDS }, (_, i) =>
          unkeyed(i % 5 === 0 ? 'b' : 'a', n + i),
        ),
      );
    }
    const other = await opened.another();
    const first = await other.catchUp(start);
    t.equal(first.more, true, 'one page is not enough');
    t.ok(first.records.length > 0 && first.records.length <= CATCH_UP_PAGE_MAX);
    const reader = await View.replay(other, ['a', 'b']);
    t.same(reader.contents(), writer.contents(), 'replay hands over every page');

    let rounds = 0;
    const caught: StoredRecord[] = [];
    for (let position = start, more = true; more; rounds += 1) {
      const page = await other.catchUp(position);
      caught.push(...page.records);
      ({ position, more } = page);
    }
    t.ok(rounds >= 2 && rounds < 10, `${rounds} pages`);
    t.equal(caught.length, RECORDS_OVER_A_PAGE, 'nothing twice and nothing left out');
    for (const stream of ['a', 'b']) {
      const ids = caught.filter((record) => record.stream === stream).map((record) => record.id);
      t.ok(
        ids.every((id, i) => i === 0 || id > ids[i - 1]!),
        `${stream} is in id order`,
      );
    }

    let letThrough = 0;
    const committed = await other.commit({ streams: ['a'], position: start }, (locked) => {
      letThrough = locked.records.length;
      return { appends: [unkeyed('a', 'last')] };
    });
    t.equal(letThrough, RECORDS_OVER_A_PAGE, 'a decision never sees a part');
    t.same((await other.catchUp(committed.position)).records, []);
  });

  t.test(`${name}: the store's clock moves on and travels with a catch-up`, async (t) => {
    const opened = await backend.open();
    t.teardown(() => opened.close());
    const firstMs = await storeTimeMs(opened.store);
    t.ok(Number.isFinite(firstMs) && firstMs > 0);
    await opened.advance?.(1_000);
    const view = await View.replay(opened.store, ['a']);
    const { storeTimeMs: laterMs } = await view.append(unkeyed('a', 1));
    t.ok(laterMs >= firstMs + (opened.advance === undefined ? 0 : 1_000));
  });
}
