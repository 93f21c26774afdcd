/** What `halo kill`, `lift` and `gateway` ask and say. The server is a stand-in. */
import { chmodSync } from 'node:fs';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import t, { type Test } from 'tap';
import { runHalo } from '../src/cli/halo/program.js';
import { keepAlive } from './fixtures/keep-alive.js';
import {
  delta,
  EPOCH,
  heartbeat,
  type ScriptedServer,
  snapshot,
  startScripted,
} from './fixtures/scripted-kill-list.js';
import { until } from './fixtures/toy-actor.js';

keepAlive(t);

const TOKEN = 'x'.repeat(40);
const ENTRY = {
  kind: 'agent',
  id: 'a/b',
  reason: 'leaked',
  by: 'ops',
  at: '2026-01-31T12:00:00.000Z',
};
const killed = { epoch: EPOCH, version: 8, entry: ENTRY };
const gateway = (name: string, ackVersion?: number): object => ({
  id: `gw_${name}`,
  name,
  createdAt: '2026-01-31T12:00:00.000Z',
  connections: ackVersion === undefined ? 0 : 1,
  ...(ackVersion === undefined ? {} : { ackVersion, ackAt: '2026-01-31T12:00:01.000Z' }),
});
const list = (items: readonly object[], version = 8, epoch = EPOCH): object => ({
  items,
  epoch,
  version,
});

/** Runs `halo` against whatever listens at the address. */
function haloAt(t: Test, url: string) {
  const tokenFile = join(t.testdir({ token: `ops:${TOKEN}\n` }), 'token');
  chmodSync(tokenFile, 0o600);
  return async (...args: string[]) => {
    const said = { out: '', err: '' };
    const exitCode = await runHalo(args, {
      environment: { HALO_URL: url, HALO_TOKEN_FILE: tokenFile },
      out: (text) => {
        said.out += text;
      },
      err: (text) => {
        said.err += text;
      },
    });
    return { exitCode, ...said };
  };
}

/** A server that gives prepared answers, the last of them for ever, and remembers the questions. */
async function standIn(t: Test, answers: readonly object[]) {
  const asked: string[] = [];
  const bodies: string[] = [];
  const rest = [...answers];
  const server = createServer((request: IncomingMessage, response: ServerResponse) => {
    let body = '';
    request.on('data', (chunk: Buffer) => {
      body += chunk.toString();
    });
    request.on('end', () => {
      asked.push(`${request.method} ${request.url}`);
      bodies.push(body);
      const value = rest.length > 1 ? rest.shift() : rest[0];
      response.writeHead(200, { 'content-type': 'application/json' });
      response.end(JSON.stringify(value));
    });
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  t.teardown(() => {
    server.close();
    server.closeAllConnections();
  });
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  return { asked, bodies, halo: haloAt(t, url) };
}

t.test('a kill says what is in force, and from which version on', async (t) => {
  const { asked, bodies, halo } = await standIn(t, [killed]);
  const { exitCode, out } = await halo('kill', 'agent', 'a/b', '--reason', 'leaked');
  t.equal(exitCode, 0);
  t.equal(out, 'killed   agent a/b\nreason   leaked\nby       ops\nexpires  never\nversion  8\n');
  t.same(asked, ['PUT /api/v1/kill-list/agent/a%2Fb']);
  t.same(bodies, ['{"reason":"leaked"}']);
  const json = await halo('kill', 'agent', 'a/b', '--reason', 'leaked', '--json');
  t.same(JSON.parse(json.out), killed);
});

t.test('a kill ends after a while or at a time', async (t) => {
  const { bodies, halo } = await standIn(t, [killed]);
  const startMs = Date.now();
  await halo('kill', 'agent', 'a', '--reason', 'r', '--expires-in', '1h');
  const { expiresAt } = JSON.parse(bodies[0] ?? '');
  const inMs = Date.parse(expiresAt) - startMs;
  t.ok(inMs >= 3_600_000 && inMs < 3_610_000, `${inMs}`);
  await halo('kill', 'agent', 'a', '--reason', 'r', '--expires-at', '2099-01-31T13:00:00+01:00');
  t.equal(JSON.parse(bodies[1] ?? '').expiresAt, '2099-01-31T12:00:00.000Z');
});

t.test('--wait returns when every connected gateway has acknowledged that kill', async (t) => {
  const { asked, halo } = await standIn(t, [
    killed,
    list([gateway('east', 7), gateway('west', 5)]),
    list([gateway('west', 5)]),
    list([gateway('west', 8)], 9),
  ]);
  const startMs = Date.now();
  const { exitCode, out } = await halo('kill', 'agent', 'a', '--reason', 'r', '--wait');
  t.equal(exitCode, 0);
  t.match(
    out,
    /known {4}by every connected gateway\n$/,
    'who knows this one need not know the next',
  );
  t.same([...new Set(asked.slice(1))], ['GET /api/v1/gateways?limit=500&behind=true']);
  t.ok(Date.now() - startMs >= 2_500, 'and who connected just before it is known by then');
});

t.test('--wait names those that have not acknowledged in time, and ends with 1', async (t) => {
  const { halo } = await standIn(t, [killed, list([gateway('east', 7), gateway('west', 0)])]);
  const kill = ['kill', 'agent', 'a', '--reason', 'r', '--wait', '--timeout', '300ms'];
  const { exitCode, out } = await halo(...kill);
  t.equal(exitCode, 1);
  t.match(out, 'not by east (gw_east) is at version 7, west (gw_west) is at version 0\n');
  const restored = await standIn(t, [killed, list([], 1, 'ffffffffffffffff')]);
  t.match(await restored.halo(...kill), { exitCode: 1, err: /history of the store changed/ });
});

t.test('a lift says where the list is', async (t) => {
  const { asked, halo } = await standIn(t, [{ epoch: EPOCH, version: 9 }]);
  t.match(await halo('lift', 'user', 'Ann B'), { exitCode: 0, out: 'version  9\n' });
  t.same(asked, ['DELETE /api/v1/kill-list/user/Ann%20B']);
});

t.test('a list of gateways goes on until its last page', async (t) => {
  const { asked, halo } = await standIn(t, [
    { ...list([gateway('east', 7)]), next: 'c1' },
    { ...list([gateway('west', 8)], 9), next: 'c2' },
    list([gateway('idle')], 9),
  ]);
  const { value } = JSON.parse(`{"value":${(await halo('gateway', '--json')).out}}`);
  t.match(value, { items: [{ name: 'east' }, { name: 'west' }, { name: 'idle' }], version: 9 });
  t.notOk('next' in value);
  t.same(asked, [
    'GET /api/v1/gateways?limit=500',
    'GET /api/v1/gateways?limit=500&cursor=c1',
    'GET /api/v1/gateways?limit=500&cursor=c2',
  ]);
});

t.test('gateways are listed with how far they are, made, rotated and removed', async (t) => {
  const { asked, bodies, halo } = await standIn(t, [
    list([gateway('east', 8), gateway('west', 5), gateway('idle')]),
    list([]),
    { id: 'gw_1', name: 'edge', token: 'halo_gateway_x' },
    { token: 'halo_gateway_y' },
    { id: 'gw_1', removedAt: '2026-01-31T12:00:00.000Z' },
  ]);
  t.equal(
    (await halo('gateway')).out,
    [
      'ID       NAME  CREATED           STREAMS  VERSION  STATE',
      'gw_east  east  2026-01-31 12:00  1        8        current',
      'gw_west  west  2026-01-31 12:00  1        5        behind (newest: 8)',
      'gw_idle  idle  2026-01-31 12:00  0        -        not connected',
      '',
    ].join('\n'),
  );
  t.equal((await halo('gateway', 'list', '--behind')).out, 'None is behind version 8.\n');
  t.equal((await halo('gateway', 'create', 'edge')).out, 'id     gw_1\ntoken  halo_gateway_x\n');
  t.equal((await halo('gateway', 'rotate', 'gw_1', '--overlap', '0s')).out, 'halo_gateway_y\n');
  t.match(await halo('gateway', 'remove', 'gw_1'), { exitCode: 0, out: /^id {7}gw_1\nremoved/ });
  t.same(asked, [
    'GET /api/v1/gateways?limit=500',
    'GET /api/v1/gateways?limit=500&behind=true',
    'POST /api/v1/gateways',
    'POST /api/v1/gateways/gw_1/rotate',
    'DELETE /api/v1/gateways/gw_1',
  ]);
  t.same(bodies.slice(2), ['{"name":"edge"}', '{"overlapSeconds":0}', '']);
});

async function watched(t: Test): Promise<{
  server: ScriptedServer;
  halo: ReturnType<typeof haloAt>;
}> {
  const server = await startScripted();
  t.teardown(() => server.close());
  return { server, halo: haloAt(t, server.url) };
}

t.test('watch prints what arrives, and goes on over a lost connection', async (t) => {
  const { server, halo } = await watched(t);
  const watching = halo('gateway', 'watch', '--for', '2s');
  const first = await server.connection(0);
  t.equal(first.request.headers.authorization, `Bearer ${TOKEN}`);
  first.send(snapshot(7, ['a\u001b[31m']));
  first.send(delta(7, 8, ['b'], ['a\u001b[31m']));
  await until(() => first.acked.includes(8));
  first.socket.terminate();
  const second = await server.connection(1);
  t.equal(second.since, `${EPOCH}.8`);
  second.send(heartbeat(8, '2026-01-31T12:00:00.000Z'));
  const { exitCode, out, err } = await watching;
  t.equal(exitCode, 0);
  t.equal(
    out,
    [
      '     7  the whole list: 1 killed',
      '     7  kill agent a\uFFFD[31m: r (root)',
      '     8  kill agent b: r (root)',
      '     8  lift agent a\uFFFD[31m',
      '     8  current as of 2026-01-31T12:00:00.000Z',
      '',
    ].join('\n'),
  );
  t.match(err, /^connected to .*\ndisconnected \(1006\); again in \d+ ms\nconnected to /);
});

t.test('watch ends with 1 on a gap, and when the token is none', async (t) => {
  const { server, halo } = await watched(t);
  const watching = halo('gateway', 'watch', '--json');
  const first = await server.connection(0);
  first.send(snapshot(7, []));
  first.send(delta(8, 9, ['b']));
  const gap = await watching;
  t.match(gap, { exitCode: 1, err: /a gap: version 9 does not follow on 7\n/ });
  t.same(
    gap.out
      .trim()
      .split('\n')
      .map((line) => JSON.parse(line).type),
    ['list', 'gap'],
  );
  server.refusal = { status: 401 };
  t.match(await halo('gateway', 'watch'), {
    exitCode: 1,
    err: /\/token is not a gateway’s.*`halo gateway create`/,
  });
});

t.test('watch ends with 1 when nothing arrived until its time was over', async (t) => {
  const halo = haloAt(t, 'http://127.0.0.1:1');
  const { exitCode, err } = await halo('gateway', 'watch', '--for', '200ms');
  t.equal(exitCode, 1);
  t.match(err, /^disconnected \(connect ECONNREFUSED .*\); again in \d+ ms\n/);
  t.match(err, /halo: no list arrived from http:\/\/127\.0\.0\.1:1\n$/);
});

t.test('a wrong command line ends with 2 before anything is asked', async (t) => {
  const { asked, halo } = await standIn(t, [{}]);
  for (const args of [
    ['kill', 'agent', 'a'],
    ['kill', 'agent', '--reason', 'r'],
    [
      'kill',
      'agent',
      'a',
      '--reason',
      'r',
      '--expires-in',
      '1h',
      '--expires-at',
      '2099-01-31T12:00:00Z',
    ],
    ['kill', 'agent', 'a', '--reason', 'r', '--expires-in', 'soon'],
    ['kill', 'agent', 'a', '--reason', 'r', '--expires-at', '2099-01-31T12:00:00'],
    ['kill', 'agent', 'a', '--reason', 'r', '--timeout', '5s'],
    ['lift', 'agent'],
    ['gateway', 'create'],
    ['gateway', 'rotate', 'gw_1', '--overlap', '2h'],
    ['gateway', 'watch', '--for', '0s'],
  ]) {
    t.match(await halo(...args), { exitCode: 2, out: '' }, args.join(' '));
  }
  t.same(asked, []);
});
