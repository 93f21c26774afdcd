import t from 'tap';
import { devicesActor, isDeviceWrite } from '../src/actors/devices/actor.js';
import { DEVICES_ACTOR, DevicesClient } from '../src/actors/devices/client.js';
import { digestOf } from '../src/actors/secrets.js';
import { ActorChannel } from '../src/runtime/actor-channel.js';
import { ActorHost } from '../src/runtime/actor-host.js';
import { type Clock, delay } from '../src/runtime/clock.js';
import { isFailure } from '../src/runtime/failure.js';
import { silentLog } from '../src/runtime/log.js';
import { type Random, seededRandom } from '../src/runtime/random.js';
import { linkOverBus } from '../src/runtime/simulated-bus.js';
import { SimulatedClock } from '../src/runtime/simulated-clock.js';
import { ModelDatabase } from '../src/storage/model/model-database.js';
import { ModelStore } from '../src/storage/model/model-store.js';

const SEED = Number(process.env['SEED'] ?? 20_261_130);
const ROUNDS = 40;

/** One replica: an actor host on a store with random delays, and a front over a random bus. */
async function openReplica(database: ModelDatabase, clock: Clock, random: Random) {
  const hesitate = (): Promise<void> => delay(clock, random.fraction() * 5);
  const store = new ModelStore(database, { before: hesitate, after: hesitate });
  const environment = { store, clock, random, log: silentLog };
  const host = new ActorHost([devicesActor(environment)], {
    ...environment,
    onExhausted: () => undefined,
  });
  await host.open();
  const channel = new ActorChannel(clock, (_, kind) => isDeviceWrite(kind));
  const link = linkOverBus(channel, host, clock, random, 3);
  return { host, link, devices: new DevicesClient(channel.ref(DEVICES_ACTOR)) };
}

/** One device's life among others: enrolled here, used there, revoked, asked for again. */
async function life(
  devices: DevicesClient[],
  random: Random,
  clock: Clock,
  trace: string[],
): Promise<void> {
  const any = (): DevicesClient => devices[Math.floor(random.fraction() * devices.length)]!;
  const authenticate = (credential: string): Promise<unknown> =>
    new Promise((resolve) => {
      any().authenticate(digestOf(credential), { answered: (answer) => resolve(answer) });
    });
  const { token } = await any().mintToken({ user: 'ann', ttlSeconds: 600, by: 'root' });
  const { device, credential } = await any().enroll({
    tokenDigest: digestOf(token),
    name: 'n',
    platform: 'p',
  });
  let revoked = false;
  const using = (async () => {
    for (let ask = 0; ask < 20; ask += 1) {
      const refusedFromNow = revoked;
      const answer = await authenticate(credential);
      trace.push(`${clock.monotonicMs().toFixed(3)} ${isFailure(answer) ? answer.failure : 'in'}`);
      if (refusedFromNow && !isFailure(answer)) throw new Error('a revoked device was let in');
      await delay(clock, random.fraction() * 4);
    }
  })();
  await delay(clock, random.fraction() * 40);
  await any().revoke({ id: device.id, reason: 'r', by: 'root' });
  revoked = true;
  await using;
}

async function simulate(seed: number): Promise<string[]> {
  const clock = new SimulatedClock();
  const random = seededRandom(seed);
  const database = new ModelDatabase(clock, random);
  const trace: string[] = [];
  let done = false;
  let fault: unknown;
  const run = async (): Promise<void> => {
    const replicas = [
      await openReplica(database, clock, random),
      await openReplica(database, clock, random),
    ];
    const devices = replicas.map((replica) => replica.devices);
    await Promise.all(Array.from({ length: 5 }, () => life(devices, random, clock, trace)));
    for (const { link, host } of replicas) {
      link.cut();
      await host.close();
    }
  };
  void run()
    .catch((error: unknown) => (fault = error))
    .finally(() => (done = true));
  await clock.runUntil(() => done, 60_000);
  if (fault !== undefined) throw fault;
  if (!done) throw new Error('the simulation did not end');
  return trace;
}

t.test(
  `a revoked device never passes, in ${ROUNDS} simulated runs from seed ${SEED}`,
  async (t) => {
    for (let round = 0; round < ROUNDS; round += 1) {
      await simulate(SEED + round).catch((error: unknown) => {
        t.fail(`seed ${SEED + round}: ${error instanceof Error ? error.message : 'failed'}`);
      });
    }
  },
);

t.test('the same seed replays the same run, and another seed another', async (t) => {
  const [first, again, other] = [await simulate(SEED), await simulate(SEED), await simulate(7)];
  t.ok(first!.length > 50);
  t.same(again, first);
  t.notSame(other, first);
});
