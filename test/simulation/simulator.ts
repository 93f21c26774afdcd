/**
 * One run: a seed is a world with clients and faults; what went wrong in it, if anything, and the
 * trace of all that happened.
 */
import { describe } from '../../src/runtime/failure.js';
import { startFaults } from './faults.js';
import { wrongAbout } from './life-check.js';
import { guess, Life, lookAtLists, voidTokens } from './lives.js';
import { checkQuiet } from './quiet-check.js';
import { settingsOf } from './settings.js';
import { World } from './world.js';

export interface Run {
  readonly seed: number;
  /** What went wrong first; undefined when every promise was kept. */
  readonly failure: string | undefined;
  readonly trace: readonly string[];
  /** The same for every run of the seed. */
  readonly hash: string;
  readonly calls: number;
}

const USERS = ['ann', 'bob', 'cyd'];

/**
 * Never rejects: what is thrown in a run is a failure of the run. With `answersOnly` it is judged
 * by what clients can see, without a look into the replicas' views.
 */
export async function simulate(seed: number, answersOnly = false): Promise<Run> {
  const world = new World(seed, settingsOf(seed), answersOnly);
  const rejected = (error: unknown): void => world.fail(`nobody handles ${describe(error)}`);
  process.on('unhandledRejection', rejected);
  try {
    await live(world);
  } catch (error) {
    world.fail(describe(error));
  } finally {
    process.off('unhandledRejection', rejected);
  }
  const { failure, trace, history } = world;
  return { seed, failure, trace: trace.lines, hash: trace.hash(), calls: history.calls.length };
}

async function live(world: World): Promise<void> {
  const { clock, settings } = world;
  world.trace.note(`settings ${JSON.stringify(settings)}`);
  const lives = Array.from(
    { length: settings.lives },
    (_, index) => new Life(world, index + 1, USERS[index % USERS.length]!),
  );
  for (const life of lives) void life.run();
  void lookAtLists(world);
  void voidTokens(world, USERS);
  void guess(world);
  startFaults(world, lives);
  await clock.runUntil(() => world.failure !== undefined, settings.stormMs);
  world.becomeCalm();
  if (world.failure === undefined) await checkQuiet(world, lives);
  if (world.failure === undefined) checkLives(world);
  for (const replica of world.replicas) void replica.close();
}

function checkLives(world: World): void {
  for (const life of world.userOfLife.keys()) {
    const wrong = wrongAbout(world, life);
    if (wrong !== undefined) world.fail(wrong);
  }
}
