/**
 * What kind of run a seed is. Every run turns some faults on and others off and draws its own
 * sizes, since a run with everything at once seldom gets far enough to show what two faults do
 * together.
 */
import type { ActorBounds } from '../../src/runtime/actor.js';
import { Dice } from './dice.js';

/** How often each kind of disturbance happens, as a mean time between two of them; 0: never. */
export interface FaultPeriods {
  /** A process is stopped and continued (SIGSTOP, SIGCONT). */
  readonly pauseMs: number;
  /** One thread of a process does not come to its events. */
  readonly stallMs: number;
  readonly processCrashMs: number;
  readonly actorThreadCrashMs: number;
  /** The store is down for a while and comes back with all it had. */
  readonly storeRestartMs: number;
  /** The store comes back with what it had some time ago. */
  readonly storeRestoreMs: number;
  readonly storeClockStepMs: number;
  /** Somebody writes device records again as they are, as a change of their format would. */
  readonly rewriteMs: number;
  /** More asks in one turn than the lanes hold. */
  readonly burstMs: number;
}

/** How the store answers while there are faults; chances are per operation. */
export interface StoreWeather {
  /** Catch-ups answer in the same turn, as those of the file backend may. */
  readonly synchronousCatchUps: boolean;
  readonly delayMaxMs: number;
  readonly slowChance: number;
  readonly slowMaxMs: number;
  /** The answer alone takes long, so that answers overtake each other. */
  readonly lateChance: number;
  readonly lateMaxMs: number;
  /** Nothing is done: `store_unavailable`. */
  readonly refuseChance: number;
  /** Decided, but the connection breaks before the commit: `store_unavailable`. */
  readonly breakChance: number;
  /** All is done and the answer is lost: `outcome_unknown`. */
  readonly loseChance: number;
  /** The process is stopped just when an answer of the store is on its way to it. */
  readonly pauseAfterChance: number;
  /** A catch-up ends in a bug, which restarts the actor. */
  readonly bugChance: number;
}

export interface Settings {
  readonly replicas: number;
  readonly busDelayMaxMs: number;
  /** Only one replica's answers from the store are late: the others go on meanwhile. */
  readonly oneIsLate: boolean;
  readonly bounds: Partial<ActorBounds>;
  /** Records that a catch-up returns at most. */
  readonly pageMax: number;
  /** Whether the store starts with the older format and is told the newer one in the middle. */
  readonly upgrades: boolean;
  readonly weather: StoreWeather;
  readonly faults: FaultPeriods;
  /** Devices that come to be in the run. */
  readonly lives: number;
  /** Few devices that are changed all the time, from everywhere at once. */
  readonly crowded: boolean;
  /** How long things go wrong. */
  readonly stormMs: number;
  /** How long clients wait between two calls: short means contention. */
  readonly thinkMeanMs: number;
}

/** A store that works, for the end of a run. */
export const CALM: StoreWeather = {
  synchronousCatchUps: false,
  delayMaxMs: 3,
  slowChance: 0,
  slowMaxMs: 0,
  lateChance: 0,
  lateMaxMs: 0,
  refuseChance: 0,
  breakChance: 0,
  loseChance: 0,
  pauseAfterChance: 0,
  bugChance: 0,
};

/** The operators that a run has at once; the small lanes' reserve lets all of them in. */
export const OPERATORS_MAX = 16;

const SMALL_BOUNDS: Partial<ActorBounds> = {
  readLane: { depthMax: 12, operatorReserve: 0 },
  writeLane: { depthMax: 6, operatorReserve: OPERATORS_MAX },
  readBatchMax: 5,
  writeBatchMax: 4,
};

/** The kind of run that a seed is. */
export function settingsOf(seed: number): Settings {
  const dice = new Dice(seed);
  return dice.chance(CROWDED_SHARE) ? crowdedSettings(dice) : wideSettings(dice);
}

/** How many of the runs are crowded: they are shorter, and show what the others seldom do. */
const CROWDED_SHARE = 0.25;

/** Many devices, each with a life of its own; anything may happen. */
function wideSettings(dice: Dice): Settings {
  return {
    ...sharedSettings(dice),
    busDelayMaxMs: dice.pick([0.2, 3, 20]),
    bounds: boundsOf(dice, 0.6),
    weather: {
      synchronousCatchUps: dice.chance(0.15),
      delayMaxMs: dice.pick([1, 5, 40]),
      slowChance: dice.pick([0, 0.02, 0.2]),
      slowMaxMs: dice.pick([100, 800, 3_000]),
      lateChance: dice.pick([0, 0.2, 0.6]),
      lateMaxMs: dice.pick([50, 200, 400]),
      refuseChance: dice.pick([0, 0, 0.01, 0.05]),
      breakChance: dice.pick([0, 0, 0.02, 0.1]),
      loseChance: dice.pick([0, 0, 0.02, 0.1]),
      pauseAfterChance: dice.pick([0, 0.002, 0.01]),
      bugChance: dice.pick([0, 0, 0, 0.002]),
    },
    lives: dice.whole(5, 12),
    crowded: false,
    stormMs: dice.whole(8_000, 16_000),
    thinkMeanMs: dice.pick([5, 20, 100]),
  };
}

/**
 * One or two devices that everyone changes as fast as the store allows, on replicas whose answers
 * from the store overtake each other.
 */
function crowdedSettings(dice: Dice): Settings {
  return {
    ...sharedSettings(dice),
    busDelayMaxMs: dice.pick([0.2, 2]),
    bounds: boundsOf(dice, 0.9),
    weather: {
      synchronousCatchUps: false,
      delayMaxMs: dice.pick([1, 4]),
      slowChance: dice.pick([0, 0.005]),
      slowMaxMs: dice.pick([100, 800]),
      lateChance: dice.pick([0.2, 0.5]),
      lateMaxMs: dice.pick([10, 30, 100]),
      refuseChance: dice.pick([0, 0.01]),
      breakChance: dice.pick([0, 0.02]),
      loseChance: dice.pick([0, 0, 0.02]),
      pauseAfterChance: dice.pick([0, 0.001]),
      bugChance: 0,
    },
    lives: dice.whole(1, 2),
    crowded: true,
    stormMs: dice.whole(3_000, 5_000),
    thinkMeanMs: dice.pick([1, 4]),
  };
}

function sharedSettings(
  dice: Dice,
): Pick<Settings, 'replicas' | 'oneIsLate' | 'pageMax' | 'upgrades' | 'faults'> {
  const sometimes = (chance: number, meanMs: number): number =>
    dice.chance(chance) ? meanMs * dice.between(0.5, 2) : 0;
  return {
    replicas: dice.whole(2, 3),
    oneIsLate: dice.chance(0.5),
    pageMax: dice.pick([2, 5, 10_000]),
    upgrades: dice.chance(0.3),
    faults: {
      pauseMs: sometimes(0.5, 3_000),
      stallMs: sometimes(0.5, 1_500),
      processCrashMs: sometimes(0.4, 3_000),
      actorThreadCrashMs: sometimes(0.4, 3_000),
      storeRestartMs: sometimes(0.4, 4_000),
      storeRestoreMs: sometimes(0.25, 5_000),
      storeClockStepMs: sometimes(0.3, 3_000),
      rewriteMs: sometimes(0.5, 500),
      burstMs: sometimes(0.4, 1_000),
    },
  };
}

/** Background catch-ups that overlap those of batches are rare at their usual period. */
function boundsOf(dice: Dice, busyChance: number): Partial<ActorBounds> {
  return {
    ...(dice.chance(0.4) ? SMALL_BOUNDS : {}),
    ...(dice.chance(busyChance) ? { backgroundPeriodMs: dice.pick([3, 15]) } : {}),
  };
}
