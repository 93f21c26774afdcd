/**
 * What may overtake what in a stream actor; found by the simulation, and fixed here in a few
 * lines.
 */
import t from 'tap';
import type { StorageTypes } from '../src/actors/storage-types.js';
import { silentLog } from '../src/runtime/log.js';
import { seededRandom } from '../src/runtime/random.js';
import { StreamActor, type StreamBehaviour } from '../src/runtime/stream-actor.js';
import { ModelDatabase } from '../src/storage/model/model-database.js';
import { type ModelHooks, ModelStore } from '../src/storage/model/model-store.js';
import type { CatchUp, Position } from '../src/storage/store.js';
import { StoreError } from '../src/storage/store-error.js';
import { manualClock } from './fixtures/device-replica.js';
import { keepAlive } from './fixtures/keep-alive.js';
import { alone, Gate } from './fixtures/toy-actor.js';

keepAlive(t);

/** The newest value of each key. */
const values: StreamBehaviour<Map<string, string>, StorageTypes> = {
  follows: ['values'],
  writes: ['values'],
  emptyState: () => new Map(),
  apply: (state, { key, body }) => void state.set(key ?? '', body),
  read: (state) => [...state].map(([key, body]) => `${key}=${body}`).join(' '),
  needs: () => ({}),
  overlay: () => {
    const appends: { stream: string; key: string; body: string }[] = [];
    return {
      decide: (_, payload) => {
        const [key, body] = payload as [string, string];
        if (key === 'refused') throw new TypeError('a bug');
        appends.push({ stream: 'values', key, body });
        return 'set';
      },
      changes: () => ({ appends }),
    };
  },
  inspect: () => ({}),
};

/** Returns one record at a time. */
class PagedDatabase extends ModelDatabase {
  override catchUp(position: Position, limit = 1): CatchUp {
    return super.catchUp(position, limit);
  }
}

async function open(hooks: ModelHooks = {}, paged = false) {
  const random = seededRandom(1);
  const database = new (paged ? PagedDatabase : ModelDatabase)(manualClock(), random);
  const actors = [new ModelStore(database, hooks), new ModelStore(database)].map(
    (store) => new StreamActor('values', values, store, silentLog, alone),
  );
  for (const actor of actors) await actor.open();
  return { database, actor: actors[0]!, other: actors[1]! };
}
const set = (...pairs: [string, string][]) => pairs.map((payload) => ({ kind: 'set', payload }));

t.test('a catch-up does not count as done between two pages of another', async (t) => {
  const gates: Gate[] = [];
  let gated = false;
  const { actor, other } = await open(
    {
      after: (operation) => {
        if (!gated || operation !== 'catchUp') return;
        const gate = new Gate();
        gates.push(gate);
        return gate.opened;
      },
    },
    true,
  );
  gated = true;
  await other.write(set(['a', '1']));
  // Brings a=1, but is on its way for long.
  const slow = actor.refresh();
  await other.write(set(['b', '1'], ['a', '2']));
  // Its first page is b=1, and the cursor passes a=1.
  const paging = actor.refresh();
  const seen = Promise.resolve(slow).then(() => actor.read('all', 0));
  gates[1]!.open();
  await new Promise(setImmediate);
  gates[0]!.open();
  await new Promise(setImmediate);
  for (let page = 2; page < gates.length; page += 1) {
    gates[page]!.open();
    await new Promise(setImmediate);
  }
  await paging;
  t.equal(await seen, 'b=1 a=2', 'it waits for the pages, since what it brought was dropped');
});

t.test('nobody is told that nothing happened when half of a batch is committed', async (t) => {
  let commits = 0;
  const { actor } = await open({
    before: (operation) => {
      if (operation !== 'commit') return;
      commits += 1;
      // The whole batch is refused, its first half is committed, then the history changes.
      if (commits === 1) throw new StoreError('write_refused', 'not all of it');
      if (commits === 3) throw new StoreError('history_changed', 'restored');
    },
  });
  await t.rejects(actor.write(set(['a', '1'], ['b', '1'])), {
    name: 'MustReopen',
    code: 'outcome_unknown',
  });
});

t.test('a changed history is noticed on a later page, too', async (t) => {
  let pages = 0;
  const { actor, other } = await open(
    {
      before: (operation) => {
        if (operation !== 'catchUp') return;
        pages += 1;
        if (pages === 3) throw new StoreError('history_changed', 'restored');
      },
    },
    true,
  );
  await other.write(set(['a', '1'], ['b', '1'], ['c', '1']));
  await t.rejects(async () => actor.refresh(), { name: 'MustReopen' });
});
