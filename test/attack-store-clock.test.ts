/** A store's clock that was wrong and is put right: what is killed stays out. */
import t from 'tap';
import { killListActor } from '../src/actors/kill-list/actor.js';
import { KILL_LIST_ACTOR, KillListClient } from '../src/actors/kill-list/client.js';
import { ActorHost } from '../src/runtime/actor-host.js';
import { silentLog } from '../src/runtime/log.js';
import { seededRandom } from '../src/runtime/random.js';
import { ModelStore } from '../src/storage/model/model-store.js';
import { enrol, openReplicas } from './fixtures/device-replica.js';
import { keepAlive } from './fixtures/keep-alive.js';
import { testRecorder } from './fixtures/test-recorder.js';

keepAlive(t);

const HOUR_MS = 3_600_000;

async function open() {
  const { clock, database, replicas, close } = await openReplicas();
  const store = new ModelStore(database);
  const host = new ActorHost([killListActor({ store, log: silentLog, evidence: testRecorder })], {
    clock,
    random: seededRandom(1),
    log: silentLog,
    onExhausted: () => undefined,
  });
  await host.open();
  const kills = new KillListClient(host.localRef(KILL_LIST_ACTOR));
  return { clock, replicas, kills, close: () => host.close().then(close) };
}

t.test('a kill that ends holds everywhere after the clock was hours ahead', async (t) => {
  const { clock, replicas, kills, close } = await open();
  t.teardown(close);
  const [a, b] = replicas as [(typeof replicas)[0], (typeof replicas)[0]];
  const device = await enrol(a);
  clock.advance(6 * HOUR_MS);
  for (const replica of replicas) t.match(await replica.authenticate(device.credential), /^dev_/);
  await kills.list();
  clock.advance(-6 * HOUR_MS);
  const expiresAtMs = clock.wallMs() + HOUR_MS;
  await kills.kill({ kind: 'device', id: device.id, reason: 'r', by: 'root', expiresAtMs });
  t.equal(await a.authenticate(device.credential), 'device_killed');
  t.equal(await b.authenticate(device.credential), 'device_killed');
  t.equal((await kills.list()).asOfMs, clock.wallMs());
  clock.advance(HOUR_MS);
  for (const replica of replicas) t.match(await replica.authenticate(device.credential), /^dev_/);
});

t.test('an old credential ends by the clock that is right', async (t) => {
  const { clock, replicas, close } = await open();
  t.teardown(close);
  const [a] = replicas as [(typeof replicas)[0]];
  const device = await enrol(a);
  clock.advance(6 * HOUR_MS);
  await a.authenticate(device.credential);
  clock.advance(-6 * HOUR_MS);
  const caller = { kind: 'admin', name: 'root' } as const;
  const { credential } = await a.devices.rotate({ id: device.id, overlapSeconds: 300, caller });
  t.match(await a.authenticate(credential), /^dev_/);
  t.match(await a.authenticate(device.credential), /^dev_/, 'in its overlap');
  clock.advance(299_999);
  t.match(await a.authenticate(device.credential), /^dev_/, 'to the last millisecond');
  clock.advance(1);
  t.equal(await a.authenticate(device.credential), 'device_unknown', 'and not at its end');
});

t.test('answers of the store that overtake each other do not turn the clock back', async (t) => {
  const { clock, replicas, close } = await open();
  t.teardown(close);
  const [a] = replicas as [(typeof replicas)[0]];
  const device = await enrol(a);
  const caller = { kind: 'admin', name: 'root' } as const;
  await a.devices.rotate({ id: device.id, overlapSeconds: 1, caller });
  clock.advance(1_000);
  t.equal(await a.authenticate(device.credential), 'device_unknown');
  clock.advance(-9_000);
  t.equal(await a.authenticate(device.credential), 'device_unknown', 'what has ended stays so');
});
