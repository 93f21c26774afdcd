/** What happens in each round, drawn from the seed alone: the same seed, the same rounds. */
import { Dice } from '../simulation/dice.js';
import { FAULTS, type FaultName } from './faults.js';

/** One fault of a round. */
export interface Strike {
  readonly fault: FaultName;
  /** Which replica, where the fault hits one. */
  readonly replica: number;
  /** After the round began. */
  readonly afterMs: number;
  readonly holdMs: number;
}

export interface Round {
  readonly number: number;
  readonly strikes: readonly Strike[];
}

/** One round in so many has two faults at once. */
const TWO_AT_ONCE = 0.3;
/** Longer than every deadline of a request but a mutation's, and short enough for 200 rounds. */
const HOLD_MAX_MS = 3_000;
const AFTER_MAX_MS = 300;

/** A round does not depend on those before it, so that it can be played alone. */
export function roundOf(seed: number, number: number, replicas: number): Round {
  const dice = new Dice(seed * 10_007 + number);
  const first = strike(dice, replicas);
  if (!dice.chance(TWO_AT_ONCE)) return { number, strikes: [first] };
  const second = strike(dice, replicas);
  const strikes = targetOf(first) === targetOf(second) ? [first] : [first, second];
  return { number, strikes };
}

/** The round as a line for people. */
export function describeRound({ number, strikes }: Round): string {
  const words = strikes.map(({ fault, replica, afterMs, holdMs }) => {
    const whom = FAULTS[fault].hits === 'replica' ? ` r${replica + 1}` : '';
    return `${fault}${whom} at ${Math.round(afterMs)} ms for ${Math.round(holdMs)} ms`;
  });
  return `round ${number}: ${words.join('; ')}`;
}

function strike(dice: Dice, replicas: number): Strike {
  const weights = Object.fromEntries(
    Object.entries(FAULTS).map(([name, { weight }]) => [name, weight]),
  ) as Record<FaultName, number>;
  return {
    fault: dice.weighted(weights),
    replica: dice.whole(0, replicas - 1),
    afterMs: dice.between(0, AFTER_MAX_MS),
    holdMs: dice.between(100, HOLD_MAX_MS),
  };
}

function targetOf({ fault, replica }: Strike): string {
  const { hits } = FAULTS[fault];
  return hits === 'replica' ? `replica ${replica}` : hits;
}
