import t from 'tap';
import { startHaloCluster } from './fixtures/halo-cluster.js';
import { eventually, type HaloServer, pause } from './fixtures/halo-server.js';

// Real servers, and faults that take their time.
t.setTimeout(240_000);

t.test('a replica that was stopped and continued lets nobody in on old knowledge', async (t) => {
  const halo = await startHaloCluster(2);
  t.teardown(() => halo.stop());
  const [a, b] = halo.servers as [HaloServer, HaloServer];
  for (let round = 0; round < 5; round += 1) {
    const device = await a.enrol();
    let continued = false;
    let asking = true;
    const late = new Set<string>();
    const client = async (): Promise<void> => {
      while (asking) {
        const code = await b.authenticate(device.credential);
        if (continued) late.add(code);
      }
    };
    const clients = Array.from({ length: 64 }, client);
    await pause(200 + round);
    b.signal('SIGSTOP');
    await a.admin('POST', `/api/v1/devices/${device.id}/revoke`, { reason: 'lost' });
    await pause(1_200);
    // Whatever arrives from here on left after the process was continued.
    continued = true;
    b.signal('SIGCONT');
    await eventually(() => late.has('device_revoked'), 10_000);
    asking = false;
    await Promise.all(clients);
    t.notOk(late.has('in'), `round ${round}: ${[...late].join(', ')}`);
  }
});
