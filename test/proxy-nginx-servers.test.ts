/** Real servers on PostgreSQL behind the nginx configuration that is shipped. */
import { Agent } from 'node:https';
import t, { type Test } from 'tap';
import { type HaloCluster, startHaloCluster } from './fixtures/halo-cluster.js';
import { eventually, HaloServer } from './fixtures/halo-server.js';
import { hasNginx, type Nginx, startNginx, visit } from './fixtures/nginx.js';
import { Neighbour } from './fixtures/proxy-neighbours.js';

/** nginx asks from this address; its clients in these tests come from others. */
const BEHIND_NGINX = ['--trusted-proxies', '127.0.0.1/32'];

interface Site {
  readonly halo: HaloCluster;
  readonly nginx: Nginx;
  readonly application: Neighbour;
  readonly ports: readonly number[];
}

async function startSite(t: Test): Promise<Site> {
  const halo = await startHaloCluster(2, {}, BEHIND_NGINX);
  t.teardown(() => halo.stop());
  const application = await Neighbour.start();
  t.teardown(() => application.stop());
  const ports = halo.servers.map(({ url }) => Number(new URL(url).port));
  const nginx = await startNginx({ replicas: ports, application: application.port });
  t.teardown(() => nginx.stop());
  return { halo, nginx, application, ports };
}

/** Replaces one replica by a new process on the same port, as a rolling restart does. */
async function replace({ halo, ports }: Site, index: number): Promise<number | string | null> {
  const code = await halo.servers[index]!.stop('SIGTERM');
  halo.servers[index] = await HaloServer.start(halo.installation, halo.storage(), [
    ...BEHIND_NGINX,
    ...['--listen', `127.0.0.1:${ports[index]}`],
  ]);
  return code;
}

/** What the logs know of requests that failed. */
function traces(failed: readonly string[], servers: readonly HaloServer[], nginx: Nginx): string {
  const ids = failed.map((text) => text.split(' ')[1] ?? '').filter((id) => id.length > 8);
  const lines = [nginx.errors(), ...servers.map(({ output }) => output)].join('\n').split('\n');
  return lines
    .filter((line) => ids.some((id) => line.includes(id)) || /prematurely|104:/.test(line))
    .slice(0, 40)
    .join('\n');
}

if (!hasNginx()) {
  t.not(process.env.CI, 'true', 'nginx is not installed: no server was tried behind it');
} else {
  t.test('devices are let in and kept out of a page by two replicas', async (t) => {
    const { halo, nginx, application } = await startSite(t);
    const [first, second] = halo.servers as [HaloServer, HaloServer];
    const device = await first.enrol('Ünï %');
    const lost = await first.enrol('bob');
    for (let index = 0; index < 6; index += 1) {
      const answer = await visit(nginx, `/${'p'.repeat(6_000)}`, {
        method: 'POST',
        bearer: device.credential,
        from: '127.0.0.5',
        headers: { 'x-halo-user': 'root', 'x-forwarded-for': '192.0.2.1' },
        body: Buffer.alloc(200_000),
      });
      t.equal(answer.status, 200);
    }
    t.same(application.last('x-halo-device'), [device.id]);
    t.same(application.last('x-halo-user'), ['%C3%BCn%C3%AF%20%25']);
    t.match(application.noted.at(-1), { bodyBytes: 200_000 });
    t.match(await visit(nginx, '/'), { status: 401, headers: { 'www-authenticate': 'Bearer' } });
    const unknown = device.credential.replace(/.$/, (last) => (last === 'a' ? 'b' : 'a'));
    t.equal((await visit(nginx, '/', { bearer: unknown })).status, 401);
    t.equal((await visit(nginx, '/', { bearer: 'x'.repeat(7_000) })).status, 401);
    t.equal((await visit(nginx, '/', { bearer: lost.credential })).status, 200);
    await second.admin('POST', `/api/v1/devices/${lost.id}/revoke`, { reason: 'lost' });
    for (let index = 0; index < 6; index += 1) {
      const refused = await visit(nginx, '/', { bearer: lost.credential, from: '127.0.0.6' });
      t.equal(refused.status, 403);
    }
  });

  t.test('the logs of Halos name the client and the request as nginx knows them', async (t) => {
    const { halo, nginx } = await startSite(t);
    const answer = await visit(nginx, '/', {
      from: '127.0.0.7',
      headers: { 'x-forwarded-for': '192.0.2.1', forwarded: 'for=192.0.2.2' },
    });
    const id = answer.headers['x-request-id'] ?? '';
    t.match(id, /^[0-9a-f]{32}$/);
    const lines = (): string[] =>
      halo.servers.flatMap(({ output }) => output.split('\n').filter((line) => line.includes(id)));
    await eventually(() => lines().length > 0, 5_000, 'the log line');
    t.match(JSON.parse(lines()[0] ?? ''), { client: '127.0.0.7', code: 'credential_missing' });
  });

  t.test('a device enrols and rotates through nginx; administrators have no way in', async (t) => {
    const { halo, nginx } = await startSite(t);
    const [server] = halo.servers as [HaloServer];
    const minted = await server.admin('POST', '/api/v1/enrollment-tokens', { user: 'ann' });
    const send = (path: string, bearer: string, body: unknown) =>
      visit(nginx, path, {
        method: 'POST',
        ...(bearer === '' ? {} : { bearer }),
        headers: { 'content-type': 'application/json', cookie: 'c'.repeat(7_000) },
        body: JSON.stringify(body),
      });
    const form = { token: minted.json.token, name: 'laptop', platform: 'linux' };
    const enrolled = await send('/api/v1/enroll', '', form);
    t.equal(enrolled.status, 201);
    t.notOk('uwebsockets' in enrolled.headers);
    const { device, credential } = enrolled.json;
    const rotated = await send(`/api/v1/devices/${device.id}/rotate`, credential, {});
    t.equal(rotated.status, 200);
    t.equal((await visit(nginx, '/', { bearer: rotated.json.credential })).status, 200);
    t.match(await send('/api/v1/enroll', '', { ...form, name: 1 }), {
      status: 422,
      json: { code: 'validation_failed' },
    });
    t.equal((await send('/api/v1/enroll', '', { ...form, name: 'x'.repeat(70_000) })).status, 413);
    for (const path of ['/api/v1/enrollment-tokens', '/v1/status', '/metrics', '/readyz']) {
      t.equal((await send(path, credential.replace('halo_device', 'halo_admin'), {})).status, 401);
    }
  });

  t.test('whoever guesses is told to slow down, and nobody else behind nginx is', async (t) => {
    const { halo, nginx } = await startSite(t);
    const { credential } = await halo.servers[0]!.enrol();
    const guess = (from: string) => visit(nginx, '/', { bearer: 'a-guess', from });
    for (let index = 0; index < 10; index += 1) {
      t.equal((await guess('127.0.0.8')).status, 401, 'ten for both replicas together');
    }
    const refused = await guess('127.0.0.8');
    t.match(refused, { status: 429, json: { status: 429, retryable: true } });
    const seconds = Number(refused.headers['retry-after']);
    t.ok(seconds >= 1 && seconds <= 60, `come back after ${seconds} s`);
    t.equal((await guess('127.0.0.9')).status, 401);
    const known = await visit(nginx, '/', { bearer: credential, from: '127.0.0.8' });
    t.equal(known.status, 200, 'a valid credential passes from anywhere');
  });

  t.test(
    'while the store is away clients are told to come back, and then are let in',
    async (t) => {
      const { halo, nginx } = await startSite(t);
      const { credential } = await halo.servers[0]!.enrol();
      const status = async (): Promise<number> =>
        (await visit(nginx, '/', { bearer: credential })).status;
      t.equal(await status(), 200);
      await halo.cluster.server.kill();
      const away = await visit(nginx, '/', { bearer: credential });
      t.match(away, { status: 503, headers: { 'retry-after': '1' }, json: { retryable: true } });
      await halo.cluster.server.restart();
      await eventually(async () => (await status()) === 200, 15_000, 'the store is back');
    },
  );

  t.test('a rolling restart of both replicas under load fails not one request', async (t) => {
    const site = await startSite(t);
    const { halo, nginx } = site;
    const { credential } = await halo.servers[0]!.enrol();
    const agent = new Agent({ keepAlive: true });
    t.teardown(() => agent.destroy());
    const ended: HaloServer[] = [];
    const failed: string[] = [];
    let letIn = 0;
    let asking = true;
    const ask = async (): Promise<void> => {
      while (asking) {
        const answer = await visit(nginx, '/', { bearer: credential, agent }).catch(String);
        if (typeof answer === 'string') failed.push(answer);
        else if (answer.status === 200) letIn += 1;
        else failed.push(`${answer.status} ${answer.headers['x-request-id']}`);
      }
    };
    const clients = Array.from({ length: 8 }, ask);
    await eventually(() => letIn > 100, 10_000, 'load');
    for (const index of [0, 1, 0, 1]) {
      const before = letIn;
      ended.push(halo.servers[index]!);
      t.equal(await replace(site, index), 0);
      await eventually(() => letIn > before + 100, 10_000, 'load on the new one');
    }
    asking = false;
    await Promise.all(clients);
    t.same(failed, []);
    if (failed.length > 0) t.comment(traces(failed, [...ended, ...halo.servers], nginx));
  });
}
