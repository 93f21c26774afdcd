/** The document that pollers get: written once for each version, of one moment. */
import t from 'tap';
import type { KillEntry } from '../src/actors/kill-list/messages.js';
import { KillListDocument } from '../src/http/push/kill-list-document.js';
import { KillListMirror } from '../src/http/push/kill-list-mirror.js';

const EPOCH = '0123456789abcdef';

function entry(id: string): KillEntry {
  return { kind: 'agent', id, reason: 'odd', by: 'root', atMs: 1_790_000_000_000 };
}

function at(version: number, ...ids: string[]) {
  return { epoch: EPOCH, version, asOfMs: 1_790_000_000_000 + version, entries: ids.map(entry) };
}

/** A feed whose mirror is caught up as it is. */
function feedOf(mirror: KillListMirror) {
  return { mirror, caughtUp: async () => ({ epoch: EPOCH, version: mirror.version }) };
}

t.test(
  'tag, version and entries are of one moment, whatever comes before they are used',
  async (t) => {
    const mirror = new KillListMirror();
    mirror.replace(at(1, 'one'));
    const document = new KillListDocument(feedOf(mirror));
    const answer = await document.current();
    mirror.replace(at(2, 'one', 'two'));
    t.equal(answer.entityTag, `"${EPOCH}.1"`);
    t.match(JSON.parse(answer.body().toString()), { version: 1, entries: [{ id: 'one' }] });
    t.equal(JSON.parse(answer.body().toString()).entries.length, 1);
    const next = await document.current();
    t.match(JSON.parse(next.body().toString()), { version: 2, entries: [{}, { id: 'two' }] });
  },
);

t.test('a version is written down once, however many ask, and says how fresh it is', async (t) => {
  const mirror = new KillListMirror();
  mirror.replace(at(1, 'one'));
  let listed = 0;
  const list = mirror.list.bind(mirror);
  mirror.list = () => {
    listed += 1;
    return list();
  };
  const document = new KillListDocument(feedOf(mirror));
  const first = JSON.parse((await document.current()).body().toString());
  mirror.hear({ type: 'unchanged', epoch: EPOCH, version: 1, asOfMs: 1_790_000_005_000 });
  const second = JSON.parse((await document.current()).body().toString());
  t.equal(listed, 1);
  t.equal(first.asOf, '2026-09-21T14:13:20.001Z');
  t.equal(second.asOf, '2026-09-21T14:13:25.000Z');
});

t.test('without a list there is no document', async (t) => {
  await t.rejects(new KillListDocument(feedOf(new KillListMirror())).current(), {
    code: 'store_unavailable',
  });
});
