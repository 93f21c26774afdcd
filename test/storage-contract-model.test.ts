import t from 'tap';
import { type Clock, systemClock } from '../src/runtime/clock.js';
import { seededRandom } from '../src/runtime/random.js';
import { ModelDatabase } from '../src/storage/model/model-database.js';
import { ModelLeases } from '../src/storage/model/model-leases.js';
import { ModelStore } from '../src/storage/model/model-store.js';
import { StoreError } from '../src/storage/store-error.js';
import { linkerOfTheModel } from './fixtures/contract-evidence.js';
import { body, codeOf, unkeyed, View } from './storage-contract/view.js';
import { registerStorageContract } from './storage-contract.js';

/** A clock that stands still until it is moved on. */
function manualClock(): Clock & { advance(ms: number): void } {
  let nowMs = 1_790_000_000_000;
  return {
    ...systemClock,
    wallMs: () => nowMs,
    advance: (ms) => {
      nowMs += ms;
    },
  };
}

registerStorageContract({
  name: 'model',
  open: async () => {
    const clock = manualClock();
    const database = new ModelDatabase(clock, seededRandom(1));
    const stores = [new ModelStore(database, {}, linkerOfTheModel)];
    return {
      store: stores[0]!,
      another: async () => {
        const store = new ModelStore(database, {}, linkerOfTheModel);
        stores.push(store);
        return store;
      },
      leases: () => new ModelLeases(database),
      advance: clock.advance,
      rememberForRestore: async () => {
        const backup = database.remember();
        return async () => database.restore(backup);
      },
      close: async () => void (await Promise.all(stores.map((store) => store.close()))),
    };
  },
});

t.test(
  'model: a hook refuses before or loses the answer after, and the data shows it',
  async (t) => {
    const database = new ModelDatabase(manualClock(), seededRandom(1));
    let faults: { before?: string; after?: string } = {};
    const fail = (code: string | undefined): void => {
      if (code !== undefined) throw new StoreError(code as 'store_unavailable', 'injected');
    };
    const store = new ModelStore(database, {
      before: () => fail(faults.before),
      after: () => fail(faults.after),
    });
    const view = await View.replay(store, ['a']);
    faults = { before: 'store_unavailable' };
    t.equal(await codeOf(() => view.append(unkeyed('a', 1))), 'store_unavailable');
    faults = { after: 'outcome_unknown' };
    t.equal(await codeOf(() => view.append(unkeyed('a', 2))), 'outcome_unknown');
    faults = {};
    t.same(
      (await view.catchUp()).map((record) => record.body),
      [body(2)],
    );
  },
);

t.test(
  'model: a delayed answer is as old as its step, and an undelayed one synchronous',
  async (t) => {
    const database = new ModelDatabase(manualClock(), seededRandom(1));
    let release: () => void = () => undefined;
    const slow = new ModelStore(database, {
      after: (operation) =>
        operation === 'catchUp'
          ? new Promise<void>((resolve) => {
              release = resolve;
            })
          : undefined,
    });
    const view = await View.replay(new ModelStore(database), ['a']);
    const old = slow.catchUp(view.position);
    await view.append(unkeyed('a', 1));
    release();
    t.same((await old).records, []);
    t.notOk(view.store.catchUp(view.position) instanceof Promise);
  },
);
