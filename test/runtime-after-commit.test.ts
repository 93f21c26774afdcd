/** What an actor does once its store has said that something is committed, and by itself. */
import t, { type Test } from 'tap';
import type { StorageTypes } from '../src/actors/storage-types.js';
import { ActorHost } from '../src/runtime/actor-host.js';
import { delay } from '../src/runtime/clock.js';
import { CodedError } from '../src/runtime/failure.js';
import { silentLog } from '../src/runtime/log.js';
import { seededRandom } from '../src/runtime/random.js';
import { SimulatedClock } from '../src/runtime/simulated-clock.js';
import { StreamActor, type StreamBehaviour } from '../src/runtime/stream-actor.js';
import { ModelDatabase } from '../src/storage/model/model-database.js';
import { ModelStore } from '../src/storage/model/model-store.js';
import { StoreError } from '../src/storage/store-error.js';
import { CapturedLog } from './fixtures/http-front.js';
import { asked, Gate, openToy } from './fixtures/toy-actor.js';

type Behaviour = StreamBehaviour<string[], StorageTypes>;

const words: Behaviour = {
  follows: ['words'],
  writes: ['words'],
  emptyState: () => [],
  apply: (state, record) => void state.push(record.body),
  read: (state) => state.join(' '),
  needs: () => ({}),
  overlay: () => {
    const said: string[] = [];
    return {
      decide: (_, payload) => {
        if (payload === 'refused') throw new CodedError('said', 'refused');
        return said.push(String(payload));
      },
      changes: () => ({ appends: said.map((body) => ({ stream: 'words', key: null, body })) }),
    };
  },
  inspect: () => ({}),
};

/** A host on a simulated clock; `commits` counts those that the store was asked for. */
async function open(t: Test, behaviour: Partial<Behaviour>) {
  const clock = new SimulatedClock();
  const database = new ModelDatabase(clock, seededRandom(1));
  const faults = { commit: undefined as StoreError | undefined, slowMs: 0 };
  let commits = 0;
  const store = new ModelStore(database, {
    before: (operation) => {
      if (operation !== 'commit') return undefined;
      commits += 1;
      if (faults.commit !== undefined) throw faults.commit;
      return faults.slowMs === 0 ? undefined : delay(clock, faults.slowMs);
    },
  });
  const log = new CapturedLog();
  const definition = {
    name: 'words',
    isWrite: (kind: string) => kind === 'say',
    create: (context: ConstructorParameters<typeof StreamActor>[4]) =>
      new StreamActor<string[], StorageTypes>(
        'words',
        { ...words, ...behaviour },
        store,
        log,
        context,
      ),
  };
  const environment = { clock, random: seededRandom(1), log: silentLog };
  const host = new ActorHost([definition], { ...environment, onExhausted: () => undefined });
  await host.open();
  t.teardown(() => host.close());
  const ref = host.localRef('words');
  const ask = async (kind: string, ...payloads: unknown[]): Promise<unknown[]> => {
    const answers: unknown[] = [];
    for (const payload of payloads) {
      void asked(ref, kind, payload).then((answer) => answers.push(answer));
    }
    await clock.runUntil(() => answers.length === payloads.length, 1_000);
    return answers;
  };
  return { host, ask, clock, log, faults, commits: () => commits };
}

t.test('what was committed is not done again when the news of it fail', async (t) => {
  let failing = false;
  const { ask, clock, commits } = await open(t, {
    news: () => {
      if (failing) throw new TypeError('a bug');
    },
  });
  failing = true;
  t.match(await ask('say', 'one', 'two'), [
    { failure: 'outcome_unknown' },
    { failure: 'outcome_unknown' },
  ]);
  failing = false;
  await clock.advance(1_000);
  t.same(await ask('all', 0), ['one two'], 'once each');
  t.equal(commits(), 1);
});

t.test('what is due is a write of its lane, one at a time, and says if it fails', async (t) => {
  const due = (state: string[]) => (state.includes('due') ? [] : [{ kind: 'say', payload: 'due' }]);
  const { host, ask, clock, log, faults, commits } = await open(t, { due });
  faults.commit = new StoreError('store_unavailable', 'gone');
  await clock.advance(5_500);
  t.equal(commits(), 5, 'with each round of background work');
  const warnings = log.lines.filter(({ level }) => level === 'warn');
  t.equal(warnings.length, 5);
  t.match(warnings[0], { kind: 'say', message: /due/ });
  Object.assign(faults, { commit: undefined, slowMs: 2_500 });
  await clock.advance(5_000);
  t.same(await ask('all', 0), ['due']);
  t.equal(commits(), 6, 'not while one is under way, and not again');
  const [snapshot] = host.snapshots();
  t.equal(snapshot?.commits, 6, 'counted as all writes are');
});

t.test('a drain waits for a read that was answered by a promise', async (t) => {
  const gate = new Gate();
  const { host, ref } = await openToy({ read: () => gate.opened.then(() => 'late') });
  t.teardown(() => host.close());
  const answer = asked(ref, 'slow', 0);
  let drained = false;
  const draining = host.drained().then(() => {
    drained = true;
  });
  for (let turn = 0; turn < 20; turn += 1) await new Promise(setImmediate);
  t.equal(drained, false);
  gate.open();
  t.equal(await answer, 'late');
  await draining;
});
