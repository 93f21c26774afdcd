/** A removed gateway is shut out on other replicas by the hint, wherever its actor runs. */
import t from 'tap';
import { startHaloCluster } from './fixtures/halo-cluster.js';
import { eventually, type HaloServer } from './fixtures/halo-server.js';
import { newGateway } from './fixtures/push-cluster.js';
import { StreamClient } from './fixtures/stream-client.js';

// Real servers, which take their time to start.
t.setTimeout(120_000);

const REMOVALS = 15;
/** The poll comes every 200 ms: without the hint half of the removals take longer than this. */
const MEDIAN_MAX_MS = 60;

t.test('a removal elsewhere ends its streams at once, not at the next poll', async (t) => {
  const halo = await startHaloCluster(1, {}, ['--front-threads', '1']);
  t.teardown(() => halo.stop());
  // Its gateways actor is not on the thread that listens.
  await halo.add(['--actor-threads', '2']);
  const [one, two] = halo.servers as [HaloServer, HaloServer];
  for (const [here, there] of [
    [one, two],
    [two, one],
  ] as const) {
    await eventually(async () => {
      return (await there.admin('GET', '/v1/status')).json.push === 'listen';
    }, 10_000);
    const tookMs: number[] = [];
    for (let count = 0; count < REMOVALS; count += 1) {
      const { id, token } = await newGateway(here);
      const stream = await StreamClient.open(there.url, { token });
      await eventually(() => stream.frames.length > 0, 5_000);
      t.equal((await here.admin('DELETE', `/api/v1/gateways/${id}`)).status, 200);
      const startMs = performance.now();
      await stream.ended;
      tookMs.push(performance.now() - startMs);
      t.equal(stream.closed?.code, 4403);
    }
    const median = Math.round(tookMs.sort((a, b) => a - b)[REMOVALS >> 1] ?? 0);
    t.ok(median < MEDIAN_MAX_MS, `a median of ${median} ms`);
  }
  const status = await two.admin('GET', '/v1/status');
  const threadOf = (actor: string): string =>
    status.json.actors.find(({ name }: { name: string }) => name === actor).thread;
  t.not(threadOf('gateways'), threadOf('kill-list'));
});
