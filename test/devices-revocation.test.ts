import t from 'tap';
import { seededRandom } from '../src/runtime/random.js';
import { ModelStore } from '../src/storage/model/model-store.js';
import { codeOf, enrol, openReplica, openReplicas } from './fixtures/device-replica.js';

t.test(
  'a revocation answered on one replica is seen by the next request on the other',
  async (t) => {
    const { replicas, close } = await openReplicas();
    t.teardown(close);
    const [a, b] = replicas as [(typeof replicas)[0], (typeof replicas)[0]];
    const device = await enrol(a);
    t.equal(await b.authenticate(device.credential), `${device.id}ann`);
    const view = await a.devices.revoke({ id: device.id, reason: 'lost', by: 'root' });
    t.equal(view.revokedReason, 'lost');
    t.equal(await b.authenticate(device.credential), 'device_revoked');
    const again = await b.devices.revoke({ id: device.id, reason: 'other', by: 'root' });
    t.same(again, view, 'revoking again changes nothing');
  },
);

t.test('a device record written after the revocation does not bring the device back', async (t) => {
  const { clock, database, replicas, close } = await openReplicas();
  t.teardown(close);
  const [a, b] = replicas as [(typeof replicas)[0], (typeof replicas)[0]];
  const device = await enrol(a);
  await a.devices.revoke({ id: device.id, reason: 'lost', by: 'root' });
  const store = new ModelStore(database);
  const position = await store.replay(['devices'], () => undefined);
  await store.commit({ streams: ['devices'], position }, () => {
    return {
      appends: [
        {
          stream: 'devices',
          key: `device/${device.id}`,
          body: JSON.stringify([
            2,
            'device',
            1,
            device.id,
            'ann',
            'laptop',
            'linux',
            1,
            'd',
            null,
            0,
            false,
          ]),
        },
      ],
    };
  });
  t.equal(await b.authenticate(device.credential), 'device_unknown');
  t.ok((await b.devices.get(device.id)).revokedAtMs, 'still revoked where it was known');
  const fresh = await openReplica(store, clock, seededRandom(9));
  t.ok((await fresh.devices.get(device.id)).revokedAtMs, 'and on a fresh replica');
  await fresh.host.close();
});

t.test('a rotation overlaps as long as asked, at most one old credential at a time', async (t) => {
  const { clock, replicas, close } = await openReplicas();
  t.teardown(close);
  const [a, b] = replicas as [(typeof replicas)[0], (typeof replicas)[0]];
  const device = await enrol(a);
  const rotate = (
    credentialDigest: string,
    overlapSeconds = 300,
  ): Promise<{ credential: string }> =>
    b.devices.rotate({
      id: device.id,
      overlapSeconds,
      caller: { kind: 'device', credentialDigest },
    });
  const { digestOf } = await import('../src/actors/secrets.js');
  const second = await rotate(digestOf(device.credential));
  const passed = `${device.id}ann`;
  t.equal(await a.authenticate(device.credential), passed, 'the old one works in the overlap');
  t.equal(await a.authenticate(second.credential), passed);
  t.equal(await codeOf(rotate(digestOf(device.credential))), 'rotation_refused');
  const third = await rotate(digestOf(second.credential));
  t.equal(await a.authenticate(device.credential), 'device_unknown', 'only one old one');
  t.equal(await a.authenticate(second.credential), passed);
  clock.advance(300_000);
  t.equal(await a.authenticate(second.credential), 'device_unknown', 'the overlap is over');
  t.equal(await a.authenticate(third.credential), passed);
  const other = await enrol(a);
  t.equal(await codeOf(rotate(digestOf(other.credential))), 'not_own_device');
  const fourth = await rotate(digestOf(third.credential), 0);
  t.equal(await b.authenticate(third.credential), 'device_unknown', 'no overlap was asked for');
  await a.devices.revoke({ id: device.id, reason: 'lost', by: 'root' });
  t.equal(await codeOf(rotate(digestOf(fourth.credential))), 'device_revoked');
});

t.test('sightings are written in batches and exact to a minute', async (t) => {
  const { clock, database, replicas, close } = await openReplicas();
  const [a, b] = replicas as [(typeof replicas)[0], (typeof replicas)[0]];
  const device = await enrol(a);
  t.equal((await a.devices.get(device.id)).lastSeenAtMs, undefined);
  for (let second = 0; second < 100; second += 1) {
    await a.authenticate(device.credential);
    clock.advance(1_000);
  }
  const seenAtMs = (await a.devices.get(device.id)).lastSeenAtMs!;
  t.ok(clock.wallMs() - seenAtMs < 60_000, 'exact to a minute where it was seen');
  await close();
  const store = new ModelStore(database);
  t.equal((await store.sightings([device.id])).get(device.id), seenAtMs, 'flushed by a stop');
  void b;
});
