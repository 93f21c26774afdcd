/** What happens to a data directory while it is used: nothing is answered that is not kept. */
import { cpSync, mkdirSync, readdirSync, renameSync, rmSync, unlinkSync } from 'node:fs';
import { join } from 'node:path';
import t, { type Test } from 'tap';
import { openInProcess } from './fixtures/file-store-in-process.js';
import { body, codeOf, unkeyed, View } from './storage-contract/view.js';

function probe(opened: ReturnType<typeof openInProcess>): Promise<void> {
  return new Promise((resolve, reject) => opened.database.probe(resolve, reject));
}

/** A store with one record in it, below a folder of the test. */
async function opened(t: Test) {
  const dataDir = join(t.testdir(), 'data');
  const store = openInProcess(dataDir);
  t.teardown(() => store.close());
  const view = await View.replay(store.connect(), ['a']);
  await view.append(unkeyed('a', 1));
  const name = readdirSync(dataDir).find((entry) => entry.includes('log')) ?? '';
  const log = join(dataDir, name);
  return { dataDir, store, view, log };
}

const isSocket = (name: string): boolean => name.endsWith('.sock');

const HARM: Readonly<Record<string, (paths: { dataDir: string; log: string }) => void>> = {
  'is removed': ({ dataDir }) => rmSync(dataDir, { recursive: true }),
  'is moved away': ({ dataDir }) => renameSync(dataDir, `${dataDir}-moved`),
  'is replaced by an empty one': ({ dataDir }) => {
    renameSync(dataDir, `${dataDir}-moved`);
    mkdirSync(dataDir);
  },
  'is replaced by a copy': ({ dataDir }) => {
    renameSync(dataDir, `${dataDir}-moved`);
    mkdirSync(dataDir);
    for (const name of readdirSync(`${dataDir}-moved`).filter((entry) => !isSocket(entry))) {
      cpSync(join(`${dataDir}-moved`, name), join(dataDir, name), { recursive: true });
    }
  },
  'loses its log': ({ log }) => unlinkSync(log),
};

for (const [what, harm] of Object.entries(HARM)) {
  t.test(`nothing is answered any more when the data directory ${what}`, async (t: Test) => {
    const { store, view, ...paths } = await opened(t);
    harm(paths);
    t.equal(await codeOf(() => view.append(unkeyed('a', 2))), 'store_unavailable');
    t.equal(await codeOf(() => view.store.kv.put('k', 'v', null)), 'store_unavailable');
    await t.rejects(probe(store), { code: 'store_unavailable', message: /removed or moved/ });
    t.same(await view.catchUp(), [], 'reads go on');
  });
}

t.test('a data directory that comes back is written again, without what was refused', async (t) => {
  const { dataDir, store, view } = await opened(t);
  renameSync(dataDir, `${dataDir}-moved`);
  t.equal(await codeOf(() => view.append(unkeyed('a', 2))), 'store_unavailable');
  renameSync(`${dataDir}-moved`, dataDir);
  await probe(store);
  await view.append(unkeyed('a', 3));
  await store.close();
  const again = openInProcess(dataDir);
  t.teardown(() => again.close());
  t.same((await View.replay(again.connect(), ['a'])).bodies('a'), [body(1), body(3)]);
});
