/** Evidence on files: in the line of its commit, and in segments that follow it. */
import {
  mkdirSync,
  readdirSync,
  readFileSync,
  renameSync,
  truncateSync,
  writeFileSync,
} from 'node:fs';
import { join } from 'node:path';
import t, { type Test } from 'tap';
import { systemClock } from '../src/runtime/clock.js';
import { systemRandom } from '../src/runtime/random.js';
import type { DirectLinker } from '../src/storage/chain-linker.js';
import { systemFileSystem } from '../src/storage/file/file-system.js';
import type { Store } from '../src/storage/store.js';
import { ChainVerifier } from '../src/verify/chain-verifier.js';
import {
  type EvidenceParts,
  evidenceParts,
  newSigningKeyPem,
} from './fixtures/chaining-replica.js';
import { openInProcess } from './fixtures/file-store-in-process.js';
import { codeOf, until } from './fixtures/postgres-stores.js';

const parts: EvidenceParts = evidenceParts(newSigningKeyPem(), systemClock, systemRandom);
const linker = parts.store.linker as DirectLinker;

function open(dataDir: string, options: Parameters<typeof openInProcess>[1] = {}) {
  return openInProcess(dataDir, { linker, ...options });
}

async function record(store: Store, count = 1, data = 'x'): Promise<string[]> {
  const refs: string[] = [];
  const position = await store.replay([], () => undefined);
  await store.commit({ streams: [], position }, ({ storeTimeMs: atMs }) => ({
    evidence: Array.from({ length: count }, () => {
      const by = { type: 'test', id: 'test' };
      const event = parts.recorder.event({ kind: 'test.happened', by, atMs, data: { data } });
      refs.push(event.ref);
      return event;
    }),
  }));
  return refs;
}

async function verified(store: Store): Promise<string> {
  const verifier = new ChainVerifier({});
  let after = -1;
  for (;;) {
    const page = await store.evidence.page(after, 1_000);
    for (const { text } of page) {
      const step = verifier.accept(text);
      if (step !== undefined && 'status' in step) return `${step.seq} ${step.check}`;
    }
    const last = page.at(-1);
    if (last === undefined) return verifier.finish({ isTorn: false, endsAtHead: true }).status;
    after = last.seq;
  }
}

function segments(dataDir: string): string[] {
  return readdirSync(join(dataDir, 'chain')).sort();
}

async function reopen(t: Test, opened: ReturnType<typeof open>, dataDir: string, options = {}) {
  await opened.close();
  const again = open(dataDir, options);
  t.teardown(() => again.close());
  return again;
}

t.test('a commit chains what it is evidence of, with a genesis before the first', async (t) => {
  const dataDir = t.testdir();
  const opened = open(dataDir);
  const store = opened.connect();
  const refs = [...(await record(store)), ...(await record(store, 3))];
  t.equal((await store.evidence.head()).seq, 4);
  for (const ref of refs) {
    const found = await store.evidence.find(ref);
    t.equal(found?.pending === false && found.record.ref, ref);
  }
  t.equal(await store.evidence.find('ev_00000000-0000-7000-8000-000000000000'), undefined);
  t.equal(await verified(store), 'verified');
  const back = await store.evidence.pageBack(4, 2);
  t.strictSame(
    back.map(({ seq }) => seq),
    [3, 2],
  );
  const again = await reopen(t, opened, dataDir);
  const after = again.connect();
  await record(after);
  t.equal((await after.evidence.head()).seq, 5);
  t.equal(await verified(after), 'verified');
});

t.test('nothing is chained of what is not written, and nothing written without it', async (t) => {
  const opened = open(t.testdir());
  t.teardown(() => opened.close());
  const store = opened.connect();
  await record(store);
  const position = await store.replay([], () => undefined);
  const event = { ref: 'ev_00000000-0000-7000-8000-000000000001', text: '{"not":"an event"}' };
  const put = { op: 'put' as const, key: 'k', value: 'v', expiresAtMs: null };
  const unit = { streams: [], position, kv: ['k'] };
  t.equal(
    await codeOf(() => store.commit(unit, () => ({ kv: [put], evidence: [event] }))),
    'evidence_unreadable',
  );
  t.equal((await store.kv.get(['k'])).size, 0);
  await store.kv.put('taken', 'v', null);
  const add = { op: 'add' as const, key: 'taken', value: 'v', expiresAtMs: null };
  t.equal(
    await codeOf(() =>
      store.commit({ streams: [], position }, ({ storeTimeMs: atMs }) => ({
        kv: [add],
        evidence: [
          parts.recorder.event({ kind: 'test.void', by: { type: 'a', id: 'b' }, atMs, data: {} }),
        ],
      })),
    ),
    'write_refused',
  );
  t.equal((await store.evidence.head()).seq, 1);
  const others = await Promise.allSettled([
    record(store),
    store.commit(unit, () => ({ evidence: [event] })),
    record(store),
  ]);
  t.strictSame(
    others.map(({ status }) => status),
    ['fulfilled', 'rejected', 'fulfilled'],
    'it fails alone',
  );
  t.equal(await verified(store), 'verified');
});

t.test('segments are repaired from the log, and never guessed at', async (t) => {
  const dataDir = t.testdir();
  let opened = open(dataDir);
  await record(opened.connect(), 20);
  const path = join(dataDir, 'chain', segments(dataDir)[0] ?? '');
  const whole = readFileSync(path);
  const lines = whole.toString().split('\n');
  const begin = (n: number): number => lines.slice(0, n).join('\n').length + 1;
  t.comment('a torn end, and an end that is missing');
  for (const length of [whole.length - 5, begin(7), 0]) {
    await opened.close();
    truncateSync(path, length);
    opened = open(dataDir);
    t.equal(await verified(opened.connect()), 'verified');
    t.equal(readFileSync(path).toString(), whole.toString());
  }
  t.comment('sectors that never reached the disk');
  await opened.close();
  const torn = Buffer.from(whole);
  torn.fill(0, 2_048, 3_072);
  writeFileSync(path, torn);
  opened = open(dataDir);
  t.equal(readFileSync(path).toString(), whole.toString());
  await opened.close();
  t.comment('a byte that was changed is no crash');
  const changed = Buffer.from(whole);
  changed[begin(5) + 30] = (changed[begin(5) + 30] ?? 0) ^ 1;
  writeFileSync(path, changed);
  await t.rejects(async () => open(dataDir), { code: 'damaged', message: /line 6, / });
  t.comment('nor is a record that the log does not have');
  writeFileSync(path, Buffer.concat([whole, Buffer.from(`${lines[19]}\n`)]));
  await t.rejects(async () => open(dataDir), { code: 'damaged' });
  writeFileSync(path, whole);
  opened = open(dataDir);
  t.teardown(() => opened.close());
  await record(opened.connect());
  t.equal(await verified(opened.connect()), 'verified');
});

t.test(
  'when logs have gone, the segments have what they said; older ones may be archived',
  async (t) => {
    const dataDir = t.testdir();
    const options = { logBytesMin: 40_000 };
    let opened = open(dataDir, options);
    let store = opened.connect();
    const refs: string[] = [];
    const snapshots = (): number =>
      readdirSync(dataDir).filter((name) => /^snapshot/.test(name)).length;
    for (let round = 0; round < 12; round += 1)
      refs.push(...(await record(store, 1_000, 'y'.repeat(80))));
    await until('a snapshot is written', () => snapshots() > 0);
    t.ok(segments(dataDir).length >= 2, 'a full segment is followed by another');
    opened = await reopen(t, opened, dataDir, options);
    store = opened.connect();
    t.equal((await store.evidence.head()).seq, 12_000);
    t.equal(await verified(store), 'verified');
    for (const ref of [refs[0], refs[6_000], refs.at(-1)])
      t.ok(await store.evidence.find(ref ?? ''));
    await opened.close();
    const [first = ''] = segments(dataDir);
    mkdirSync(join(dataDir, 'archive'));
    renameSync(join(dataDir, 'chain', first), join(dataDir, 'archive', first));
    opened = open(dataDir, options);
    t.teardown(() => opened.close());
    store = opened.connect();
    await record(store);
    t.equal((await store.evidence.head()).seq, 12_001);
    t.equal(await store.evidence.find(refs[0] ?? ''), undefined);
    const [statement] = await store.evidence.append({ kind: 'checkpoint' });
    const { data } = JSON.parse(statement?.text ?? '{}') as { data: { chain: string } };
    const genesis = readFileSync(join(dataDir, 'archive', first), 'utf8').split('\n')[0] ?? '{}';
    t.equal(data.chain, (JSON.parse(genesis) as { hash: string }).hash, 'the chain knows its id');
    await opened.close();
    renameSync(
      join(dataDir, 'chain', segments(dataDir).at(-1) ?? ''),
      join(dataDir, 'archive', 'x'),
    );
    await t.rejects(
      async () => open(dataDir, options),
      { code: 'damaged' },
      'the newest must stay',
    );
  },
);

t.test('a directory that is opened without a key refuses evidence, and nothing else', async (t) => {
  const opened = openInProcess(t.testdir());
  t.teardown(() => opened.close());
  const store = opened.connect();
  t.equal(await codeOf(() => record(store)), 'incompatible');
  await store.kv.put('k', 'v', null);
  t.equal((await store.kv.get(['k'])).size, 1);
});

t.test('a segment that cannot be synced ends all writing: the log is all there is', async (t) => {
  const dataDir = t.testdir();
  const segments = new Set<number>();
  let failures = 0;
  const fileSystem = {
    ...systemFileSystem,
    create: (path: string) => {
      const descriptor = systemFileSystem.create(path);
      if (path.includes('/chain/')) segments.add(descriptor);
      return descriptor;
    },
    sync: (descriptor: number) => {
      // Once: a second sync would say yes to bytes that the kernel has dropped.
      if (segments.has(descriptor) && failures === 0) {
        failures += 1;
        throw new Error('EIO');
      }
      systemFileSystem.sync(descriptor);
    },
  };
  const opened = open(dataDir, { fileSystem });
  const store = opened.connect();
  const refs: string[] = [];
  for (let round = 0; round < 11; round += 1) {
    const answered = await record(store, 1_000).catch(() => undefined);
    if (answered === undefined) break;
    refs.push(...answered);
  }
  t.equal(failures, 1, 'a full segment was to be synced');
  t.equal(await codeOf(() => record(store)), 'store_unavailable');
  t.equal(await codeOf(() => store.kv.put('k', 'v', null)), 'store_unavailable');
  await opened.close();
  const again = open(dataDir);
  t.teardown(() => again.close());
  const after = again.connect();
  t.equal(await verified(after), 'verified');
  t.equal((await after.evidence.head()).seq, refs.length, 'what was answered is there');
});
