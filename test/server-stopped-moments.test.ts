/** A replica that is stopped at the worst moments: with its answer on the way, and with a lock. */
import t from 'tap';
import { startHaloCluster } from './fixtures/halo-cluster.js';
import { eventually, type HaloServer, pause } from './fixtures/halo-server.js';
import { proxyOf } from './fixtures/push-cluster.js';

// Real servers, and faults that take their time.
t.setTimeout(240_000);

/** After so long an allow is too old to leave (DESIGN §2). */
const STALE_AFTER_MS = 1_000;
/** The bound: the others go on. */
const FREE_WITHIN_MS = 3_000;
const CLIENTS = 8;
const ROUNDS = 2;

async function start(t: { teardown(stop: () => Promise<void>): void }) {
  const halo = await startHaloCluster(1);
  t.teardown(() => halo.stop());
  const proxy = await proxyOf(halo);
  t.teardown(() => proxy.stop());
  const [other] = halo.servers as [HaloServer];
  const stopped = await halo.add([], proxy.urlOf(halo.database.url));
  return { other, stopped, proxy };
}

t.test('stopped between its catch-up and its answers, a replica lets nobody in late', async (t) => {
  const { other, stopped, proxy } = await start(t);
  const late = new Set<string>();
  for (let round = 0; round < ROUNDS; round += 1) {
    const device = await other.enrol();
    let asking = true;
    let continued = false;
    const client = async (): Promise<void> => {
      while (asking) {
        const code = await stopped.authenticate(device.credential);
        if (continued) late.add(code);
      }
    };
    const clients = Array.from({ length: CLIENTS }, client);
    await pause(100);
    let stoppedAtMs = 0;
    proxy.watchAnswers(() => {
      if (stoppedAtMs === 0) stopped.signal('SIGSTOP');
      stoppedAtMs ||= performance.now();
      return 'pass';
    });
    await eventually(() => stoppedAtMs > 0, 5_000, 'the answer of a catch-up');
    const path = `/api/v1/devices/${device.id}/revoke`;
    t.equal((await other.admin('POST', path, { reason: 'lost' })).status, 200);
    await pause(STALE_AFTER_MS + 200 - (performance.now() - stoppedAtMs));
    proxy.watchAnswers(undefined);
    continued = true;
    stopped.signal('SIGCONT');
    await eventually(() => late.has('device_revoked'), 10_000);
    asking = false;
    await Promise.all(clients);
  }
  t.ok(late.has('stale'), 'the moment was met');
  t.notOk(late.has('in'), [...late].join(', '));
});

t.test(
  'stopped with the lock of a stream, a replica holds nobody up for three seconds',
  async (t) => {
    const { other, stopped, proxy } = await start(t);
    const device = await stopped.enrol();
    const kept = await other.enrol();
    let holding: unknown;
    let stoppedAtMs = 0;
    proxy.watch((chunk, link) => {
      if (chunk.includes('BEGIN')) holding ??= link;
      return 'pass';
    });
    proxy.watchAnswers((_chunk, link) => {
      if (link !== holding || stoppedAtMs > 0) return 'pass';
      stopped.signal('SIGSTOP');
      stoppedAtMs = performance.now();
      return 'pass';
    });
    const path = `/api/v1/devices/${device.id}/revoke`;
    const revoking = stopped.admin('POST', path, { reason: 'lost' });
    await eventually(() => stoppedAtMs > 0, 5_000, 'the lock');
    const [enrolled] = await Promise.all([
      other.enrol(),
      ...Array.from({ length: 10 }, async () => {
        const startMs = performance.now();
        t.equal(await other.authenticate(kept.credential), 'in');
        t.ok(performance.now() - startMs < 500, 'who only reads waits for nobody');
      }),
    ]);
    const tookMs = Math.round(performance.now() - stoppedAtMs);
    t.ok(tookMs < FREE_WITHIN_MS, `the other one wrote after ${tookMs} ms`);
    t.ok(tookMs > 500, `and it had to wait for the lock: ${tookMs} ms`);
    proxy.heal();
    stopped.signal('SIGCONT');
    const { status, json } = await revoking;
    t.ok(status === 200 || status === 503, `the stopped one answered ${status} ${json.code}`);
    await eventually(
      async () => (await stopped.authenticate(enrolled.credential)) === 'in',
      10_000,
    );
    const codes = await Promise.all(
      [other, stopped].map((server) => server.authenticate(device.credential)),
    );
    const expected = status === 200 ? 'device_revoked' : codes[0]!;
    t.same(codes, [expected, expected], 'both say the same of it');
    t.equal((await stopped.admin('POST', path, { reason: 'lost' })).status, 200);
    t.equal(await other.authenticate(device.credential), 'device_revoked');
  },
);
