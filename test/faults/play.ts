/** Plays rounds: clients that never rest, faults in between, and the oracles' last word on each. */
import { pause } from '../fixtures/halo-server.js';
import { Dice } from '../simulation/dice.js';
import { ConnectionsOracle } from './connections-oracle.js';
import { DeviceOracle } from './device-oracle.js';
import { FAULTS } from './faults.js';
import { KillListOracle } from './kill-list-oracle.js';
import { type Oracle, World } from './oracle.js';
import { describeRound, type Round, roundOf } from './schedule.js';
import { Site } from './site.js';

/** The bound: service is back by itself after so long. */
export const BACK_WITHIN_MS = 15_000;
/** Enough that something is always under way on each replica, and faults stay the scarce thing. */
const CLIENTS_OF_EACH = 4;
const PAUSE_MAX_MS = 20;
/** One address in so many is that of the seed's clients. */
const CLIENT_SEED_STEP = 101;

export interface PlayOptions {
  readonly seed: number;
  readonly rounds: number;
  /** The first round, counted from 1. */
  readonly from?: number;
  readonly replicas?: number;
  readonly nginx?: boolean;
  /** Called with a line for each round. */
  readonly log?: (line: string) => void;
}

export interface Played {
  /** Empty: every promise was kept. */
  readonly failures: readonly string[];
  readonly calls: number;
  /** By status; 0: lost with a replica. */
  readonly answers: Readonly<Record<number, number>>;
  /** The longest time from a fault's end until all replicas were ready. */
  readonly slowestBackMs: number;
}

/**
 * A new oracle of each kind; whoever adds a promise to the product adds one here. Connections come
 * last: until then half-open ones stay so, and the replicas must have noticed by themselves.
 */
export function allOracles(): Oracle[] {
  return [new DeviceOracle(), new KillListOracle(), new ConnectionsOracle()];
}

/** Plays until all rounds are over, or one has failed: what comes after a failure says little. */
export async function play(options: PlayOptions): Promise<Played> {
  const { seed, rounds, from = 1, replicas = 2, nginx = false, log = () => undefined } = options;
  const site = await Site.start({ replicas, nginx });
  const world = new World(site);
  const oracles = allOracles();
  const clients = new Clients(world, oracles, seed);
  let slowestBackMs = 0;
  try {
    for (const oracle of oracles) await oracle.begin?.(world);
    clients.start();
    for (let number = from; number < from + rounds && world.failures.length === 0; number += 1) {
      const backMs = await playRound(world, oracles, roundOf(seed, number, replicas), log);
      slowestBackMs = Math.max(slowestBackMs, backMs);
    }
    await clients.stop();
    for (const oracle of oracles) await oracle.end?.(world);
  } finally {
    await clients.stop();
    await site.stop();
  }
  const { failures, calls, answers } = world;
  return { failures, calls, answers: Object.fromEntries(answers), slowestBackMs };
}

/** Resolves with how long the replicas took to be ready again. */
async function playRound(
  world: World,
  oracles: readonly Oracle[],
  round: Round,
  log: (line: string) => void,
): Promise<number> {
  const { site } = world;
  world.round = round.number;
  const startedMs = performance.now();
  await Promise.all(
    round.strikes.map(async ({ fault, replica, afterMs, holdMs }, index) => {
      await pause(afterMs);
      const dice = new Dice(round.number * 10 + index);
      await FAULTS[fault].happen({ site, replica: site.replicas[replica]!, holdMs, dice });
    }),
  );
  const overMs = performance.now();
  await site.ready(BACK_WITHIN_MS).catch((error: unknown) => world.fail(String(error)));
  const backMs = Math.round(performance.now() - overMs);
  const dice = new Dice(round.number);
  for (const oracle of oracles) await oracle.settled(world, dice);
  const tookMs = Math.round(performance.now() - startedMs);
  log(`${describeRound(round)}: ready after ${backMs} ms, settled after ${tookMs} ms`);
  return backMs;
}

/** Clients that ask one thing after another until they are stopped. */
export class Clients {
  private running: Promise<void>[] = [];
  private asking = true;

  constructor(
    private readonly world: World,
    private readonly oracles: readonly Oracle[],
    private readonly seed: number,
  ) {}

  start(): void {
    const acting = this.oracles.filter(({ act }) => act !== undefined);
    this.running = acting.flatMap((oracle, kind) =>
      Array.from({ length: CLIENTS_OF_EACH }, (_, index) =>
        this.run(oracle, new Dice(this.seed * CLIENT_SEED_STEP + kind * CLIENTS_OF_EACH + index)),
      ),
    );
  }

  /** Resolves when each has its last answer. Idempotent. */
  async stop(): Promise<void> {
    this.asking = false;
    await Promise.all(this.running);
  }

  private async run(oracle: Oracle, dice: Dice): Promise<void> {
    while (this.asking) {
      try {
        await oracle.act?.(this.world, dice);
      } catch (error) {
        this.world.fail(`the oracle of ${oracle.name} failed: ${(error as Error).stack}`);
        return;
      }
      await pause(dice.between(0, PAUSE_MAX_MS));
    }
  }
}
