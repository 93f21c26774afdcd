/**
 * How changes by other replicas get here: by a hint on a listener that proves itself, or a poll.
 */
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import t from 'tap';
import { startHaloCluster } from './fixtures/halo-cluster.js';
import { eventually, type HaloServer } from './fixtures/halo-server.js';
import { kill, newGateway, proxyOf } from './fixtures/push-cluster.js';
import { StreamClient } from './fixtures/stream-client.js';

async function pushOf(server: HaloServer): Promise<string> {
  return (await server.admin('GET', '/v1/status')).json.push;
}

t.test('a listener that hears nothing is replaced while the poll delivers', async (t) => {
  const cluster = await startHaloCluster(1);
  t.teardown(() => cluster.stop());
  const proxy = await proxyOf(cluster);
  t.teardown(() => proxy.stop());
  const directFile = join(cluster.installation.directory, 'direct.url');
  writeFileSync(directFile, proxy.urlOf(cluster.database.url));
  const listeners = new Set<unknown>();
  let silent: unknown;
  proxy.watch((chunk, link) => {
    if (chunk.includes('LISTEN halo_hint')) listeners.add(link);
    return link === silent ? 'drop' : 'pass';
  });
  proxy.watchAnswers((_chunk, link) => (link === silent ? 'drop' : 'pass'));
  const [near] = cluster.servers as [HaloServer];
  const server = await cluster.add(['--database-direct-url-file', directFile]);
  const { token } = await newGateway(near);
  const client = await StreamClient.open(server.url, { token });
  t.teardown(() => client.destroy());
  await eventually(async () => (await pushOf(server)) === 'listen', 10_000);
  t.equal(listeners.size, 1);
  [silent] = listeners;
  const startMs = Date.now();
  let slowestMs = 0;
  let replacedMs = 0;
  for (let round = 0; replacedMs === 0 || (await pushOf(server)) !== 'listen'; round += 1) {
    const version = await kill(near, `poll-${round}`);
    const ms = await eventually(() => client.list.version >= version, 5_000);
    slowestMs = Math.max(slowestMs, ms);
    if (listeners.size > 1 && replacedMs === 0) replacedMs = Date.now() - startMs;
    if (Date.now() - startMs > 20_000) break;
  }
  t.ok(replacedMs > 0 && replacedMs < 10_000, `replaced after ${replacedMs} ms`);
  t.ok(slowestMs < 1_000, `meanwhile a kill took at most ${slowestMs} ms`);
  t.same(client.list.faults, []);
});

t.test('without a direct connection it polls, and says so', async (t) => {
  const cluster = await startHaloCluster(1);
  t.teardown(() => cluster.stop());
  const [near] = cluster.servers as [HaloServer];
  const server = await cluster.add(['--database-pooled']);
  const { token } = await newGateway(near);
  const client = await StreamClient.open(server.url, { token });
  t.teardown(() => client.destroy());
  await eventually(() => client.frames.length > 0, 5_000);
  for (let round = 0; round < 5; round += 1) {
    const version = await kill(near, `poll-${round}`);
    const ms = await eventually(() => client.list.version >= version, 5_000);
    t.ok(ms < 600, `after ${ms} ms`);
  }
  t.equal(await pushOf(server), 'poll');
});
