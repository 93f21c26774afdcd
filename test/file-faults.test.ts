import { spawnSync } from 'node:child_process';
import { existsSync, mkdirSync, mkdtempSync, rmdirSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import t from 'tap';
import { systemClock } from '../src/runtime/clock.js';
import { FileStore } from '../src/storage/file/file-store.js';
import { type FileSystem, systemFileSystem } from '../src/storage/file/file-system.js';
import { startStorageThread } from '../src/storage/file/storage-thread.js';
import { openInProcess } from './fixtures/file-store-in-process.js';
import { body, codeOf, unkeyed, View } from './storage-contract/view.js';

type Call = 'write' | 'sync' | 'truncate' | 'create' | 'syncLater' | 'syncDirectory' | 'rename';

/** The system's calls, of which some fail while they are in `failing`. */
function failingFileSystem(): { fileSystem: FileSystem; failing: Map<Call, string> } {
  const failing = new Map<Call, string>();
  const check = (call: Call): void => {
    const code = failing.get(call);
    if (code !== undefined) throw Object.assign(new Error(`${code}: injected`), { code });
  };
  const fileSystem: FileSystem = {
    ...systemFileSystem,
    write: (descriptor, bytes, position) => {
      if (failing.has('write')) {
        // A disk that fills up takes a part, then nothing.
        const part = bytes.subarray(0, Math.floor(bytes.length / 2));
        systemFileSystem.write(descriptor, part, position);
      }
      check('write');
      return systemFileSystem.write(descriptor, bytes, position);
    },
    sync: (descriptor) => {
      check('sync');
      systemFileSystem.sync(descriptor);
    },
    truncate: (descriptor, length) => {
      check('truncate');
      systemFileSystem.truncate(descriptor, length);
    },
    create: (path) => {
      check('create');
      return systemFileSystem.create(path);
    },
    syncLater: async (descriptor) => {
      check('syncLater');
      await systemFileSystem.syncLater(descriptor);
    },
    syncDirectory: (path) => {
      check('syncDirectory');
      systemFileSystem.syncDirectory(path);
    },
    rename: (from, to) => {
      check('rename');
      systemFileSystem.rename(from, to);
    },
  };
  return { fileSystem, failing };
}

function probe(opened: ReturnType<typeof openInProcess>): Promise<void> {
  return new Promise((resolve, reject) => opened.database.probe(resolve, reject));
}

t.test('a full disk refuses commits, and they work again when there is room', async (t) => {
  const dataDir = t.testdir();
  const { fileSystem, failing } = failingFileSystem();
  const opened = openInProcess(dataDir, { fileSystem });
  t.teardown(() => opened.close());
  const view = await View.replay(opened.connect(), ['a']);
  await view.append(unkeyed('a', 1));
  failing.set('write', 'ENOSPC');
  t.equal(await codeOf(() => view.append(unkeyed('a', 2))), 'store_unavailable');
  t.equal(await codeOf(() => view.store.kv.put('k', 'v', null)), 'store_unavailable');
  t.equal(await codeOf(() => probe(opened)), 'store_unavailable', 'the probe says so');
  t.same(await view.catchUp(), [], 'reads go on');
  t.equal((await view.store.kv.get(['k'])).size, 0);
  failing.clear();
  await probe(opened);
  await view.append(unkeyed('a', 3));
  await opened.close();
  const again = openInProcess(dataDir);
  t.teardown(() => again.close());
  t.same(again.events, [], 'no part of a refused commit was left behind');
  t.same((await View.replay(again.connect(), ['a'])).bodies('a'), [body(1), body(3)]);
});

t.test('after a failed sync nothing more is written, and its outcome is unknown', async (t) => {
  const dataDir = t.testdir();
  const { fileSystem, failing } = failingFileSystem();
  const opened = openInProcess(dataDir, { fileSystem });
  t.teardown(() => opened.close());
  const view = await View.replay(opened.connect(), ['a']);
  await view.append(unkeyed('a', 1));
  failing.set('sync', 'EIO');
  t.equal(await codeOf(() => view.append(unkeyed('a', 2))), 'outcome_unknown');
  failing.clear();
  const code = await codeOf(() => view.append(unkeyed('a', 3)));
  t.equal(code, 'store_unavailable', 'although the disk would take it again');
  await t.rejects(probe(opened), { code: 'store_unavailable', message: /could not be synced/ });
  t.same(await view.catchUp(), [], 'reads go on, of what was answered');
  await opened.close();
  const again = openInProcess(dataDir);
  t.teardown(() => again.close());
  const { length } = (await View.replay(again.connect(), ['a'])).bodies('a');
  t.ok(length === 1 || length === 2, 'the unknown one is there or not');
});

t.test('a refused write that cannot be taken back ends all writing', async (t) => {
  const { fileSystem, failing } = failingFileSystem();
  const opened = openInProcess(t.testdir(), { fileSystem });
  t.teardown(() => opened.close());
  const view = await View.replay(opened.connect(), ['a']);
  failing.set('write', 'ENOSPC').set('truncate', 'EIO');
  t.equal(await codeOf(() => view.append(unkeyed('a', 2))), 'outcome_unknown');
  failing.clear();
  t.equal(await codeOf(() => view.append(unkeyed('a', 3))), 'store_unavailable');
});

t.test('writers that wait behind a failed sync are refused, not left waiting', async (t) => {
  const { fileSystem, failing } = failingFileSystem();
  const opened = openInProcess(t.testdir(), { fileSystem });
  t.teardown(() => opened.close());
  const store = opened.connect();
  const { position } = await View.replay(store, ['a']);
  failing.set('sync', 'EIO');
  const codes = await Promise.all(
    Array.from({ length: 10 }, (_, i) =>
      codeOf(() =>
        store.commit({ streams: ['a'], position }, () => ({ appends: [unkeyed('a', i)] })),
      ),
    ),
  );
  t.equal(codes.filter((code) => code === 'outcome_unknown').length, 1);
  t.equal(codes.filter((code) => code === 'store_unavailable').length, 9);
});

t.test(
  'a snapshot that cannot be written leaves the store at work, and is tried again',
  async (t) => {
    const dataDir = t.testdir();
    const { fileSystem, failing } = failingFileSystem();
    const opened = openInProcess(dataDir, { fileSystem, logBytesMin: 500 });
    t.teardown(() => opened.close());
    const view = await View.replay(opened.connect(), ['a']);
    let n = 0;
    const appendUntil = async (done: () => boolean): Promise<void> => {
      for (const deadlineMs = Date.now() + 20_000; !done() && Date.now() < deadlineMs; ) {
        n += 1;
        await view.append(unkeyed('a', n));
      }
      t.ok(done());
    };
    const reported = (text: string): boolean =>
      opened.events.some(({ message }) => message.startsWith(text));
    for (const call of ['create', 'rename'] as const) {
      opened.events.length = 0;
      failing.set(call, 'ENOSPC');
      await appendUntil(() => reported('No snapshot'));
      failing.clear();
      await appendUntil(() => reported('Wrote a snapshot'));
    }
    t.equal(view.bodies('a').length, n);
    t.same((await View.replay(opened.connect(), ['a'])).contents(), view.contents());
  },
);

t.test('a failed sync of a snapshot ends all writing as any other', async (t) => {
  const { fileSystem, failing } = failingFileSystem();
  const opened = openInProcess(t.testdir(), { fileSystem, logBytesMin: 500 });
  t.teardown(() => opened.close());
  const view = await View.replay(opened.connect(), ['a']);
  failing.set('syncLater', 'EIO');
  let code: string | undefined;
  for (let n = 0; n < 1_000 && code === undefined; n += 1) {
    code = await codeOf(() => view.append(unkeyed('a', n)));
  }
  t.equal(code, 'store_unavailable');
  t.ok(opened.events.some(({ level, message }) => level === 'error' && /synced/.test(message)));
});

t.test('a real file system that is full refuses commits, and takes them again', async (t) => {
  const mountPoint = mkdtempSync(join(tmpdir(), 'halos-full-'));
  const mounted = spawnSync('mount', ['-t', 'tmpfs', '-o', 'size=256k', 'none', mountPoint]);
  if (mounted.status !== 0) {
    rmdirSync(mountPoint);
    t.comment('SKIPPED: a tmpfs cannot be mounted here');
    return;
  }
  t.teardown(() => {
    spawnSync('umount', [mountPoint]);
    rmdirSync(mountPoint);
  });
  const dataDir = join(mountPoint, 'data');
  mkdirSync(dataDir);
  const thread = await startStorageThread({ dataDir });
  const store = new FileStore(thread.connect(), systemClock);
  const view = await View.replay(store, ['a']);
  const ballast = 'x'.repeat(20_000);
  let code: string | undefined;
  let written = 0;
  for (; written < 50 && code === undefined; written += code === undefined ? 1 : 0) {
    code = await codeOf(() => view.append(unkeyed('a', ballast)));
  }
  t.equal(code, 'store_unavailable');
  t.ok(written > 2, `${written} records fitted`);
  await thread.probe();
  await view.append(unkeyed('a', 'a small one still fits'));
  await store.close();
  await thread.close();
  const again = await startStorageThread({ dataDir });
  const reopened = new FileStore(again.connect(), systemClock);
  t.equal((await View.replay(reopened, ['a'])).bodies('a').length, written + 1);
  await reopened.close();
  await again.close();
  t.ok(existsSync(dataDir));
});
