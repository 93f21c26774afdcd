/** Effects of leaders that are stopped in their middle: what may come twice, and what never. */
import t from 'tap';
import { INTENT_KIND, type IntentRecord, performFenced } from '../src/actors/intents.js';
import { type Effect, EffectRegistry } from '../src/effects/effect.js';
import { seededRandom } from '../src/runtime/random.js';
import { SimulatedClock } from '../src/runtime/simulated-clock.js';
import type { ActiveTerm } from '../src/runtime/thread-terms.js';
import { ModelDatabase } from '../src/storage/model/model-database.js';
import { ModelLeases } from '../src/storage/model/model-leases.js';
import { ModelStore } from '../src/storage/model/model-store.js';
import { ActingProcess, type ActingWorld } from './fixtures/acting-process.js';
import { Dice } from './simulation/dice.js';

const SEED = Number(process.env['SEED'] ?? 1);
const ROUNDS = Number(process.env['ROUNDS'] ?? 200);
const PROCESSES = 3;
const ROUND_MS = 15_000;

interface Played {
  readonly world: ActingWorld;
  readonly intents: ReadonlyMap<string, IntentRecord>;
}

async function play(seed: number): Promise<Played> {
  const dice = new Dice(seed);
  const clock = new SimulatedClock();
  const database = new ModelDatabase(clock, seededRandom(seed));
  const canLookUp = dice.chance(0.5);
  const world: ActingWorld = { clock, database, seen: [], begun: new Map(), canLookUp };
  const processes = Array.from(
    { length: PROCESSES },
    (_, index) => new ActingProcess(`p${index}`, world, seed * 10 + index),
  );
  const stopOne = (): void => {
    const one = dice.pick(processes);
    one.stop();
    clock.schedule(() => one.goOn(), dice.between(0, 3_000));
    clock.schedule(stopOne, dice.pauseMs(700));
  };
  clock.schedule(stopOne, dice.pauseMs(700));
  await clock.runUntil(() => clock.monotonicMs() >= ROUND_MS, ROUND_MS + 1);
  const intents = new Map<string, IntentRecord>();
  const store = new ModelStore(database);
  for (const { id, body } of await store.listDocuments(INTENT_KIND, '', 10_000)) {
    intents.set(id, JSON.parse(body) as IntentRecord);
  }
  return { world, intents };
}

/** What went wrong, a line each. */
function faultsOf({ world, intents }: Played): string[] {
  const faults: string[] = [];
  const arrived = new Map<string, number>();
  for (const { key, process, token, sentMs, atMs } of world.seen) {
    for (const [newer, begunMs] of world.begun) {
      if (newer > token && sentMs >= begunMs) {
        faults.push(`${process} began ${key} under ${token} when ${newer} had begun`);
      }
    }
    const firstMs = arrived.get(key);
    if (firstMs === undefined) arrived.set(key, atMs);
    else if (world.canLookUp && sentMs > firstMs) {
      faults.push(`${process} did ${key} again, which could be looked up`);
    }
  }
  let before = 0;
  for (let number = 0; number < intents.size; number += 1) {
    const record = intents.get(`effect-${number}`);
    if (record === undefined) {
      faults.push(`effect-${number} was left out`);
      continue;
    }
    if (record.status === 'done' && !arrived.has(`effect-${number}`)) {
      faults.push(`effect-${number} is said to be done and is not`);
    }
    if (record.token < before) faults.push(`effect-${number} was written under an old token`);
    before = record.token;
  }
  return faults;
}

t.test('leaders that are stopped in the middle of effects, in seeded rounds', async (t) => {
  let effects = 0;
  let repeats = 0;
  let terms = 0;
  for (let round = 0; round < ROUNDS; round += 1) {
    const played = await play(SEED + round);
    const faults = faultsOf(played);
    if (faults.length > 0) t.fail(`seed ${SEED + round}: ${faults.slice(0, 3).join('; ')}`);
    effects += new Set(played.world.seen.map(({ key }) => key)).size;
    repeats += played.world.seen.length;
    terms += played.world.begun.size;
  }
  repeats -= effects;
  t.comment(`seeds ${SEED} to ${SEED + ROUNDS - 1}: ${effects} effects, ${repeats} repeats`);
  t.ok(effects > ROUNDS * 20, `${effects} effects`);
  t.ok(repeats > 0, `${repeats} came twice: there were faults in their middle`);
  t.ok(terms > ROUNDS * 2, `${terms} terms`);
});

/** One store, one term, and effects that the test decides on. */
async function oneTerm(): Promise<{
  store: ModelStore;
  leases: ModelLeases;
  term: ActiveTerm & { isOver: boolean };
  clock: SimulatedClock;
}> {
  const clock = new SimulatedClock();
  const database = new ModelDatabase(clock, seededRandom(1));
  const leases = new ModelLeases(database);
  const [claimed] = await leases.claim([{ lease: 'l', holder: 'a' }], 10_000);
  const fence = { lease: 'l', holder: 'a', token: claimed?.token ?? 0 };
  const term = {
    fence,
    signal: new AbortController().signal,
    isOver: false,
    isTrusted: () => !term.isOver,
  };
  return { store: new ModelStore(database), leases, term, clock };
}

function noted(done: string[], lookUp: Effect['lookUp'] = async () => 'unknown'): EffectRegistry {
  const perform: Effect['perform'] = async (key) => {
    done.push(key);
  };
  return new EffectRegistry([{ kind: 'noted', lookUp, perform }]);
}

const INTENT = { key: 'k', kind: 'noted', payload: 'p' };

t.test('an intent that the fence refuses begins no effect', async (t) => {
  const { store, leases, term } = await oneTerm();
  await leases.release([term.fence]);
  const done: string[] = [];
  await t.rejects(performFenced({ store, effects: noted(done) }, term, INTENT), { code: 'fenced' });
  t.same(done, []);
});

t.test('a term that is over between the intent and the effect begins none', async (t) => {
  const { store, term } = await oneTerm();
  term.isOver = true;
  const done: string[] = [];
  const acting = performFenced({ store, effects: noted(done) }, term, INTENT);
  await t.rejects(acting, { code: 'term_over' });
  t.same(done, []);
});

t.test('what is known to be done is not done again; what cannot be known is', async (t) => {
  const { store, term } = await oneTerm();
  const done: string[] = [];
  t.equal(await performFenced({ store, effects: noted(done) }, term, INTENT), 'performed');
  t.equal(await performFenced({ store, effects: noted(done) }, term, INTENT), 'known');
  t.same(done, ['k']);
  const failing = new EffectRegistry([
    {
      kind: 'noted',
      lookUp: async () => 'unknown',
      perform: () => Promise.reject(new Error('cut off')),
    },
  ]);
  const other = { ...INTENT, key: 'other' };
  await t.rejects(performFenced({ store, effects: failing }, term, other), { message: 'cut off' });
  const found = noted(done, async () => 'done');
  t.equal(await performFenced({ store, effects: found }, term, other), 'known');
  t.same(done, ['k'], 'the look-up found it');
  const third = { ...INTENT, key: 'third' };
  await t.rejects(performFenced({ store, effects: failing }, term, third), { message: 'cut off' });
  t.equal(await performFenced({ store, effects: noted(done) }, term, third), 'performed');
  t.same(done, ['k', 'third']);
  const unknown = { ...INTENT, kind: 'nothing' };
  await t.rejects(performFenced({ store, effects: noted(done) }, term, unknown), {
    code: 'effect_unknown',
  });
});
