/** What a gateway's copy of the kill list holds, whatever a server sends. */
import t from 'tap';
import { parseFrame } from '../src/client/frames.js';
import { KillListCopy } from '../src/client/kill-list-copy.js';
import { delta, entry, heartbeat, snapshot } from './fixtures/scripted-kill-list.js';

const NOW = 1_000;
const WALL = Date.UTC(2026, 0, 31, 12);

function take(copy: KillListCopy, frame: object, nowMs = NOW): string {
  const parsed = parseFrame(JSON.stringify(frame));
  return parsed === undefined ? 'no frame' : copy.take(parsed, nowMs);
}

const ids = (copy: KillListCopy, nowMs = NOW, wallMs = WALL): string[] =>
  copy
    .entries(nowMs, wallMs)
    .map(({ id }) => id)
    .sort();

t.test('a snapshot is in force once its last page is there, deltas follow on it', async (t) => {
  const copy = new KillListCopy();
  t.equal(copy.since, undefined);
  t.equal(take(copy, snapshot(7, ['a'], true)), 'part');
  t.same(ids(copy), [], 'half a list is none');
  t.equal(take(copy, snapshot(7, ['b'])), 'changed');
  t.equal(copy.since, '0123456789abcdef.7');
  t.equal(take(copy, delta(7, 9, ['c'], ['a', 'never there'])), 'changed');
  t.same(ids(copy), ['b', 'c']);
  t.equal(copy.version, 9);
  t.equal(take(copy, heartbeat(9)), 'current');
  t.ok(copy.find('agent', 'b', NOW, WALL));
  t.notOk(copy.find('model', 'b', NOW, WALL));
});

t.test('what does not follow is a gap and changes nothing', async (t) => {
  const copy = new KillListCopy();
  t.equal(take(copy, delta(0, 1, ['x'])), 'gap', 'a delta on nothing');
  t.equal(take(copy, heartbeat(0)), 'gap', 'nor is a heartbeat a list');
  take(copy, snapshot(7, ['a']));
  for (const frame of [delta(8, 9, ['x']), delta(6, 8, ['x']), heartbeat(8), heartbeat(6)]) {
    t.equal(take(copy, frame), 'gap', JSON.stringify(frame));
  }
  t.equal(take(copy, snapshot(9, ['b'], true)), 'part');
  t.equal(take(copy, snapshot(10, ['c'])), 'gap', 'pages of two versions');
  copy.disconnected();
  take(copy, snapshot(9, ['b'], true));
  t.equal(take(copy, delta(7, 8, ['x'])), 'gap', 'a delta between pages');
  t.same([ids(copy), copy.version], [['a'], 7]);
});

t.test('it never goes back within an epoch, and starts over with another', async (t) => {
  const copy = new KillListCopy();
  take(copy, snapshot(7, ['a']));
  t.equal(take(copy, snapshot(6, ['old'])), 'gap');
  t.equal(take(copy, delta(6, 7, ['old'])), 'known', 'a delta that came twice');
  t.equal(take(copy, delta(3, 5, [], ['a'])), 'known');
  t.same([ids(copy), copy.version], [['a'], 7]);
  t.equal(take(copy, snapshot(7, ['a'])), 'current');
  t.equal(take(copy, snapshot(2, ['new'], false, 'fedcba9876543210')), 'changed');
  t.same([ids(copy), copy.since], [['new'], 'fedcba9876543210.2']);
});

t.test('entries end by the server’s clock, also while nobody says so', async (t) => {
  const copy = new KillListCopy();
  const endMs = WALL + 60_000;
  const end = new Date(endMs).toISOString();
  take(copy, { ...snapshot(1, []), entries: [entry('a', end), entry('b')] });
  t.same(ids(copy, NOW, endMs - 1), ['a', 'b'], 'by the machine’s until a heartbeat came');
  t.same(ids(copy, NOW, endMs), ['b']);
  take(copy, heartbeat(1, new Date(WALL).toISOString()));
  t.same(ids(copy, NOW + 59_999, endMs + 1e9), ['a', 'b'], 'a machine’s clock that is ahead');
  t.same(ids(copy, NOW + 60_000, 0), ['b'], 'or behind');
  t.equal(copy.find('agent', 'a', NOW + 60_000, 0), undefined);
});

t.test(
  'the age counts from when the server last looked, not from when it last spoke',
  async (t) => {
    const copy = new KillListCopy();
    t.equal(copy.ageMs(NOW), undefined);
    take(copy, snapshot(1, []), NOW);
    t.equal(copy.ageMs(NOW + 300), 300);
    take(copy, heartbeat(1, '2026-01-31T12:00:05.000Z'), NOW + 5_000);
    t.equal(copy.ageMs(NOW + 5_000), 0);
    take(copy, heartbeat(1, '2026-01-31T12:00:05.000Z'), NOW + 10_000);
    t.equal(copy.ageMs(NOW + 10_000), 5_000, 'a server that repeats itself knows nothing new');
    take(copy, heartbeat(1, '2026-01-31T11:00:00.000Z'), NOW + 15_000);
    t.equal(copy.ageMs(NOW + 15_000), 0, 'a clock that was put back is no reason to distrust');
  },
);

t.test('what is no frame is recognised as such', async (t) => {
  const good = snapshot(1, ['a']) as Record<string, unknown>;
  t.ok(parseFrame(JSON.stringify({ ...good, later: 'field' })));
  for (const bad of [
    '',
    '[]',
    'null',
    '7',
    '{"type":"ack","version":1}',
    JSON.stringify({ ...good, version: -1 }),
    JSON.stringify({ ...good, version: 1.5 }),
    JSON.stringify({ ...good, version: '1' }),
    JSON.stringify({ ...good, epoch: 7 }),
    JSON.stringify({ ...good, more: 'no' }),
    JSON.stringify({ ...good, entries: [{ kind: 'a' }] }),
    JSON.stringify({ ...good, entries: [entry('a', 'soon')] }),
    JSON.stringify({ ...delta(1, 2, ['a']), from: null }),
    JSON.stringify({ ...delta(1, 2, ['a']), lift: [1] }),
    JSON.stringify(heartbeat(1, 'now')),
  ]) {
    t.equal(parseFrame(bad), undefined, bad);
  }
});
