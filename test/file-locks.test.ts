import { once } from 'node:events';
import { MessageChannel, type MessagePort, Worker } from 'node:worker_threads';
import t from 'tap';
import { type Clock, systemClock } from '../src/runtime/clock.js';
import { FileStore } from '../src/storage/file/file-store.js';
import type { Answer, GrantedUnit } from '../src/storage/file/protocol.js';
import { startStorageThread } from '../src/storage/file/storage-thread.js';
import { IDLE_HOLDER_MAX_MS, LOCK_WAIT_MAX_MS } from '../src/storage/file/units.js';
import { type InProcess, openInProcess } from './fixtures/file-store-in-process.js';
import { codeOf, unkeyed, View } from './storage-contract/view.js';

/** The system's clock, with timers that run when the test says that the time has passed. */
class ManualTimers {
  private nowMs = 1_000;
  private timers: { readonly atMs: number; readonly callback: () => void }[] = [];
  readonly clock: Clock = {
    ...systemClock,
    monotonicMs: () => this.nowMs,
    schedule: (callback, delayMs) => {
      const timer = { atMs: this.nowMs + delayMs, callback };
      this.timers.push(timer);
      return {
        cancel: () => {
          this.timers = this.timers.filter((other) => other !== timer);
        },
      };
    },
  };

  pass(ms: number): void {
    this.nowMs += ms;
    const due = this.timers.filter(({ atMs }) => atMs <= this.nowMs);
    this.timers = this.timers.filter(({ atMs }) => atMs > this.nowMs);
    for (const { callback } of due) callback();
  }
}

/** A client that speaks the protocol itself, to stop in the middle of it. */
class RawClient {
  readonly port: MessagePort;
  private newestId = 0;

  constructor(opened: InProcess) {
    this.port = opened.connection().port;
  }

  async call(request: Record<string, unknown>): Promise<Answer> {
    this.newestId += 1;
    this.port.postMessage({ ...request, id: this.newestId });
    const [answer] = (await once(this.port, 'message')) as [Answer];
    return answer;
  }

  async hold(view: View, names: { kv?: string[] } = {}): Promise<GrantedUnit> {
    const { position } = view;
    const answer = await this.call({
      type: 'lock',
      streams: ['a'],
      position,
      kv: [],
      documents: [],
      ...names,
    });
    if (!answer.ok) throw new Error(answer.code);
    return answer.value as GrantedUnit;
  }
}

/** Lets every message that was sent arrive and be answered. */
async function settle(): Promise<void> {
  for (let turn = 0; turn < 20; turn += 1) await new Promise((resolve) => setImmediate(resolve));
}

t.test('a thread that dies while it decides frees its locks', async (t) => {
  const thread = await startStorageThread({ dataDir: t.testdir() });
  const store = new FileStore(thread.connect(), systemClock);
  const view = await View.replay(store, ['a']);
  await store.kv.put('row', '1', null);
  const connection = thread.connect();
  const holder = new Worker(new URL('./fixtures/file-holding-thread.js', import.meta.url), {
    workerData: { connection },
    transferList: [connection.port],
  });
  await once(holder, 'message');
  let done = false;
  const waiting = view.append(unkeyed('a', 1)).then(() => {
    done = true;
  });
  await settle();
  t.equal(done, false, 'until then the unit waits');
  await holder.terminate();
  await waiting;
  await store.kv.put('row', '2', null);
  await store.close();
  await thread.close();
});

t.test(
  'when the storage thread dies all that is pending rejects, and the data stays',
  async (t) => {
    const dataDir = t.testdir();
    const entry = new URL('../src/storage/file/storage-worker.js', import.meta.url);
    const worker = new Worker(entry, { workerData: { dataDir } });
    const [{ heads }] = (await once(worker, 'message')) as [{ heads: SharedArrayBuffer }];
    const { port1, port2 } = new MessageChannel();
    worker.postMessage({ type: 'connect', port: port1 }, [port1]);
    const store = new FileStore({ port: port2, heads, dataDir }, systemClock);
    const view = await View.replay(store, ['a']);
    await view.append(unkeyed('a', 1));
    await t.rejects(startStorageThread({ dataDir }), { code: 'directory_held' });
    const pending = Promise.all([
      ...Array.from({ length: 50 }, (_, i) => codeOf(() => store.kv.put(`k${i}`, 'v', null))),
      codeOf(() => view.append(unkeyed('a', 2))),
      codeOf(() => store.kv.get(['k'])),
    ]);
    await worker.terminate();
    for (const code of await pending) {
      t.ok([undefined, 'outcome_unknown', 'store_unavailable'].includes(code), String(code));
    }
    t.equal(await codeOf(() => store.catchUp(view.position)), 'store_unavailable');
    await store.close();
    const thread = await startStorageThread({ dataDir });
    const again = await View.replay(new FileStore(thread.connect(), systemClock), ['a']);
    t.ok(again.bodies('a').length >= 1, 'the directory was freed with the thread');
    await again.store.close();
    await thread.close();
    await t.rejects(thread.probe(), { code: 'store_unavailable' });
  },
);

t.test('the death of the storage thread is told, its close is not', async (t) => {
  const deaths: unknown[] = [];
  const closed = await startStorageThread({ dataDir: t.testdir() });
  closed.onDeath((cause) => deaths.push(cause));
  await closed.close();
  t.same(deaths, []);
});

t.test('a client that goes away frees what it held and what it waited for', async (t) => {
  const opened = openInProcess(t.testdir());
  t.teardown(() => opened.close());
  const view = await View.replay(opened.connect(), ['a']);
  const holder = new RawClient(opened);
  await holder.hold(view);
  const waiter = new RawClient(opened);
  void waiter.hold(view);
  await settle();
  waiter.port.close();
  holder.port.close();
  await view.append(unkeyed('a', 1));
});

t.test('locks held without writing are freed in time, and the late write is refused', async (t) => {
  const timers = new ManualTimers();
  const opened = openInProcess(t.testdir(), { clock: timers.clock });
  t.teardown(() => opened.close());
  const view = await View.replay(opened.connect(), ['a']);
  const holder = new RawClient(opened);
  t.teardown(() => holder.port.close());
  const { unit } = await holder.hold(view);
  const waiting = view.append(unkeyed('a', 1));
  await settle();
  timers.pass(IDLE_HOLDER_MAX_MS);
  await waiting;
  const late = await holder.call({
    type: 'write',
    unit,
    appends: [unkeyed('a', 2)],
    kv: [],
    documents: [],
    counters: [],
    evidence: [],
  });
  t.match(late, { ok: false, code: 'store_unavailable' });
  t.equal((await View.replay(view.store, ['a'])).bodies('a').length, 1);
});

t.test('a unit whose lock is not free in time is refused, and later ones are not', async (t) => {
  const timers = new ManualTimers();
  const opened = openInProcess(t.testdir(), { clock: timers.clock });
  t.teardown(() => opened.close());
  const view = await View.replay(opened.connect(), ['a']);
  // Two clients in turn, each idle for as long as one may be, are longer than one may wait.
  const holders = Array.from({ length: 2 }, () => new RawClient(opened));
  for (const holder of holders) t.teardown(() => holder.port.close());
  for (const holder of holders) void holder.hold(view);
  await settle();
  const waiting = codeOf(() => view.append(unkeyed('a', 1)));
  await settle();
  for (let passed = 0; passed < LOCK_WAIT_MAX_MS; passed += IDLE_HOLDER_MAX_MS / 4) {
    timers.pass(IDLE_HOLDER_MAX_MS / 4);
    await settle();
  }
  t.equal(await waiting, 'store_unavailable');
  timers.pass(IDLE_HOLDER_MAX_MS);
  timers.pass(IDLE_HOLDER_MAX_MS);
  await view.append(unkeyed('a', 2));
});

t.test('a statement and a unit wait for the unit that read their row', async (t) => {
  const timers = new ManualTimers();
  const opened = openInProcess(t.testdir(), { clock: timers.clock });
  t.teardown(() => opened.close());
  const store = opened.connect();
  const view = await View.replay(store, ['a']);
  await store.kv.put('row', '1', null);
  const holder = new RawClient(opened);
  t.teardown(() => holder.port.close());
  const { unit } = await holder.hold(view, { kv: ['row'] });
  const order: string[] = [];
  const put = store.kv.put('row', '2', null).then(() => order.push('put'));
  const other = store
    .commit({ streams: [], position: view.position }, () => ({
      kv: [{ op: 'put', key: 'row', value: '3', expiresAtMs: null }],
    }))
    .then(() => order.push('unit'));
  await store.kv.put('another row', 'x', null);
  t.same(order, [], 'another row is free meanwhile');
  t.equal((await store.kv.get(['row'])).get('row')?.value, '1');
  const change = { op: 'put', key: 'row', value: 'held', expiresAtMs: null };
  await holder.call({
    type: 'write',
    unit,
    appends: [],
    kv: [change],
    documents: [],
    counters: [],
    evidence: [],
  });
  await Promise.all([put, other]);
  t.equal((await store.kv.get(['row'])).get('row')?.value, '3');
});

t.test('a unit writes once, and only for its own client', async (t) => {
  const opened = openInProcess(t.testdir());
  t.teardown(() => opened.close());
  const view = await View.replay(opened.connect(), ['a']);
  const [holder, stranger] = [new RawClient(opened), new RawClient(opened)];
  t.teardown(() => holder.port.close());
  t.teardown(() => stranger.port.close());
  const { unit } = await holder.hold(view);
  const write = { type: 'write', unit, kv: [], documents: [], counters: [], evidence: [] };
  const append = (value: string): object => ({ ...write, appends: [unkeyed('a', value)] });
  t.match(await stranger.call({ ...append('stranger') }), { ok: false, code: 'store_unavailable' });
  stranger.port.postMessage({ type: 'abort', unit });
  await settle();
  const answers: Answer[] = [];
  holder.port.on('message', (answer: Answer) => void answers.push(answer));
  holder.port.postMessage({ ...append('first'), id: 101 });
  holder.port.postMessage({ ...append('second'), id: 102 });
  await settle();
  t.same(answers.map(({ id, ok }) => [id, ok]).sort(), [
    [101, true],
    [102, false],
  ]);
  t.equal((await View.replay(view.store, ['a'])).bodies('a').length, 1);
});

t.test('a row that stays locked refuses the statement in time', async (t) => {
  const timers = new ManualTimers();
  const opened = openInProcess(t.testdir(), { clock: timers.clock });
  t.teardown(() => opened.close());
  const store = opened.connect();
  const view = await View.replay(store, ['a']);
  const holders = Array.from({ length: 2 }, () => new RawClient(opened));
  for (const holder of holders) {
    t.teardown(() => holder.port.close());
    void holder.hold(view, { kv: ['row'] });
  }
  await settle();
  const put = codeOf(() => store.kv.put('row', '2', null));
  await settle();
  for (let passed = 0; passed <= LOCK_WAIT_MAX_MS; passed += IDLE_HOLDER_MAX_MS / 4) {
    timers.pass(IDLE_HOLDER_MAX_MS / 4);
    await settle();
  }
  t.equal(await put, 'store_unavailable');
});
