/** What goes wrong in a run, when, and for how long; drawn from the run's seed. */
import { delay } from '../../src/runtime/clock.js';
import { FORMAT_NEWEST } from '../../src/storage/envelope.js';
import { ModelStore } from '../../src/storage/model/model-store.js';
import type { StoredRecord } from '../../src/storage/store.js';
import { StoreError } from '../../src/storage/store-error.js';
import type { Life } from './lives.js';
import type { FaultPeriods } from './settings.js';
import type { World } from './world.js';

/** A store that is down longer is an outage that operators see; what is to be shown is shorter. */
const STORE_DOWN_MAX_MS = 2_500;
/** How far the store's clock is set: less than a token's longest life, more than an overlap. */
const CLOCK_STEP_MAX_MS = 20_000;
/** Asks of one burst: more than the small lanes hold. */
const BURST_ASKS = 60;

/** Starts every kind of fault that the settings turn on; each ends when the run becomes calm. */
export function startFaults(world: World, lives: readonly Life[]): void {
  const { faults } = world.settings;
  for (const [name, periodMs] of Object.entries(faults) as [keyof FaultPeriods, number][]) {
    if (periodMs > 0) void recur(world, periodMs, () => MAKE[name](world, lives));
  }
  if (world.settings.upgrades) void finishUpgrade(world);
}

async function recur(
  world: World,
  periodMs: number,
  happen: () => void | Promise<void>,
): Promise<void> {
  for (;;) {
    await delay(world.clock, world.faultDice.pauseMs(periodMs));
    if (world.calm) return;
    await happen();
  }
}

const MAKE: {
  readonly [Name in keyof FaultPeriods]: (
    world: World,
    lives: readonly Life[],
  ) => void | Promise<void>;
} = {
  pauseMs: ({ faultDice, replicas }) => {
    const replica = faultDice.pick(replicas);
    if (!replica.paused) replica.pause(faultDice.between(50, 3_000));
  },
  stallMs: ({ faultDice, replicas }) => {
    const thread = faultDice.pick(['front', 'actors'] as const);
    faultDice.pick(replicas).stall(thread, faultDice.between(10, 1_500));
  },
  processCrashMs: ({ faultDice, replicas }) => faultDice.pick(replicas).crash(),
  actorThreadCrashMs: ({ faultDice, replicas }) => faultDice.pick(replicas).crashActorThread(),
  storeRestartMs: async (world) => {
    await storeDown(world);
    world.server.start();
  },
  storeRestoreMs: restore,
  storeClockStepMs: ({ faultDice, storeTime, trace }) => {
    const stepMs = faultDice.whole(-CLOCK_STEP_MAX_MS, CLOCK_STEP_MAX_MS);
    trace.note(`the store's clock is set by ${stepMs} ms`);
    storeTime.step(stepMs);
  },
  rewriteMs: rewrite,
  burstMs: burst,
};

async function storeDown({ clock, faultDice, server, trace }: World): Promise<void> {
  trace.note('the store goes down');
  server.stop();
  await delay(clock, faultDice.between(10, STORE_DOWN_MAX_MS));
  trace.note('the store is back');
}

async function restore(world: World): Promise<void> {
  world.takeBackup();
  await delay(world.clock, world.faultDice.pauseMs(1_000));
  if (world.calm) return;
  await storeDown(world);
  world.restore();
}

async function finishUpgrade({ clock, faultDice, server, settings, trace }: World): Promise<void> {
  await delay(clock, faultDice.between(0, settings.stormMs));
  trace.note('the upgrade is finished: the newer format is written');
  server.database.writeFormat = FORMAT_NEWEST;
}

/**
 * Another program writes a device's record again just as it is, as an import or a change of format
 * does: full state under the same key, decided under the lock. Whatever is sticky must outlive it.
 */
async function rewrite({ faultDice, server, trace }: World): Promise<void> {
  if (server.down) return;
  const stream = 'devices';
  const store = new ModelStore(server.database);
  const live = new Map<string, StoredRecord>();
  const note = (records: readonly StoredRecord[]): void => {
    for (const record of records)
      if (record.key?.startsWith('device/')) live.set(record.key, record);
  };
  const position = await store.replay([stream], note);
  if (live.size === 0) return;
  try {
    await store.commit({ streams: [stream], position }, (locked) => {
      note(locked.records);
      const { key, body } = faultDice.pick([...live.values()]);
      trace.note(`a record of ${key} is written again`);
      return { appends: [{ stream, key, body }] };
    });
  } catch (error) {
    if (!(error instanceof StoreError)) throw error;
  }
}

function burst({ clientDice, replicas }: World, lives: readonly Life[]): void {
  const life = clientDice.pick(lives);
  const credential = life.credentials.at(-1);
  if (credential === undefined) return;
  const replica = clientDice.pick(replicas);
  for (let ask = 0; ask < BURST_ASKS; ask += 1) {
    void life.ask({ kind: 'authenticate', credential }, replica);
  }
}
