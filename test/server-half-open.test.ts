/** Connections that stay open and hear nothing: what stood between has forgotten them. */
import t from 'tap';
import { startHaloCluster } from './fixtures/halo-cluster.js';
import { eventually, type HaloServer } from './fixtures/halo-server.js';
import { proxyOf } from './fixtures/push-cluster.js';

// Real servers, and faults that take their time.
t.setTimeout(120_000);

/** The bound. */
const NOTICED_WITHIN_MS = 10_000;

t.test('half-open connections are noticed and replaced within ten seconds', async (t) => {
  const halo = await startHaloCluster(0);
  t.teardown(() => halo.stop());
  const proxy = await proxyOf(halo);
  t.teardown(() => proxy.stop());
  const server: HaloServer = await halo.add([], proxy.urlOf(halo.database.url));
  const { credential } = await server.enrol();
  const tokens = await Promise.all(
    [1, 2, 3].map((user) =>
      server.admin('POST', '/api/v1/enrollment-tokens', { user: `u${user}` }),
    ),
  );
  const known = proxy.connections;
  proxy.loseConnections();
  const startMs = performance.now();
  const codes = new Set<string>();
  await eventually(
    async () => {
      const code = await server.authenticate(credential);
      codes.add(code);
      return code === 'in';
    },
    NOTICED_WITHIN_MS,
    'authentication',
  );
  const readMs = Math.round(performance.now() - startMs);
  t.ok(codes.has('store_unavailable'), [...codes].join(', '));
  codes.delete('store_unavailable');
  t.same([...codes], ['in']);
  await eventually(
    async () => {
      const form = { name: 'laptop', platform: 'linux' };
      const body = { ...form, token: tokens.shift()?.json.token };
      const { status } = await server.call('POST', '/api/v1/enroll', { body });
      t.ok([201, 503].includes(status), `an enrolment is answered ${status}`);
      return status === 201;
    },
    NOTICED_WITHIN_MS,
    'an enrolment',
  );
  await eventually(async () => (await server.call('GET', '/readyz')).status === 200, 5_000);
  const tookMs = Math.round(performance.now() - startMs);
  t.ok(tookMs < NOTICED_WITHIN_MS, `${known} connections replaced: all in ${tookMs} ms`);
  t.comment(`reads after ${readMs} ms`);
});
