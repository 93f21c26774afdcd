import fc from 'fast-check';
import t from 'tap';
import type {
  KillEntry,
  KillListChange,
  KillListNews,
  KillListView,
} from '../src/actors/kill-list/messages.js';
import { deltaFrame, snapshotOf } from '../src/http/push/frames.js';
import { CHANGES_KEPT_MAX, KillListMirror } from '../src/http/push/kill-list-mirror.js';
import { GatewayList } from './fixtures/stream-client.js';

const EPOCH = '0123456789abcdef';
const SEED = Number(process.env['SEED'] ?? Date.now() % 1_000_000);

function entry(id: string, at: number): KillEntry {
  return { kind: 'agent', id, reason: `r${at}`, by: 'root', atMs: at };
}

/** The list at every version that a history goes through. */
class History {
  readonly views: KillListView[] = [{ epoch: EPOCH, version: 0, asOfMs: 0, entries: [] }];
  readonly changes: KillListChange[] = [];

  constructor(acts: readonly { id: number; kill: boolean }[]) {
    const entries = new Map<string, KillEntry>();
    for (const { id, kill } of acts) {
      const version = this.views.length;
      const target = { kind: 'agent', id: `a${id}` };
      if (kill) entries.set(target.id, entry(target.id, version));
      else if (!entries.delete(target.id)) continue;
      this.changes.push(
        kill
          ? { type: 'kill', version, entry: entry(target.id, version) }
          : { type: 'lift', version, target },
      );
      this.views.push({ epoch: EPOCH, version, asOfMs: version, entries: [...entries.values()] });
    }
  }

  news(from: number, to: number): KillListNews {
    const at = { epoch: EPOCH, version: to, asOfMs: to };
    if (from === to) return { type: 'unchanged', ...at };
    return { type: 'changes', ...at, from, changes: this.changes.slice(from, to) };
  }
}

/** What a gateway holds after what the mirror would send to one that comes with `since`. */
function served(mirror: KillListMirror, since: KillListView): GatewayList {
  const list = new GatewayList();
  for (const page of snapshotOf(since, since.entries).pages) list.take(JSON.parse(`${page}`));
  const delta = mirror.deltaFrom(since.version);
  if (delta !== undefined) list.take(JSON.parse(`${deltaFrame(delta)}`));
  else if (since.version !== mirror.version) {
    const { pages } = snapshotOf(mirror.position!, mirror.list());
    for (const page of pages) list.take(JSON.parse(`${page}`));
  }
  return list;
}

function names(view: KillListView): string[] {
  return view.entries.map(({ kind, id }) => `${kind}/${id}`).sort();
}

const acts = fc.array(fc.record({ id: fc.integer({ min: 0, max: 4 }), kill: fc.boolean() }), {
  maxLength: 40,
});

t.test('whatever is told, lost or repeated, every gateway ends with the list', async (t) => {
  t.comment(`seed ${SEED}`);
  const steps = fc.array(
    fc.record({
      how: fc.constantFrom('news', 'news', 'news', 'lost', 'again', 'old', 'list', 'old list'),
      count: fc.integer({ min: 1, max: 4 }),
    }),
    { maxLength: 30 },
  );
  fc.assert(
    fc.property(acts, steps, (done, told) => {
      const history = new History(done);
      const last = history.views.length - 1;
      const mirror = new KillListMirror();
      t.equal(mirror.hear(history.news(0, 0)), 'gap');
      mirror.replace(history.views[0]!);
      let at = 0;
      let before = 0;
      for (const { how, count } of told) {
        const to = Math.min(last, at + count);
        const versionBefore = mirror.version;
        if (how === 'again') mirror.hear(history.news(before, at));
        else if (how === 'old') mirror.hear(history.news(0, Math.min(count, before)));
        else if (how === 'list') {
          at = to;
          mirror.replace(history.views[at]!);
        } else if (how === 'old list') mirror.replace(history.views[before]!);
        else {
          if (how === 'news' && mirror.hear(history.news(at, to)) === 'gap') {
            mirror.replace(history.views[to]!);
          }
          before = at;
          at = to;
        }
        if (mirror.version < versionBefore) throw new Error('it went back');
      }
      const version = mirror.version;
      const now = history.views[version]!;
      for (let since = 0; since <= version; since += 1) {
        const list = served(mirror, history.views[since]!);
        if (list.version !== version || list.faults.length > 0) {
          throw new Error(`since ${since}: ${list.version}, ${list.faults}`);
        }
        if (list.names.join() !== names(now).join())
          throw new Error(`since ${since}: ${list.names}`);
        for (const { kind, id, reason } of now.entries) {
          if (list.entries.get(`${kind}/${id}`).reason !== reason) throw new Error('an old entry');
        }
      }
    }),
    { seed: SEED, numRuns: 500 },
  );
});

t.test('a delta is the net change: what undid itself is not in it', async (t) => {
  const history = new History([
    { id: 1, kill: true },
    { id: 2, kill: true },
    { id: 1, kill: false },
    { id: 2, kill: false },
    { id: 3, kill: true },
  ]);
  const mirror = new KillListMirror();
  mirror.replace(history.views[0]!);
  for (let at = 0; at < 5; at += 1) mirror.hear(history.news(at, at + 1));
  t.match(mirror.deltaFrom(0), { from: 0, version: 5, lift: [] });
  t.same(
    mirror.deltaFrom(0)?.set.map(({ id }) => id),
    ['a3'],
  );
  t.same(mirror.deltaFrom(1)?.lift, [{ kind: 'agent', id: 'a1' }]);
  t.equal(mirror.deltaFrom(5), undefined, 'nothing to say to whoever is there');
  t.equal(mirror.deltaFrom(6), undefined, 'nor to whoever is ahead');
});

t.test('the changes that are kept are bounded, and older versions are not known', async (t) => {
  const acts = Array.from({ length: CHANGES_KEPT_MAX + 50 }, (_, id) => ({ id, kill: true }));
  const history = new History(acts);
  const mirror = new KillListMirror();
  mirror.replace(history.views[0]!);
  for (const at of acts.keys()) mirror.hear(history.news(at, at + 1));
  t.equal(mirror.deltaFrom(49), undefined);
  t.equal(mirror.deltaFrom(50)?.set.length, CHANGES_KEPT_MAX);
});

t.test('another epoch empties it until its list is there', async (t) => {
  const history = new History([{ id: 1, kill: true }]);
  const mirror = new KillListMirror();
  mirror.replace(history.views[1]!);
  const other = { epoch: 'fedcba9876543210', version: 0, asOfMs: 9 };
  t.equal(mirror.hear({ type: 'unchanged', ...other }), 'other-epoch');
  t.equal(mirror.position, undefined);
  t.equal(mirror.hear({ type: 'unchanged', ...other }), 'gap');
  t.equal(mirror.replace({ ...other, entries: [] }), 'changed');
  t.same(mirror.list(), []);
});

t.test('how fresh it is follows the store’s clock, also when that was put right', async (t) => {
  const mirror = new KillListMirror();
  mirror.replace({ epoch: EPOCH, version: 0, asOfMs: 90_000, entries: [] });
  const confirm = (asOfMs: number) =>
    mirror.hear({ type: 'unchanged', epoch: EPOCH, version: 0, asOfMs });
  confirm(95_000);
  t.equal(mirror.asOfMs, 95_000);
  t.equal(confirm(10_000), 'confirmed');
  t.equal(mirror.asOfMs, 10_000);
});

t.test('a snapshot of the longest entries comes in pages below 16 KB', async (t) => {
  const entries = Array.from({ length: 100 }, (_, index) => ({
    ...entry(`${index}-${'ü'.repeat(250)}`, index),
    reason: '"'.repeat(256),
  }));
  const { pages } = snapshotOf({ epoch: EPOCH, version: 7 }, entries);
  t.ok(pages.length > 1);
  t.ok(pages.every((page) => page.byteLength < 16 * 1024));
  const list = new GatewayList();
  for (const page of pages) {
    t.equal(list.version, -1, 'it is complete with its last page');
    list.take(JSON.parse(`${page}`));
  }
  t.equal(list.version, 7);
  t.equal(list.entries.size, 100);
  t.equal(snapshotOf({ epoch: EPOCH, version: 0 }, []).pages.length, 1);
});
