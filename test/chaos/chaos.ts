/** Plays rounds of scenarios under load, and judges every guarantee after each. */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { DeviceOracle } from '../faults/device-oracle.js';
import { KillListOracle } from '../faults/kill-list-oracle.js';
import { type Oracle, World } from '../faults/oracle.js';
import { BACK_WITHIN_MS, Clients } from '../faults/play.js';
import { eventually } from '../fixtures/halo-server.js';
import { Dice } from '../simulation/dice.js';
import { actedDeposed } from './acting.js';
import { Book, type Guarantee, type Judged } from './guarantees.js';
import { FaultAbsent, guaranteesOf, SCENARIOS, type ScenarioName } from './scenarios.js';
import { SINK_LEASE, Stage } from './stage.js';
import { cursorFault, tokenFault } from './watcher.js';
import { earlyTermFault } from './witness.js';

export interface ChaosOptions {
  readonly seed: number;
  readonly rounds: number;
  readonly replicas: number;
  /** Each is played once in a round, in an order that the seed gives. */
  readonly scenarios: readonly ScenarioName[];
  /** Called with a line for each scenario. */
  readonly log: (line: string) => void;
}

const SEED_STEP = 10_007;
/** A sink that failed is asked again within seconds. */
const FORWARDED_WITHIN_MS = 15_000;
const VERIFY = fileURLToPath(new URL('../../src/cli/halo-verify.js', import.meta.url));

/** What clients do all the while, and which guarantee their oracle's complaints are about. */
interface Load {
  readonly oracle: Oracle;
  readonly world: World;
  readonly clients: Clients;
  /** Complaints that were judged already. */
  judged: number;
}

export async function playChaos(options: ChaosOptions): Promise<Judged[]> {
  const book = new Book();
  const stage = await Stage.start(options.replicas, book);
  const loads = [new DeviceOracle(), new KillListOracle()].map((oracle, index): Load => {
    const world = new World(stage.site);
    return {
      oracle,
      world,
      clients: new Clients(world, [oracle], options.seed + index),
      judged: 0,
    };
  });
  try {
    for (const { oracle, world } of loads) await oracle.begin?.(world);
    for (const { clients } of loads) clients.start();
    for (let round = 1; round <= options.rounds; round += 1) {
      const dice = new Dice(options.seed * SEED_STEP + round);
      for (const name of shuffled(options.scenarios, dice)) {
        for (const { world } of loads) world.round = round;
        await playScenario(stage, loads, name, `round ${round}, ${name}`, dice, options.log);
      }
    }
    await Promise.all(loads.map(({ clients }) => clients.stop()));
    for (const { oracle, world } of loads) await oracle.end?.(world);
    await judgeChain(stage);
  } finally {
    await Promise.all(loads.map(({ clients }) => clients.stop()));
    await stage.stop();
  }
  return book.judge(guaranteesOf(options.scenarios));
}

async function playScenario(
  stage: Stage,
  loads: readonly Load[],
  name: ScenarioName,
  where: string,
  dice: Dice,
  log: (line: string) => void,
): Promise<void> {
  const { book, site } = stage;
  const beganMs = performance.now();
  try {
    log(`${where}: ${await SCENARIOS[name].play({ stage, dice, where })}`);
  } catch (error) {
    if (!(error instanceof FaultAbsent)) throw error;
    log(`${where}: THE FAULT WAS NOT THERE: ${error.message}`);
    book.faultWasAbsent(where, error.message);
  }
  const overMs = performance.now();
  const back = await site.ready(BACK_WITHIN_MS).then(
    () => undefined,
    (error: Error) => error.message,
  );
  book.tested('service is back by itself', where, back);
  await stage.learnNames();
  for (const load of loads) await judgeLoad(book, load, where, dice);
  await judgeForwarding(stage, where);
  judgeActs(stage, where, beganMs);
  book.tested('a lease has one holder', where, await earlyTermFault(site.halo.database));
  log(`  judged ${Math.round(performance.now() - overMs)} ms after the fault was over`);
}

/** What the oracle of a load has complained of since it was last asked. */
async function judgeLoad(book: Book, load: Load, where: string, dice: Dice): Promise<void> {
  await load.oracle.settled(load.world, dice);
  const complaints = load.world.failures.slice(load.judged);
  load.judged += complaints.length;
  const kept = new Set<Guarantee>(['nothing answered is lost', 'who is revoked stays out']);
  for (const complaint of complaints) {
    const guarantee = / let .* in/.test(complaint)
      ? 'who is revoked stays out'
      : 'nothing answered is lost';
    kept.delete(guarantee);
    book.broken(guarantee, where, complaint);
  }
  for (const guarantee of kept) book.kept(guarantee, where);
}

/** The sink comes to have all that is in the chain now. */
async function judgeForwarding({ book, receiver, watcher }: Stage, where: string): Promise<void> {
  const head = watcher.last?.headSeq ?? -1;
  const late = await eventually(() => receiver.seq >= head, FORWARDED_WITHIN_MS).then(
    () => undefined,
    () => `the sink has ${receiver.seq} of ${head} after ${FORWARDED_WITHIN_MS} ms`,
  );
  const [gap] = receiver.gaps;
  book.tested('every record is forwarded', where, gap ?? late);
}

/** Who acted, by what was seen from outside. */
function judgeActs(
  { book, receiver, watcher, replicaOf, continued }: Stage,
  where: string,
  beganMs: number,
): void {
  const looks = watcher.since(beganMs - 1_000);
  const deliveries = receiver.deliveries.filter(({ atMs }) => atMs >= beganMs);
  const [acted] = actedDeposed(deliveries, looks, SINK_LEASE, replicaOf, continued);
  if (deliveries.length > 0) book.tested('one leader acts', where, acted);
  book.tested('a deposed leader writes nothing', where, cursorFault(looks));
  book.tested('tokens grow', where, tokenFault(watcher.looks));
}

/** All replicas end in order, and what is left in the database is proved. */
async function judgeChain({ book, site }: Stage): Promise<void> {
  await Promise.all(site.replicas.map(({ server }) => server.stop('SIGTERM')));
  const { database, installation } = site.halo;
  const file = join(installation.directory, 'verify.url');
  writeFileSync(file, database.url, { mode: 0o600 });
  const options = ['--database-url-file', file, '--database-insecure-tls', '--json'];
  const child = spawn(process.execPath, [VERIFY, ...options]);
  let said = '';
  for (const stream of [child.stdout, child.stderr]) {
    stream.on('data', (chunk: Buffer) => {
      said += chunk.toString();
    });
  }
  const [exitCode] = await once(child, 'close');
  const fault = exitCode === 0 ? undefined : `halo-verify ended with ${exitCode}: ${said.trim()}`;
  book.tested('the chain verifies', 'at the end', fault);
}

function shuffled<Item>(items: readonly Item[], dice: Dice): Item[] {
  const rest = [...items];
  return items.map(() => rest.splice(dice.whole(0, rest.length - 1), 1)[0]!);
}
