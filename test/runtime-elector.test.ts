/**
 * The elector on a simulated clock: whatever happens to it, a process acts under a term only while
 * the store has that term, so no two ever act at once.
 */
import t from 'tap';
import { LEASE_TTL_MAX_MS, LEASE_TTL_MIN_MS, leaseTiming } from '../src/runtime/lease.js';
import { seededRandom } from '../src/runtime/random.js';
import { SimulatedClock } from '../src/runtime/simulated-clock.js';
import { STEP_DOWN_PREFIX } from '../src/storage/lease-table.js';
import { ModelDatabase } from '../src/storage/model/model-database.js';
import { StoreError } from '../src/storage/store-error.js';
import { type ElectingOptions, ElectingProcess } from './fixtures/electing-process.js';

const TTL_MS = 3_000;
/** What the random weather is looked at: fifty times in the shortest margin. */
const LOOK_EVERY_MS = 20;

interface World {
  readonly clock: SimulatedClock;
  readonly database: ModelDatabase;
  readonly processes: ElectingProcess[];
  add(options?: Partial<ElectingOptions>): ElectingProcess;
  /** Lets time pass, and looks at each step whether anybody trusts what is not so. */
  pass(ms: number, stepMs?: number): Promise<void>;
  /** Passes until somebody leads, or throws after that long. */
  untilLed(withinMs: number): Promise<ElectingProcess>;
}

function newWorld(seed = 1): World {
  const clock = new SimulatedClock();
  const random = seededRandom(seed);
  const database = new ModelDatabase(clock, seededRandom(seed + 1));
  const processes: ElectingProcess[] = [];
  const check = (): void => {
    for (const process of processes) {
      for (const fence of process.trusted()) {
        if (database.leases.holds(fence, clock.wallMs())) continue;
        throw new Error(`seed ${seed}: ${fence.holder} trusts a term that is over`);
      }
    }
  };
  const pass = async (ms: number, stepMs = 5): Promise<void> => {
    for (let passed = 0; passed < ms; passed += stepMs) {
      await clock.advance(Math.min(stepMs, ms - passed));
      check();
    }
  };
  return {
    clock,
    database,
    processes,
    pass,
    add: (options = {}) => {
      const name = `p${processes.length}`;
      const process = new ElectingProcess({
        name,
        clock,
        random,
        database,
        ttlMs: TTL_MS,
        ...options,
      });
      processes.push(process);
      process.elector.start();
      return process;
    },
    untilLed: async (withinMs) => {
      for (let passed = 0; passed <= withinMs; passed += 1) {
        const leader = processes.find((one) => one.trusted().length > 0);
        if (leader !== undefined) return leader;
        await pass(1);
      }
      throw new Error(`nobody leads after ${withinMs} ms`);
    },
  };
}

function missing(): never {
  throw new Error('it never led');
}

const unavailable = (): never => {
  throw new StoreError('store_unavailable', 'cut off');
};

t.test(
  'a lease’s times keep their order, and a life outside of the bounds is refused',
  async (t) => {
    for (const ttlMs of [LEASE_TTL_MIN_MS, 1_500, 15_000, LEASE_TTL_MAX_MS]) {
      const timing = leaseTiming(ttlMs);
      t.ok(timing.renewEveryMs * 2 <= timing.trustMs + 1e-9, 'one lost renewal ends no term');
      t.ok(timing.trustMs + timing.windUpMs < ttlMs, 'work has stopped before others may lead');
      t.ok(timing.retryMs * 1.5 < timing.renewEveryMs);
      t.ok(timing.hintedCampaignMs > 1_000, 'an idle candidate asks less than once a second');
    }
    for (const ttlMs of [0, 999, 300_001, Number.NaN]) {
      t.throws(() => leaseTiming(ttlMs), RangeError, String(ttlMs));
    }
  },
);

t.test('of three one leads, and goes on under one token as long as it renews', async (t) => {
  const world = newWorld();
  for (let i = 0; i < 3; i += 1) world.add();
  const leader = await world.untilLed(100);
  await world.pass(10 * TTL_MS);
  t.equal(leader.begun.length, 1);
  t.equal(leader.ended.length, 0);
  t.ok(leader.trusted().length === 1, 'it still leads');
  for (const other of world.processes.filter((one) => one !== leader)) {
    t.equal(other.begun.length, 0);
    t.match(other.elector.inspect(), [{ isLeader: false, holder: 'p0.1', changes: 1 }]);
  }
  t.match(leader.elector.inspect(), [{ isLeader: true, holder: 'p0.1', changes: 1 }]);
});

t.test('a leader that stops gives its lease to another within half a second', async (t) => {
  const world = newWorld();
  const first = world.add();
  await world.untilLed(100);
  const second = world.add();
  await world.pass(TTL_MS);
  const stopped = first.elector.stop();
  await world.pass(600);
  await stopped;
  t.equal((await world.untilLed(0)).begun[0]?.fence.holder, 'p1.1');
  t.ok((second.begun[0]?.fence.token ?? 0) > (first.begun[0]?.fence.token ?? 0));
  t.equal(first.ended.length, 1);
  await first.elector.stop();
  const late = world.add();
  await late.elector.stop();
  await late.elector.stop();
});

t.test(
  'a process stopped for any time around its lease’s bounds acts under no old term',
  async (t) => {
    const { renewEveryMs, trustMs, ttlMs } = leaseTiming(TTL_MS);
    for (const boundMs of [renewEveryMs, trustMs, ttlMs, ttlMs + renewEveryMs]) {
      for (const offMs of [-2, -1, 0, 1, 2]) {
        const world = newWorld();
        const first = world.add();
        await world.untilLed(100);
        world.add();
        await world.pass(100);
        const [before] = first.begun;
        first.pause(boundMs + offMs);
        await world.pass(boundMs + offMs + 3 * ttlMs);
        const text = `stopped for ${boundMs + offMs} ms`;
        t.equal(world.processes.flatMap((one) => one.trusted()).length, 1, `one leads: ${text}`);
        // It renewed 100 ms before it was stopped at the latest, and up to a renewal earlier.
        if (boundMs + offMs > ttlMs) {
          t.equal(first.ended.length, 1, `its term ended: ${text}`);
          t.not(first.trusted()[0]?.token, before?.fence.token, text);
        }
      }
    }
  },
);

t.test('a partition at any step of a renewal ends the term in time, and no other', async (t) => {
  for (const step of ['before', 'after'] as const) {
    for (const kind of ['refused', 'silent', 'slow'] as const) {
      for (let nth = 1; nth <= 3; nth += 1) {
        const world = newWorld();
        const first = world.add();
        await world.untilLed(100);
        world.add();
        await world.pass(10);
        let seen = 0;
        const fault = (): void | Promise<void> => {
          seen += 1;
          if (seen < nth) return undefined;
          if (kind === 'refused') return unavailable();
          // A store bounds every call; a slow answer comes after the term may be another's.
          return first.wait(kind === 'silent' ? TTL_MS / 3 : TTL_MS + 200).then(() => {
            if (kind === 'silent') unavailable();
          });
        };
        first.hooks = { [step]: fault };
        await world.pass(4 * TTL_MS);
        const text = `${kind} ${step} the store, from claim ${nth}`;
        t.ok(first.ended.length >= 1, `the term ended: ${text}`);
        t.equal(world.processes[1]?.begun.length, 1, `the other leads: ${text}`);
        first.hooks = {};
        await world.pass(TTL_MS);
        t.equal(first.trusted().length, 0, `and goes on leading: ${text}`);
      }
    }
  }
});

t.test('one lost answer ends no term', async (t) => {
  const world = newWorld();
  const first = world.add();
  await world.untilLed(100);
  let lost = 0;
  first.hooks = {
    after: () => {
      lost += 1;
      if (lost === 1) unavailable();
    },
  };
  await world.pass(3 * TTL_MS);
  t.ok(lost > 1);
  t.equal(first.ended.length, 0);
});

t.test('who was refused, fenced or asked to step down never resumes that term', async (t) => {
  const world = newWorld();
  const first = world.add();
  const holders = new Set<string>();
  for (const why of ['refused', 'fenced', 'asked', 'row lost'] as const) {
    await world.untilLed(4 * TTL_MS);
    const { fence } = first.begun.at(-1) ?? missing();
    t.notOk(holders.has(fence.holder), `a new holder id before ${why}`);
    holders.add(fence.holder);
    if (why === 'refused') {
      world.database.leases.release(fence, world.clock.wallMs());
      const thief = { lease: 'l', holder: 'thief' };
      const stolen = world.database.leases.claim(thief, 500, world.clock.wallMs());
      first.board.clear('l');
      t.ok(stolen.granted);
    }
    if (why === 'fenced') first.elector.fenced(fence);
    if (why === 'asked') {
      const nowMs = world.clock.wallMs();
      const value = String(fence.token);
      const expiresAtMs = nowMs + TTL_MS;
      const key = `${STEP_DOWN_PREFIX}l`;
      world.database.tables.changeValue({ op: 'put', key, value, expiresAtMs }, nowMs);
    }
    if (why === 'row lost') {
      world.database.leases.forget('l');
      first.board.clear('l');
    }
    await world.pass(TTL_MS + 500);
    t.ok(
      first.ended.some((one) => one.fence.token === fence.token),
      `it ended when ${why}`,
    );
    t.notOk(first.board.isTrusted(fence));
  }
  const tokens = first.begun.map(({ fence }) => fence.token);
  t.same(
    tokens,
    [...new Set(tokens)].sort((a, b) => a - b),
    'tokens grow, a lost row included',
  );
});

t.test('who steps down because somebody asked lets the others go first', async (t) => {
  const world = newWorld();
  const first = world.add();
  await world.untilLed(100);
  const second = world.add();
  await world.pass(100);
  const { fence } = first.begun[0] ?? missing();
  const nowMs = world.clock.wallMs();
  const put = { value: String(fence.token), expiresAtMs: nowMs + TTL_MS };
  const key = `${STEP_DOWN_PREFIX}l`;
  world.database.tables.changeValue({ op: 'put', key, ...put }, nowMs);
  await world.pass(TTL_MS / 3 + 600);
  t.equal(second.begun.length, 1);
  await world.pass(3 * TTL_MS);
  t.equal(first.begun.length, 1);
  t.equal(second.ended.length, 0, 'the wish was for one term and not for the next');
});

t.test(
  'a lease that was granted too late to be trusted is given back, not led under',
  async (t) => {
    const world = newWorld();
    const late = world.add();
    late.hooks = { after: () => late.wait(leaseTiming(TTL_MS).trustMs + 10) };
    await world.pass(10);
    const other = world.add();
    await world.pass(3 * TTL_MS);
    t.equal(late.begun.length, 0);
    t.ok(other.begun.length > 0, 'and the other need not wait for long');
  },
);

t.test('a term’s work has stopped before the lease is given back', async (t) => {
  const world = newWorld();
  const windUpMs = 300;
  const first = world.add({ windUpMs });
  await world.untilLed(100);
  const stopped = first.elector.stop();
  const [row] = world.database.leases.list(world.clock.wallMs());
  t.ok((row?.remainingMs ?? 0) > 0);
  await world.pass(windUpMs - 5);
  t.ok((world.database.leases.list(world.clock.wallMs())[0]?.remainingMs ?? 0) > 0);
  await world.pass(20);
  await stopped;
  t.ok((world.database.leases.list(world.clock.wallMs())[0]?.remainingMs ?? 1) <= 0);
});

t.test('fifty leases are asked for in one claim, and each has a term of its own', async (t) => {
  const world = newWorld();
  const leases = Array.from({ length: 50 }, (_, i) => `l${i}`);
  const process = world.add({ leases });
  await world.pass(100);
  t.equal(process.trusted().length, 50);
  t.equal(process.claims, 1);
  await world.pass(10 * TTL_MS);
  t.ok(process.claims < 40, `${process.claims} claims for fifty leases`);
  process.elector.fenced(process.begun[7]?.fence ?? missing());
  t.equal(process.trusted().length, 49, 'one that ends takes no other with it');
});

t.test('in random weather nobody ever trusts a term that the store does not have', async (t) => {
  const rounds = Number(process.env.ROUNDS ?? 30);
  const firstSeed = Number(process.env.SEED ?? Math.floor(Math.random() * 1e9));
  t.comment(`SEED=${firstSeed}`);
  for (let seed = firstSeed; seed < firstSeed + rounds; seed += 1) {
    const random = seededRandom(seed);
    const world = newWorld(seed);
    const count = 2 + Math.floor(random.fraction() * 4);
    for (let i = 0; i < count; i += 1) {
      const process = world.add({ windUpMs: random.fraction() * 300 });
      const fault = (): void | Promise<void> => {
        const luck = random.fraction();
        if (luck < 0.1) return unavailable();
        if (luck < 0.3) return process.wait(random.fraction() * 2 * TTL_MS);
        if (luck < 0.8) return process.wait(random.fraction() * 20);
        return undefined;
      };
      process.hooks = { before: fault, after: fault };
    }
    for (let blow = 0; blow < 12; blow += 1) {
      await world.pass(random.fraction() * TTL_MS, LOOK_EVERY_MS);
      const victim = world.processes[Math.floor(random.fraction() * count)];
      if (random.fraction() < 0.7) victim?.pause(random.fraction() * 2 * TTL_MS);
      const [fence] = victim?.trusted() ?? [];
      if (fence !== undefined && random.fraction() < 0.3) victim?.elector.fenced(fence);
    }
    for (const process of world.processes) process.hooks = {};
    await world.pass(4 * TTL_MS, LOOK_EVERY_MS);
    const leading = world.processes.filter((one) => one.trusted().length > 0);
    t.equal(leading.length, 1, `SEED=${seed}: exactly one leads when the weather is good`);
    const begun = world.processes.flatMap((one) => one.begun);
    const tokens = begun.sort((a, b) => a.atMs - b.atMs).map(({ fence }) => fence.token);
    t.same(
      tokens,
      [...new Set(tokens)].sort((a, b) => a - b),
      `SEED=${seed}: tokens grow`,
    );
    const holders = begun.map(({ fence }) => fence.holder);
    t.equal(new Set(holders).size, holders.length, `SEED=${seed}: no holder leads twice`);
  }
});
