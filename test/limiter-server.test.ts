/** Real replicas under guesses: one address on three of them, ten thousand at once on one. */
import { Agent, request } from 'node:http';
import t, { type Test } from 'tap';
import type { LimiterFacts } from '../src/actors/limiter/messages.js';
import { mintSecret } from '../src/actors/secrets.js';
import { systemRandom } from '../src/runtime/random.js';
import { fromAnotherAddress, TRUST_LOOPBACK } from './fixtures/another-address.js';
import { type HaloCluster, startHaloCluster } from './fixtures/halo-cluster.js';
import type { HaloServer } from './fixtures/halo-server.js';

// Real servers, and many requests.
t.setTimeout(240_000);

const AUTH = '/api/v1/auth/device';

function guess(server: HaloServer, headers: Record<string, string>): Promise<number> {
  const token = mintSecret('device', systemRandom);
  return server.call('GET', AUTH, { token, headers }).then(({ status }) => status);
}

async function factsOf(server: HaloServer): Promise<LimiterFacts> {
  const status = await server.admin('GET', '/v1/status');
  return status.json.actors.find(({ name }: { name: string }) => name === 'limiter');
}

/** A sample of the moment; the status page is half a second behind. */
async function metric(server: HaloServer, sample: string): Promise<number> {
  const text = await (await fetch(`${server.metricsUrl}/metrics`)).text();
  const line = text.split('\n').find((candidate) => candidate.startsWith(`${sample} `));
  return Number(line?.slice(sample.length));
}

async function storeErrors(halo: HaloCluster): Promise<number> {
  const each = halo.servers.map((server) => metric(server, 'halo_limiter_store_errors_total'));
  return (await Promise.all(each)).reduce((sum, errors) => sum + errors, 0);
}

/** The statuses of guesses from one address on all replicas at once. */
async function guessEverywhere(halo: HaloCluster, times: number): Promise<number[]> {
  const headers = fromAnotherAddress();
  const each = async (server: HaloServer): Promise<number[]> => {
    const statuses: number[] = [];
    for (let i = 0; i < times; i += 1) statuses.push(await guess(server, headers));
    return statuses;
  };
  return (await Promise.all(halo.servers.map(each))).flat();
}

/** On a machine so busy that the store does not answer in time, only local budgets hold: again. */
async function guessWhileStoreAnswers(t: Test, halo: HaloCluster): Promise<number[]> {
  for (let attempt = 1; ; attempt += 1) {
    // The first failure opens a connection to the database, which may take its time.
    await Promise.all(halo.servers.map((server) => guess(server, fromAnotherAddress())));
    const before = await storeErrors(halo);
    const statuses = await guessEverywhere(halo, 20);
    const errors = (await storeErrors(halo)) - before;
    if (errors === 0 || attempt === 5) return statuses;
    t.comment(`the store was late ${errors} times`);
  }
}

const halo = await startHaloCluster(3, {}, [...TRUST_LOOPBACK, '--front-threads', '1']);
t.teardown(() => halo.stop());

t.test('one address that guesses on three replicas gets one budget', async (t) => {
  const statuses = await guessWhileStoreAnswers(t, halo);
  const refused = statuses.filter((status) => status === 401).length;
  t.ok(refused >= 10 && refused <= 10 + 3, `${refused} times 401`);
  t.equal(statuses.filter((status) => status === 429).length, statuses.length - refused);
});

t.test('a device, a token and an administrator at a blocked address get in', async (t) => {
  const [server] = halo.servers as [HaloServer];
  const headers = fromAnotherAddress();
  const device = await server.enrol();
  const minted = await server.admin('POST', '/api/v1/enrollment-tokens', { user: 'ann' });
  for (let i = 0; i < 11; i += 1) {
    await guess(server, headers);
    const token = mintSecret('enroll', systemRandom);
    const body = { token, name: 'n', platform: 'p' };
    await server.call('POST', '/api/v1/enroll', { headers, body });
  }
  t.equal(await guess(server, headers), 429);
  const valid = await server.call('GET', AUTH, { token: device.credential, headers });
  t.equal(valid.status, 200);
  const body = { token: minted.json.token, name: 'n', platform: 'p' };
  t.equal((await server.call('POST', '/api/v1/enroll', { headers, body })).status, 201);
});

t.test('ten thousand addresses that guess at once stop no device', async (t) => {
  const [server] = halo.servers as [HaloServer];
  const device = await server.enrol();
  const agent = new Agent({ keepAlive: true, maxSockets: 64 });
  t.teardown(() => agent.destroy());
  const status = (token: string): Promise<number> =>
    new Promise((resolve, reject) => {
      const headers = { authorization: `Bearer ${token}`, ...fromAnotherAddress() };
      const outgoing = request(server.url + AUTH, { agent, headers }, (incoming) => {
        incoming.resume().on('end', () => resolve(incoming.statusCode ?? 0));
      });
      outgoing.on('error', reject).end();
    });
  const guesses: Promise<number>[] = [];
  const valid: Promise<number>[] = [];
  for (let i = 0; i < 10_000; i += 1) {
    guesses.push(status(mintSecret('device', systemRandom)));
    if (i % 20 === 0) valid.push(status(device.credential));
  }
  const statuses = await Promise.all(guesses);
  t.same([...new Set(await Promise.all(valid))], [200], 'every valid one passed');
  t.ok(statuses.every((got) => got === 401 || got === 503));
  const refused = statuses.filter((got) => got === 401).length;
  t.ok(refused > 9_000, `${refused} times 401`);
});

t.test('what it counts is in the metrics and on the status page', async (t) => {
  const [server] = halo.servers as [HaloServer];
  await server.call('GET', '/v1/status', { token: 'x', headers: fromAnotherAddress() });
  const value = (sample: string): Promise<number> => metric(server, `halo_${sample}`);
  t.ok((await value('limiter_failures_total{class="device"}')) >= 10_000);
  t.ok((await value('limiter_failures_total{class="enrolment"}')) >= 11);
  t.ok((await value('limiter_failures_total{class="admin"}')) >= 1);
  t.equal(await value('limiter_failures_total{class="gateway"}'), 0);
  const tracked = await value('limiter_tracked_addresses');
  t.ok(tracked >= (await value('limiter_blocked_addresses')));
  for (const name of ['evicted', 'store_errors', 'writes_dropped']) {
    t.ok((await value(`limiter_${name}_total`)) >= 0, name);
  }
  t.ok((await value('http_failures_total{code="too_many_failures"}')) >= 1);
  t.equal(await value('actor_up{actor="limiter"}'), 1);
  t.match(await factsOf(server), { state: 'running', failures: { gateway: 0 } });
});
