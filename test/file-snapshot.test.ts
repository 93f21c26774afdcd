import { mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import t from 'tap';
import { systemClock } from '../src/runtime/clock.js';
import { FORMAT_NEWEST, FORMAT_OLDEST } from '../src/storage/envelope.js';
import { FileStore } from '../src/storage/file/file-store.js';
import type { FileSystem } from '../src/storage/file/file-system.js';
import { finishUpgrade } from '../src/storage/file/finish-upgrade.js';
import { encodeLine } from '../src/storage/file/line-format.js';
import { startStorageThread } from '../src/storage/file/storage-thread.js';
import { storeTime } from '../src/storage/file/store-clock.js';
import { unsyncedFileSystem } from './fixtures/file-faulty-system.js';
import { type InProcess, openInProcess } from './fixtures/file-store-in-process.js';
import { body, keyed, unkeyed, View } from './storage-contract/view.js';

const SMALL_LOG_BYTES = 2_000;

function names(dataDir: string, kind: 'log' | 'snapshot'): string[] {
  return readdirSync(dataDir)
    .filter((name) => name.startsWith(kind))
    .sort();
}

function snapshots(opened: InProcess): number {
  return opened.events.filter(({ message }) => message === 'Wrote a snapshot.').length;
}

async function until(condition: () => boolean): Promise<void> {
  for (const deadlineMs = Date.now() + 20_000; !condition(); ) {
    if (Date.now() > deadlineMs) throw new Error('it did not happen');
    await new Promise((resolve) => setImmediate(resolve));
  }
}

/** Appends until the condition holds; every key is written many times over. */
async function appendUntil(view: View, condition: () => boolean): Promise<void> {
  let n = 0;
  await until(() => n >= 0);
  for (const deadlineMs = Date.now() + 20_000; !condition(); n += 1) {
    if (Date.now() > deadlineMs) throw new Error('it did not happen');
    await view.append(keyed('a', `key ${n % 7}`, n), unkeyed('b', n));
  }
}

t.test('commits and replays go on while snapshots are written', async (t) => {
  const dataDir = t.testdir();
  const opened = openInProcess(dataDir, { logBytesMin: SMALL_LOG_BYTES });
  t.teardown(() => opened.close());
  const view = await View.replay(opened.connect(), ['a', 'b']);
  const reader = opened.connect();
  let replays = 0;
  let writing = true;
  const replaying = (async () => {
    for (; writing; replays += 1) {
      const replayed = await View.replay(reader, ['a', 'b']);
      const ids = replayed.applied.map(({ id }) => id);
      if (ids.some((id, i) => i > 0 && id <= (ids[i - 1] ?? 0))) t.fail('not in id order');
      const keys = replayed.applied.filter(({ key }) => key !== null).map(({ key }) => key);
      if (new Set(keys).size !== keys.length) t.fail('a replaced record was handed over');
      await replayed.catchUp();
    }
  })();
  await appendUntil(view, () => snapshots(opened) >= 8 && replays >= 8);
  writing = false;
  await replaying;
  const replayed = await View.replay(reader, ['a', 'b']);
  t.same(replayed.contents(), view.contents());
  t.same(replayed.position, view.position);
  await opened.close();
  t.equal(names(dataDir, 'snapshot').length, 1);
  t.ok(names(dataDir, 'log').length <= 2, 'older files are gone');
  const again = openInProcess(dataDir);
  t.teardown(() => again.close());
  const { contents, position } = await (async () => {
    const fresh = await View.replay(again.connect(), ['a', 'b']);
    return { contents: fresh.contents(), position: fresh.position };
  })();
  t.same(contents, view.contents());
  t.same(position, view.position);
});

t.test('files that a replay reads stay until it is done', async (t) => {
  const dataDir = t.testdir();
  let release = (): void => undefined;
  let isReading = false;
  const gate = new Promise<void>((resolve) => {
    release = resolve;
  });
  const opened = openInProcess(dataDir, {
    fileSystem: unsyncedFileSystem,
    logBytesMin: SMALL_LOG_BYTES,
  });
  t.teardown(() => opened.close());
  const view = await View.replay(opened.connect(), ['a', 'b']);
  await appendUntil(view, () => snapshots(opened) >= 1);
  const before = names(dataDir, 'snapshot');
  // The replaying thread is slow: its clock gives it no next turn until the gate is open.
  const { port } = opened.connection();
  const slowClock = {
    ...systemClock,
    afterTurn: (callback: () => void) => {
      isReading = true;
      void gate.then(callback);
    },
  };
  const heads = opened.database.sharedHeads;
  const slow = new FileStore({ port, heads, dataDir }, slowClock, unsyncedFileSystem);
  t.teardown(() => slow.close());
  const expected = view.contents();
  const replaying = View.replay(slow, ['a', 'b']);
  await until(() => isReading);
  await appendUntil(view, () => snapshots(opened) >= 4);
  t.ok(names(dataDir, 'snapshot').includes(before[0] ?? ''), 'kept under the reader');
  release();
  t.same((await replaying).contents(), expected, 'as of the beginning of the replay');
  await until(() => !names(dataDir, 'snapshot').includes(before[0] ?? ''));
  t.equal(names(dataDir, 'snapshot').length, 1);
});

t.test('what expired is not carried into a snapshot, and ids go on after it', async (t) => {
  const dataDir = t.testdir();
  const opened = openInProcess(dataDir, { logBytesMin: SMALL_LOG_BYTES });
  t.teardown(() => opened.close());
  const store = opened.connect();
  const view = await View.replay(store, ['a', 'b']);
  await store.kv.put('brief secret', 'x', 1_000);
  await store.kv.put('lasting', 'x', null);
  opened.advance(2_000);
  const first = snapshots(opened);
  await appendUntil(view, () => snapshots(opened) >= first + 2);
  await opened.close();
  const text = readFileSync(join(dataDir, names(dataDir, 'snapshot')[0] ?? ''), 'utf8');
  t.notMatch(text, 'brief secret');
  t.match(text, 'lasting');
  const again = openInProcess(dataDir);
  t.teardown(() => again.close());
  const reopened = await View.replay(again.connect(), ['a', 'b']);
  t.same(reopened.position.cursors, view.position.cursors);
  const { records } = await reopened.append(unkeyed('a', 'next'));
  t.ok(
    (records[0]?.id ?? 0) > Math.max(...Object.values(view.position.cursors).map(({ id }) => id)),
  );
});

t.test('a snapshot that a crash prevented is written at the next open', async (t) => {
  const dataDir = t.testdir();
  const noSnapshot: FileSystem = {
    ...unsyncedFileSystem,
    rename: (from, to) => {
      if (/snapshot-\d+/.test(to)) throw new Error('injected');
      unsyncedFileSystem.rename(from, to);
    },
  };
  const crashed = openInProcess(dataDir, { fileSystem: noSnapshot, logBytesMin: SMALL_LOG_BYTES });
  const view = await View.replay(crashed.connect(), ['a', 'b']);
  await appendUntil(view, () => names(dataDir, 'log').length >= 3);
  await crashed.close();
  const opened = openInProcess(dataDir, { fileSystem: unsyncedFileSystem });
  t.teardown(() => opened.close());
  await until(() => snapshots(opened) === 1);
  t.equal(names(dataDir, 'log').length, 1);
  t.same((await View.replay(opened.connect(), ['a', 'b'])).contents(), view.contents());
});

t.test('a view far behind catches up from the files, page by page', async (t) => {
  const opened = openInProcess(t.testdir(), { fileSystem: unsyncedFileSystem });
  t.teardown(() => opened.close());
  const writer = await View.replay(opened.connect(), ['a', 'b']);
  const late = await View.replay(opened.connect(), ['a', 'b']);
  const records = 105_000;
  const each = 5_000;
  for (let n = 0; n < records; n += each) {
    await writer.append(
      ...Array.from({ length: each }, (_, i) => unkeyed(i % 3 ? 'a' : 'b', n + i)),
    );
  }
  t.equal((await late.catchUp()).length, records);
  t.same(late.position, writer.position);
  t.same(late.contents(), writer.contents());
});

t.test('a store goes on in its envelope format until the upgrade is finished', async (t) => {
  const dataDir = join(t.testdir(), 'data');
  const formatOf = async (): Promise<number> => {
    const thread = await startStorageThread({ dataDir });
    const store = new FileStore(thread.connect(), systemClock);
    const view = await View.replay(store, ['a']);
    let format = 0;
    await view.commit({}, ({ writeFormat }) => {
      format = writeFormat;
      return {};
    });
    await store.close();
    await thread.close();
    return format;
  };
  t.equal(await formatOf(), FORMAT_NEWEST, 'a new store');
  const older = (format: number): void => {
    mkdirSync(dataDir, { recursive: true });
    writeFileSync(
      join(dataDir, 'log-0000000001.jsonl'),
      encodeLine({ halos: 'commit-log', version: 1, generation: 1 }) +
        encodeLine([1, '', ['store', '0123456789abcdef', format]]),
    );
  };
  older(FORMAT_OLDEST);
  t.equal(await formatOf(), FORMAT_OLDEST, 'an older one');
  await finishUpgrade({ dataDir });
  t.equal(await formatOf(), FORMAT_NEWEST, 'afterwards');
  await finishUpgrade({ dataDir });
  for (const format of [FORMAT_OLDEST - 1, FORMAT_NEWEST + 1]) {
    older(format);
    await t.rejects(startStorageThread({ dataDir }), { code: 'incompatible' });
  }
});

t.test('the directory is held while an upgrade is finished, and needed for it', async (t) => {
  const dataDir = t.testdir();
  const thread = await startStorageThread({ dataDir });
  await t.rejects(finishUpgrade({ dataDir }), { code: 'directory_held' });
  await thread.close();
});

t.test('the store’s clock does not follow the machine’s a little back, but far back', async (t) => {
  t.equal(storeTime(1_000_000, 2_000_000), 2_000_000);
  t.equal(storeTime(1_000_000, 999_000), 1_000_000);
  t.equal(storeTime(10_000_000, 1_000), 1_000, 'a clock that was plain wrong is put right');
  const dataDir = t.testdir();
  const opened = openInProcess(dataDir);
  await opened.connect().kv.put('k', 'v', 1_000);
  opened.advance(60_000);
  t.equal((await opened.connect().kv.get(['k'])).size, 0);
  await opened.connect().kv.put('later', body(1), null);
  await opened.close();
  const again = openInProcess(dataDir);
  t.teardown(() => again.close());
  t.equal((await again.connect().kv.get(['k'])).size, 0, 'after a restart with the clock set back');
});
