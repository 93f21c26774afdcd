/** Contract: the unit of work: lock, let through, decide, write all or nothing. */
import t from 'tap';
import { FORMAT_NEWEST, FORMAT_OLDEST } from '../../src/storage/envelope.js';
import { COMMIT_ATTEMPTS_MAX, documentName } from '../../src/storage/store.js';
import type { ContractBackend } from '../storage-contract.js';
import { body, codeOf, keyed, unkeyed, View } from './view.js';

const forever = null;

export function registerUnitOfWork(backend: ContractBackend): void {
  const { name } = backend;

  t.test(`${name}: foreign records are let through before the decision`, async (t) => {
    const opened = await backend.open();
    t.teardown(() => opened.close());
    const one = await View.replay(opened.store, ['a', 'b']);
    const two = await View.replay(await opened.another(), ['a', 'b']);
    await one.append(unkeyed('a', 1), unkeyed('b', 2));
    await one.append(unkeyed('a', 3));
    let calls = 0;
    const committed = await two.commit({ streams: ['a'] }, (locked) => {
      calls += 1;
      t.same(
        locked.records.filter((r) => r.stream === 'a').map((r) => r.body),
        [body(1), body(3)],
      );
      t.same(
        locked.records.filter((r) => r.stream === 'b').map((r) => r.body),
        [body(2)],
        'of every followed stream, locked or not',
      );
      t.same(locked.position.cursors, one.position.cursors);
      t.ok(locked.writeFormat >= FORMAT_OLDEST && locked.writeFormat <= FORMAT_NEWEST);
      t.ok(locked.storeTimeMs > 0);
      return { appends: [unkeyed('a', 4)] };
    });
    t.equal(calls, 1);
    t.equal(committed.records.length, 1, 'only the own records are returned');
    t.ok(committed.records[0]!.id > one.position.cursors['a']!.id);
    t.same(committed.position.cursors['b'], one.position.cursors['b']);
    t.same(await two.catchUp(), []);
    await one.catchUp();
    t.same(one.contents(), two.contents());
  });

  t.test(`${name}: a decision that throws writes nothing and is rethrown`, async (t) => {
    const opened = await backend.open();
    t.teardown(() => opened.close());
    const view = await View.replay(opened.store, ['a']);
    const before = view.position;
    const refusal = new Error('not today');
    await t.rejects(
      view.commit({}, () => {
        throw refusal;
      }),
      refusal,
    );
    t.same((await opened.store.catchUp(before)).records, []);
    await view.append(unkeyed('a', 1));
    t.same(view.bodies('a'), [body(1)], 'and the lock is free again');
  });

  t.test(`${name}: an empty decision is valid and moves past the foreign records`, async (t) => {
    const opened = await backend.open();
    t.teardown(() => opened.close());
    const one = await View.replay(opened.store, ['a']);
    const two = await View.replay(await opened.another(), ['a']);
    await one.append(unkeyed('a', 1));
    const committed = await two.commit({}, () => ({}));
    t.same(committed.records, []);
    t.same(committed.position.cursors, one.position.cursors);
    t.same(two.contents(), one.contents());
  });

  t.test(`${name}: journal, values, documents and counters commit together`, async (t) => {
    const opened = await backend.open();
    t.teardown(() => opened.close());
    const view = await View.replay(opened.store, ['a']);
    await opened.store.kv.put('gone', 'x', forever);
    await view.commit({}, () => ({
      appends: [unkeyed('a', 1)],
      kv: [
        { op: 'put', key: 'put', value: 'p', expiresAtMs: forever },
        { op: 'add', key: 'add', value: 'a', expiresAtMs: forever },
        { op: 'raise', key: 'raise', to: 7, expiresAtMs: forever },
        { op: 'delete', key: 'gone' },
      ],
      documents: [{ op: 'put', kind: 'doc', id: '1', body: 'd', expiresAtMs: forever }],
      counters: [{ key: 'count', delta: 3, expiresAtMs: forever }],
    }));
    const other = await opened.another();
    const values = await other.kv.get(['put', 'add', 'raise', 'gone']);
    t.same([...values].map(([key, entry]) => [key, entry.value]).sort(), [
      ['add', 'a'],
      ['put', 'p'],
      ['raise', '7'],
    ]);
    t.same(await other.documents([{ kind: 'doc', id: '1' }]), [
      { kind: 'doc', id: '1', version: 1, body: 'd', expiresAtMs: forever },
    ]);
    t.equal((await other.counters(['count'])).get('count'), 3);
  });

  t.test(`${name}: an add on a live row starts the unit over, nothing half written`, async (t) => {
    const opened = await backend.open();
    t.teardown(() => opened.close());
    const one = await View.replay(opened.store, ['a']);
    const two = await View.replay(await opened.another(), ['a']);
    await one.append(unkeyed('a', 'foreign'));
    await opened.store.kv.put('taken', 'by another', forever);
    let calls = 0;
    const committed = await two.commit({}, (locked) => {
      calls += 1;
      t.same(
        locked.records.map((r) => r.body),
        [body('foreign')],
        'again from the start',
      );
      const key = calls === 1 ? 'taken' : 'free';
      return {
        appends: [unkeyed('a', `try ${calls}`)],
        kv: [
          { op: 'put', key: `side ${calls}`, value: '', expiresAtMs: forever },
          { op: 'add', key, value: 'mine', expiresAtMs: forever },
        ],
        documents: [{ op: 'put', kind: 'd', id: `${calls}`, body: '', expiresAtMs: forever }],
        counters: [{ key: 'tries', delta: 1, expiresAtMs: forever }],
      };
    });
    t.equal(calls, 2);
    t.same(
      committed.records.map((record) => record.body),
      [body('try 2')],
    );
    await one.catchUp();
    t.same(one.contents(), two.contents());
    const values = await opened.store.kv.get(['taken', 'free', 'side 1', 'side 2']);
    t.same([...values.keys()].sort(), ['free', 'side 2', 'taken']);
    t.equal(values.get('taken')?.value, 'by another');
    t.same(
      (await opened.store.listDocuments('d', '', 9)).map((found) => found.id),
      ['2'],
    );
    t.equal((await opened.store.counters(['tries'])).get('tries'), 1);
  });

  t.test(`${name}: an add that keeps meeting a live row is write_refused`, async (t) => {
    const opened = await backend.open();
    t.teardown(() => opened.close());
    const view = await View.replay(opened.store, ['a']);
    await opened.store.kv.put('taken', 'by another', forever);
    let calls = 0;
    const code = await codeOf(() =>
      view.commit({}, () => {
        calls += 1;
        return {
          appends: [unkeyed('a', 1)],
          kv: [{ op: 'add', key: 'taken', value: 'mine', expiresAtMs: forever }],
        };
      }),
    );
    t.equal(code, 'write_refused');
    t.equal(calls, COMMIT_ATTEMPTS_MAX);
    t.same(await view.catchUp(), [], 'nothing was written');
    t.equal((await opened.store.kv.get(['taken'])).get('taken')?.value, 'by another');
    await view.append(unkeyed('a', 2));
  });

  t.test(`${name}: a unit reads the values and documents it asks for, live ones`, async (t) => {
    const opened = await backend.open();
    t.teardown(() => opened.close());
    const view = await View.replay(opened.store, ['a']);
    await opened.store.kv.put('k', 'v', forever);
    await view.commit({}, () => ({
      documents: [{ op: 'put', kind: 'doc', id: 'x/y', body: 'd', expiresAtMs: forever }],
    }));
    const here = { kind: 'doc', id: 'x/y' };
    await view.commit(
      { kv: ['k', 'absent'], documents: [here, { kind: 'doc', id: 'no' }] },
      (locked) => {
        t.same([...locked.kv], [['k', { value: 'v', expiresAtMs: forever }]]);
        t.same([...locked.documents.keys()], [documentName(here)]);
        t.equal(locked.documents.get(documentName(here))?.version, 1);
        return {};
      },
    );
  });

  t.test(`${name}: changes of one key apply in the order given`, async (t) => {
    const opened = await backend.open();
    t.teardown(() => opened.close());
    const view = await View.replay(opened.store, ['a']);
    const document = { kind: 'doc', id: '1', expiresAtMs: forever };
    await view.commit({}, () => ({
      kv: [
        { op: 'put', key: 'k', value: '1', expiresAtMs: forever },
        { op: 'put', key: 'other', value: 'o', expiresAtMs: forever },
        { op: 'delete', key: 'k' },
        { op: 'add', key: 'k', value: '2', expiresAtMs: forever },
        { op: 'raise', key: 'n', to: 5, expiresAtMs: forever },
        { op: 'raise', key: 'n', to: 3, expiresAtMs: forever },
        { op: 'put', key: 'last', value: 'l', expiresAtMs: forever },
        { op: 'delete', key: 'last' },
      ],
      documents: [
        { op: 'put', body: '1', ...document },
        { op: 'put', body: '2', ...document },
        { op: 'put', body: '1', ...document, id: '2' },
        { op: 'delete', kind: 'doc', id: '2' },
      ],
      counters: [
        { key: 'c', delta: 2, expiresAtMs: forever },
        { key: 'c', delta: 5, expiresAtMs: forever },
        { key: 'c', delta: -1, expiresAtMs: forever },
      ],
    }));
    const values = await opened.store.kv.get(['k', 'other', 'n', 'last']);
    t.same([...values].map(([key, { value }]) => [key, value]).sort(), [
      ['k', '2'],
      ['n', '5'],
      ['other', 'o'],
    ]);
    const [found, ...rest] = await opened.store.documents([document, { kind: 'doc', id: '2' }]);
    t.same([found?.version, found?.body, rest.length], [2, '2', 0]);
    t.equal((await opened.store.counters(['c'])).get('c'), 6);
  });

  t.test(`${name}: a unit needs no stream`, async (t) => {
    const opened = await backend.open();
    t.teardown(() => opened.close());
    const view = await View.replay(opened.store, []);
    await view.commit({ kv: ['k'] }, () => ({
      kv: [{ op: 'add', key: 'k', value: '1', expiresAtMs: forever }],
    }));
    t.equal((await opened.store.kv.get(['k'])).get('k')?.value, '1');
  });

  t.test(`${name}: units that read one existing row go one after the other`, async (t) => {
    const opened = await backend.open();
    t.teardown(() => opened.close());
    const stores = [opened.store, await opened.another()];
    const document = { kind: 'doc', id: 'n' };
    const first = await View.replay(opened.store, []);
    await first.commit({}, () => ({
      kv: [{ op: 'put', key: 'n', value: '0', expiresAtMs: forever }],
      documents: [{ op: 'put', ...document, body: '0', expiresAtMs: forever }],
    }));
    const { position } = first;
    await Promise.all(
      Array.from({ length: 20 }, (_, i) =>
        stores[i % 2]!.commit({ streams: [], position, kv: ['n'] }, (locked) => {
          const value = String(Number(locked.kv.get('n')?.value) + 1);
          return { kv: [{ op: 'put', key: 'n', value, expiresAtMs: forever }] };
        }),
      ),
    );
    t.equal((await opened.store.kv.get(['n'])).get('n')?.value, '20');
    await Promise.all(
      Array.from({ length: 20 }, (_, i) =>
        stores[i % 2]!.commit({ streams: [], position, documents: [document] }, (locked) => {
          const body = String(Number(locked.documents.get(documentName(document))?.body) + 1);
          return { documents: [{ op: 'put', ...document, body, expiresAtMs: forever }] };
        }),
      ),
    );
    const [found] = await opened.store.documents([document]);
    t.same([found?.body, found?.version], ['20', 21]);
  });

  t.test(`${name}: a second unit waits for the first and sees what it wrote`, async (t) => {
    const opened = await backend.open();
    t.teardown(() => opened.close());
    const other = await opened.another();
    const { position } = await View.replay(opened.store, ['total']);
    const totals = await Promise.all(
      Array.from({ length: 20 }, async (_, i) => {
        const committed = await (i % 2 === 0 ? opened.store : other).commit(
          { streams: ['total'], position },
          (locked) => {
            const newest = locked.records.at(-1)?.body ?? body(0);
            const total = (JSON.parse(newest) as [number, string, number])[2] + 1;
            return { appends: [keyed('total', 'total', total)] };
          },
        );
        return committed.records[0]!.body;
      }),
    );
    const expected = Array.from({ length: 20 }, (_, i) => body(i + 1));
    t.same(totals.toSorted(), expected.toSorted());
    t.same((await View.replay(other, ['total'])).bodies('total'), [body(20)]);
  });
}
