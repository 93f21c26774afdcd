/** Choices of a simulation, all drawn from one seeded source. */
import { type Random, seededRandom } from '../../src/runtime/random.js';

/** One stream of choices; parts of a simulation that must not disturb each other have their own. */
export class Dice {
  readonly random: Random;

  constructor(seed: number) {
    this.random = seededRandom(seed);
  }

  /** True with that probability. */
  chance(probability: number): boolean {
    return this.random.fraction() < probability;
  }

  between(low: number, high: number): number {
    return low + this.random.fraction() * (high - low);
  }

  /** A whole number from `low` to `high`, both included. */
  whole(low: number, high: number): number {
    return low + Math.floor(this.random.fraction() * (high - low + 1));
  }

  pick<Item>(items: readonly Item[]): Item {
    return items[this.whole(0, items.length - 1)]!;
  }

  /** A pause before an event that happens about every `meanMs`, at any time alike. */
  pauseMs(meanMs: number): number {
    return -Math.log(1 - this.random.fraction()) * meanMs;
  }

  /** An index, with a probability in proportion to its weight. */
  weighted<Name extends string>(weights: Readonly<Record<Name, number>>): Name {
    const entries = Object.entries(weights) as [Name, number][];
    let rest = this.random.fraction() * entries.reduce((sum, [, weight]) => sum + weight, 0);
    for (const [name, weight] of entries) {
      rest -= weight;
      if (rest < 0) return name;
    }
    return entries.at(-1)![0];
  }
}
