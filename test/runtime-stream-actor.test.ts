import t from 'tap';
import type { StorageTypes } from '../src/actors/storage-types.js';
import { MustReopen } from '../src/runtime/actor.js';
import { CodedError, isFailure } from '../src/runtime/failure.js';
import { silentLog } from '../src/runtime/log.js';
import { seededRandom } from '../src/runtime/random.js';
import { StreamActor, type StreamBehaviour } from '../src/runtime/stream-actor.js';
import { ModelDatabase } from '../src/storage/model/model-database.js';
import { type ModelHooks, ModelStore } from '../src/storage/model/model-store.js';
import { StoreError } from '../src/storage/store-error.js';
import { manualClock } from './fixtures/device-replica.js';
import { keepAlive } from './fixtures/keep-alive.js';
import { alone, Gate } from './fixtures/toy-actor.js';

keepAlive(t);

/** The words that were said, in the order of the stream. */
const words: StreamBehaviour<string[], StorageTypes> = {
  follows: ['words'],
  writes: ['words'],
  emptyState: () => [],
  apply: (state, record) => {
    if (record.body === 'unreadable') throw new StoreError('incompatible', 'unreadable');
    state.push(record.body);
  },
  read: (state) => state.join(' '),
  needs: () => ({}),
  overlay: (state) => {
    const said: string[] = [];
    return {
      decide: (_, payload) => {
        const word = payload as string;
        if (word === 'bug') throw new TypeError('a bug');
        if (state.includes(word) || said.includes(word)) throw new CodedError('said', 'said');
        said.push(word);
        return state.length + said.length;
      },
      changes: () => ({
        appends: said.map((body) => ({ stream: 'words', key: null, body })),
        ...(said.includes('refused') ? { kv: [put('taken')] } : {}),
      }),
    };
  },
  inspect: () => ({}),
};
const put = (key: string) => ({ op: 'add', key, value: '', expiresAtMs: null }) as const;

async function open(hooks: ModelHooks = {}) {
  const clock = manualClock();
  const database = new ModelDatabase(clock, seededRandom(1));
  const store = new ModelStore(database, hooks);
  const another = new ModelStore(database);
  await another.kv.put('taken', '', null);
  const actors = [store, another].map(
    (own) => new StreamActor<string[], StorageTypes>('words', words, own, silentLog, alone),
  );
  for (const actor of actors) await actor.open();
  return { database, actor: actors[0]!, other: actors[1]! };
}
const say = (...said: string[]) => said.map((payload) => ({ kind: 'say', payload }));

t.test('a batch is decided in order on what the others committed, and applied once', async (t) => {
  const { actor, other } = await open();
  t.same(await other.write(say('one')), [1]);
  const answers = await actor.write(say('one', 'two', 'two', 'three'));
  t.ok(isFailure(answers[0]) && isFailure(answers[2]), 'said before, said in this batch');
  t.same([answers[1], answers[3]], [2, 3]);
  t.equal(actor.read('all', 0), 'one two three');
  await other.refresh();
  t.equal(other.read('all', 0), 'one two three');
  await actor.refresh();
  t.equal(actor.read('all', 0), 'one two three', 'its own records are not applied twice');
});

t.test(
  'a catch-up that comes back after a commit has moved the cursor changes nothing',
  async (t) => {
    const gate = new Gate();
    let held = false;
    const { actor, other } = await open({
      after: (operation) => {
        if (operation !== 'catchUp' || !held) return;
        held = false;
        return gate.opened;
      },
    });
    await other.write(say('one'));
    held = true;
    const slow = actor.refresh();
    await actor.write(say('two'));
    t.equal(actor.read('all', 0), 'one two');
    gate.open();
    await slow;
    t.equal(actor.read('all', 0), 'one two', 'neither applied twice nor gone back');
    await other.write(say('three'));
    await actor.refresh();
    t.equal(actor.read('all', 0), 'one two three');
  },
);

t.test('what a failed commit decided is forgotten', async (t) => {
  let failing = false;
  const { actor } = await open({
    before: (operation) => {
      if (failing && operation === 'commit') throw new StoreError('store_unavailable', 'gone');
    },
  });
  failing = true;
  t.match(await actor.write(say('one', 'two')), [
    { failure: 'store_unavailable' },
    { failure: 'store_unavailable' },
  ]);
  failing = false;
  t.equal(actor.read('all', 0), '');
  t.same(await actor.write(say('one')), [1]);
});

t.test('after an unknown outcome the next catch-up tells', async (t) => {
  let losing = false;
  const { actor } = await open({
    after: (operation) => {
      if (losing && operation === 'commit') throw new StoreError('outcome_unknown', 'lost');
    },
  });
  losing = true;
  t.match(await actor.write(say('one')), [{ failure: 'outcome_unknown' }]);
  t.equal(actor.read('all', 0), '', 'not applied on a guess');
  await actor.refresh();
  t.equal(actor.read('all', 0), 'one');
});

t.test('a write that the store refuses, or a bug in its decision, fails alone', async (t) => {
  const { actor } = await open();
  const answers = await actor.write(say('one', 'refused', 'two', 'bug', 'three'));
  t.match(answers[1], { failure: 'internal_error' });
  t.match(answers[3], { failure: 'internal_error' });
  t.same([answers[0], answers[2], answers[4]], [1, 2, 3]);
  t.equal(actor.read('all', 0), 'one two three');
});

t.test('another history means a replay, and a new epoch for everyone', async (t) => {
  const { database, actor, other } = await open();
  await actor.write(say('one'));
  const backup = database.remember();
  await actor.write(say('two', 'three'));
  database.restore(backup);
  await t.rejects(async () => actor.refresh(), MustReopen);
  await t.rejects(async () => other.refresh(), MustReopen);
  await actor.open();
  t.equal(actor.read('all', 0), 'one');
});

t.test('a record that this binary does not know makes the view worthless', async (t) => {
  const { actor, other } = await open();
  const own = other.write(say('unreadable'));
  await t.rejects(own, { name: 'MustReopen', code: 'outcome_unknown' }, 'it was committed');
  await t.rejects(async () => actor.refresh(), MustReopen);
  await t.rejects(actor.open(), { code: 'incompatible' });
});
