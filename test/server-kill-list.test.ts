/**
 * The kill list as gateways and operators see it, on real servers: one process on files, and two
 * replicas on one PostgreSQL, with the client library and the command line against them.
 */
import { spawn } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import t, { type Test } from 'tap';
import { followKillList, type KillList, type KillListEvent } from '../src/client/gateway.js';
import { startHaloCluster } from './fixtures/halo-cluster.js';
import {
  eventually,
  HaloServer,
  type Installation,
  newInstallation,
} from './fixtures/halo-server.js';
import { StreamClient } from './fixtures/stream-client.js';

// Real servers, which take their time to start.
t.setTimeout(180_000);

const HALO = fileURLToPath(new URL('../src/cli/halo.js', import.meta.url));
const LIST = '/api/v1/kill-list';
const GATEWAYS = '/api/v1/gateways';
let written = 0;

/** Two ways to one installation; on files both are the same server. */
interface Site {
  readonly installation: Installation;
  readonly a: HaloServer;
  readonly b: HaloServer;
}

async function onFiles(t: Test): Promise<Site> {
  const installation = newInstallation();
  const data = join(installation.directory, 'data');
  const server = await HaloServer.start(installation, ['--data-dir', data]);
  t.teardown(() => server.stop('SIGKILL'));
  return { installation, a: server, b: server };
}

async function onPostgres(t: Test): Promise<Site> {
  const halo = await startHaloCluster(2);
  t.teardown(() => halo.stop());
  const [a, b] = halo.servers as [HaloServer, HaloServer];
  return { installation: halo.installation, a, b };
}

/** Runs `halo` as a process of its own. */
function halo(url: string, tokenFile: string, ...args: string[]) {
  const child = spawn(process.execPath, [HALO, ...args], {
    env: { HALO_URL: url, HALO_TOKEN_FILE: tokenFile, HALO_JSON: '1' },
  });
  const said = { out: '', err: '' };
  child.stdout.on('data', (chunk: Buffer) => {
    said.out += chunk.toString();
  });
  child.stderr.on('data', (chunk: Buffer) => {
    said.err += chunk.toString();
  });
  const ended = new Promise<number | null>((resolve) => child.once('exit', resolve));
  return { said, ended, stop: () => child.kill('SIGKILL') };
}

function follow(t: Test, server: HaloServer, token: string) {
  const events: KillListEvent[] = [];
  const list: KillList = followKillList({
    url: server.url,
    token,
    onEvent: (event) => events.push(event),
  });
  t.teardown(() => list.close());
  return { list, events, types: () => events.map(({ type }) => type) };
}

async function makeGateway(
  server: HaloServer,
  name: string,
): Promise<{ id: string; token: string }> {
  return (await server.admin('POST', GATEWAYS, { name })).json;
}

async function operate(t: Test, { a, b }: Site): Promise<void> {
  const device = await a.enrol('carl');
  const gateway = await makeGateway(a, 'edge');
  const kill = (path: string, body: object) => a.admin('PUT', LIST + path, body);
  const first = await kill(`/device/${device.id}`, { reason: 'lost' });
  t.match(first, { status: 200, json: { version: 1, entry: { by: 'root', reason: 'lost' } } });
  t.equal(await b.authenticate(device.credential), 'device_killed', 'at once, everywhere');
  const again = await b.admin('PUT', `${LIST}/device/${device.id}`, { reason: 'other' });
  t.match(again.json, { version: 1, entry: { reason: 'lost' } });
  const poll = await a.call('GET', LIST, { token: gateway.token });
  const etag = poll.headers.get('etag') ?? '';
  t.equal(etag, `"${poll.json.epoch}.1"`);
  const headers = { 'if-none-match': etag };
  const same = await b.call('GET', LIST, { token: gateway.token, headers });
  t.match([same.status, same.text], [304, ''], 'on any replica');
  await kill('/user/CARL', { reason: 'left' });
  t.equal((await b.call('GET', LIST, { token: gateway.token, headers })).json.version, 2);
  await b.admin('DELETE', `${LIST}/device/${device.id}`);
  t.equal(await a.authenticate(device.credential), 'device_killed', 'by the user’s kill');
  t.match((await b.admin('DELETE', `${LIST}/user/Carl`)).json, { version: 4 });
  t.equal(await a.authenticate(device.credential), 'in');
  const past = { reason: 'r', expiresAt: '2020-01-01T00:00:00Z' };
  t.match(await kill('/agent/a', past), { status: 422, json: { code: 'kill_already_expired' } });
  const key = { 'idempotency-key': 'one' };
  const keyed = (server: HaloServer, reason: string) =>
    server.call('PUT', `${LIST}/agent/keyed`, {
      token: 'a-token-for-tests-of-40-characters-00000',
      body: { reason },
      headers: key,
    });
  const made = await keyed(a, 'r');
  await b.admin('DELETE', `${LIST}/agent/keyed`);
  t.same((await keyed(b, 'r')).json, made.json, 'the same call, the same answer');
  t.equal((await keyed(b, 'other')).json.code, 'idempotency_mismatch');
  t.same((await a.admin('GET', LIST)).json.entries, [], 'and nothing is killed by it');
}

async function rotateAndRemove(t: Test, { a, b }: Site): Promise<void> {
  const gateway = await makeGateway(a, 'rotating');
  const old = follow(t, b, gateway.token);
  await old.list.ready();
  const path = `${GATEWAYS}/${gateway.id}`;
  const { token } = (await a.admin('POST', `${path}/rotate`, { overlapSeconds: 1 })).json;
  t.equal((await b.call('GET', LIST, { token })).status, 200, 'the new one at once');
  t.equal((await b.call('GET', LIST, { token: gateway.token })).status, 200, 'the old one still');
  await eventually(() => old.types().includes('refused'), 5_000, 'the end of the overlap');
  const refused = await a.call('GET', LIST, { token: gateway.token });
  t.match(refused, { status: 401, json: { code: 'token_unknown' } });
  const current = follow(t, b, token);
  await current.list.ready();
  await a.admin('DELETE', path);
  await eventually(() => current.types().includes('refused'), 2_000, 'the end of a removed one');
  t.match(await b.call('GET', LIST, { token }), { status: 401, json: { code: 'token_unknown' } });
  t.match(await b.admin('DELETE', path), { status: 200, json: { id: gateway.id } });
  t.match(await b.admin('POST', `${path}/rotate`), { json: { code: 'gateway_not_found' } });
}

async function waitForAll(t: Test, { a, b, installation }: Site): Promise<void> {
  const gateway = await makeGateway(a, 'proven');
  const silent = await makeGateway(a, 'silent');
  const near = follow(t, a, gateway.token);
  const far = follow(t, b, gateway.token);
  await Promise.all([near.list.ready(), far.list.ready()]);
  const tokenFile = installation.tokenFile;
  const killing = halo(a.url, tokenFile, 'kill', 'agent', 'evil', '--reason', 'r', '--wait');
  t.equal(await killing.ended, 0, killing.said.err);
  t.ok(near.list.find('agent', 'evil'));
  t.ok(far.list.find('agent', 'evil'), 'who acknowledged has it');
  const { version } = JSON.parse(killing.said.out);
  const seen = (await b.admin('GET', GATEWAYS)).json.items;
  t.match(
    seen.find(({ id }: { id: string }) => id === gateway.id),
    { connections: 2, ackVersion: version },
  );
  const deaf = await StreamClient.open(b.url, { token: silent.token });
  t.teardown(() => deaf.destroy());
  const again = ['kill', 'agent', 'worse', '--reason', 'r', '--wait', '--timeout', '4s'];
  const failing = halo(a.url, tokenFile, ...again);
  t.equal(await failing.ended, 1);
  t.match(JSON.parse(failing.said.out).laggards, [{ gateway: silent.id, name: 'silent' }]);
  const behind = (await a.admin('GET', `${GATEWAYS}?behind=true`)).json.items;
  t.same(
    behind.map(({ id }: { id: string }) => id),
    [silent.id],
  );
}

async function watchFromElsewhere(t: Test, { a, b, installation }: Site): Promise<void> {
  const gateway = await makeGateway(a, 'watching');
  written += 1;
  const tokenFile = join(installation.directory, `gateway-${written}`);
  writeFileSync(tokenFile, gateway.token);
  const watching = halo(b.url, tokenFile, 'gateway', 'watch');
  t.teardown(() => watching.stop());
  await eventually(() => watching.said.out.includes('"list"'), 10_000, 'the first list');
  const soon = new Date(Date.now() + 1_000).toISOString();
  await a.admin('PUT', `${LIST}/agent/brief`, { reason: 'r', expiresAt: soon });
  await eventually(() => watching.said.out.includes('"brief"'), 2_000, 'the kill');
  await eventually(() => /"lift":\[{"kind":"agent","id":"brief"/.test(watching.said.out), 5_000);
  const changes = watching.said.out
    .trim()
    .split('\n')
    .map((line) => JSON.parse(line))
    .filter(({ type }) => type === 'change');
  t.equal(changes.length, 2, 'an expiry is one lift');
  t.equal(changes[1].version, changes[0].version + 1);
  await a.admin('DELETE', `${GATEWAYS}/${gateway.id}`);
  t.equal(await watching.ended, 1, 'it ends when it is shut out');
}

for (const [where, open] of [
  ['on files', onFiles],
  ['on two replicas', onPostgres],
] as const) {
  t.test(`${where}: kills, lifts, tokens, acknowledgements and watchers`, async (t) => {
    const site = await open(t);
    await t.test(`${where}: kill, poll and lift`, (t) => operate(t, site));
    await t.test(`${where}: a token is rotated and removed`, (t) => rotateAndRemove(t, site));
    await t.test(`${where}: a kill waits for every gateway`, (t) => waitForAll(t, site));
    await t.test(`${where}: a watcher hears what others do`, (t) => watchFromElsewhere(t, site));
  });
}
