/** Forwarding the chain of the file backend, whose older segments an operator may move away. */
import { mkdirSync, readdirSync, renameSync } from 'node:fs';
import { join } from 'node:path';
import t, { type Test } from 'tap';
import { Forwarder } from '../src/actors/audit-export/forwarder.js';
import type { Sink } from '../src/actors/audit-export/sink.js';
import { sinkStatuses } from '../src/actors/audit-export/status.js';
import { systemClock } from '../src/runtime/clock.js';
import { silentLog } from '../src/runtime/log.js';
import { systemRandom } from '../src/runtime/random.js';
import type { ActiveTerm } from '../src/runtime/thread-terms.js';
import type { DirectLinker } from '../src/storage/chain-linker.js';
import type { Store } from '../src/storage/store.js';
import { evidenceParts, newSigningKeyPem } from './fixtures/chaining-replica.js';
import { openInProcess } from './fixtures/file-store-in-process.js';
import { keepAlive } from './fixtures/keep-alive.js';
import { until } from './fixtures/postgres-stores.js';

keepAlive(t);
t.setTimeout(120_000);

const LEASE = 'audit-export-archive';
const parts = evidenceParts(newSigningKeyPem(), systemClock, systemRandom);

async function record(store: Store, count: number): Promise<void> {
  const position = await store.replay([], () => undefined);
  await store.commit({ streams: [], position }, ({ storeTimeMs: atMs }) => ({
    evidence: Array.from({ length: count }, () =>
      parts.recorder.event({
        kind: 'test.happened',
        by: { type: 'test', id: 't' },
        atMs,
        data: {},
      }),
    ),
  }));
}

/** A store with a chain of three segments, a term on it, and a sink that remembers numbers. */
async function open(t: Test) {
  const dataDir = t.testdir();
  const linker = parts.store.linker as DirectLinker;
  const opened = openInProcess(dataDir, { linker });
  t.teardown(() => opened.close());
  const store = opened.connect();
  for (let round = 0; round < 5; round += 1) await record(store, 5_000);
  const [claimed] = await opened.leases().claim([{ lease: LEASE, holder: 'one' }], 600_000);
  if (claimed === undefined) throw new Error('no lease');
  const { lease, holder, token } = claimed;
  const abort = new AbortController();
  const isTrusted = (): boolean => !abort.signal.aborted;
  const term: ActiveTerm = { fence: { lease, holder, token }, signal: abort.signal, isTrusted };
  const seqs: number[] = [];
  const sink: Sink = {
    name: 'archive',
    type: 'file',
    batchMax: 1_000,
    deliver: async ({ records }) => void seqs.push(...records.map(({ seq }) => seq)),
    close: async () => undefined,
  };
  const environment = { store, clock: systemClock, random: systemRandom, log: silentLog };
  const forwarder = new Forwarder(sink, environment);
  const run = (): (() => Promise<void>) => {
    const working = forwarder.work(term);
    return async () => {
      abort.abort();
      await working;
    };
  };
  const status = async () => (await sinkStatuses(store, systemClock, [sink]))[0];
  const chain = join(dataDir, 'chain');
  mkdirSync(join(dataDir, 'elsewhere'));
  const move = (from: string, to: string, index: number): void => {
    const name = readdirSync(join(dataDir, from)).sort()[index] ?? '';
    renameSync(join(dataDir, from, name), join(dataDir, to, name));
  };
  const archive = (index: number): void => move('chain', 'elsewhere', index);
  const putBack = (): void => move('elsewhere', 'chain', 0);
  return { store, seqs, run, status, archive, putBack, chain };
}

const range = (from: number, to: number): number[] =>
  Array.from({ length: to - from + 1 }, (_, index) => from + index);

t.test('every segment is forwarded, in order, and the cursor is fenced there too', async (t) => {
  const { store, seqs, run, status, chain } = await open(t);
  t.equal(readdirSync(chain).length, 3);
  const stop = run();
  await until('all is forwarded', () => seqs.length === 25_001);
  await until('the cursor says so', async () => (await status())?.cursor === 25_000);
  t.strictSame(seqs, range(0, 25_000));
  await record(store, 10);
  await until('the rest is forwarded', () => seqs.length === 25_011);
  t.match(await status(), { leader: 'one', lastError: null });
  await stop();
});

t.test('a new sink begins with the oldest segment that is there', async (t) => {
  const { seqs, run, archive, status } = await open(t);
  archive(0);
  const stop = run();
  await until('all is forwarded', async () => (await status())?.lagRecords === 0);
  t.equal(seqs[0], 10_000);
  t.strictSame(seqs, range(10_000, 25_000));
  await stop();
});

t.test(
  'a segment that a sink lacks and that was moved away holds it until it is back',
  async (t) => {
    const { seqs, run, archive, putBack, status } = await open(t);
    archive(1);
    const stop = run();
    const failure = async () => (await status())?.lastError;
    await until('it is said', async () => (await failure())?.code === 'records_archived');
    t.match(await failure(), {
      message: /the records 10000 to 25000, of which the first is in no segment/,
    });
    t.strictSame(seqs, range(0, 9_999), 'nothing is skipped');
    t.equal((await status())?.lagSeconds, null);
    putBack();
    await until('all is forwarded', async () => (await status())?.lagRecords === 0);
    t.strictSame(seqs, range(0, 25_000));
    await stop();
  },
);
