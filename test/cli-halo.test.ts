/** What `halo` says of a server's answers, and how it ends. The server is a stand-in. */
import { chmodSync, writeFileSync } from 'node:fs';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import t, { type Test } from 'tap';
import { runHalo } from '../src/cli/halo/program.js';

interface Call {
  readonly method: string;
  readonly path: string;
  readonly headers: IncomingMessage['headers'];
  readonly body: string;
}
type Answer = readonly [status: number, body: unknown];

/** Control and formatting characters, line ends aside. */
const STEERING = /[^\P{C}\n]/u;
const TOKEN = 'x'.repeat(40);

const device = (index: number, extra: object = {}): object => ({
  id: `dev_${index}`,
  user: 'ann',
  name: `laptop ${index}`,
  platform: 'linux',
  enrolledAt: '2026-10-21T14:03:05.123Z',
  ...extra,
});

/** A server that gives prepared answers, in order, and remembers what it was asked. */
async function standIn(t: Test, answers: readonly Answer[]) {
  const calls: Call[] = [];
  const rest = [...answers];
  const server = createServer((request: IncomingMessage, response: ServerResponse) => {
    let body = '';
    request.on('data', (chunk: Buffer) => {
      body += chunk.toString();
    });
    request.on('end', () => {
      const { method = '', url = '', headers } = request;
      calls.push({ method, path: url, headers, body });
      const [status, value] = rest.shift() ?? [500, {}];
      response.writeHead(status, { 'content-type': 'application/json' });
      response.end(typeof value === 'string' ? value : JSON.stringify(value));
    });
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  t.teardown(() => {
    server.close();
    server.closeAllConnections();
  });
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  const tokenFile = join(t.testdir({ token: `ops:${TOKEN}\n` }), 'token');
  chmodSync(tokenFile, 0o600);
  const halo = async (...args: string[]) => {
    let out = '';
    let err = '';
    const exitCode = await runHalo(args, {
      environment: { HALO_URL: url, HALO_TOKEN_FILE: tokenFile },
      out: (text) => {
        out += text;
      },
      err: (text) => {
        err += text;
      },
    });
    return { exitCode, out, err };
  };
  return { calls, halo, url, tokenFile };
}

t.test('devices are listed as a table, over pages, up to the limit', async (t) => {
  const pages: Answer[] = [
    [
      200,
      { items: [device(1), device(2, { lastSeenAt: '2026-10-22T01:02:03.000Z' })], next: 'c/2' },
    ],
    [200, { items: [device(3, { revokedAt: '2026-10-22T00:00:00.000Z' })] }],
  ];
  const { calls, halo } = await standIn(t, pages);
  const { exitCode, out } = await halo('devices', '--user', 'Ann B', '--limit', '501');
  t.equal(exitCode, 0);
  t.equal(
    out,
    [
      'ID     USER  NAME      PLATFORM  ENROLLED          LAST SEEN         STATE',
      'dev_1  ann   laptop 1  linux     2026-10-21 14:03  never             active',
      'dev_2  ann   laptop 2  linux     2026-10-21 14:03  2026-10-22 01:02  active',
      'dev_3  ann   laptop 3  linux     2026-10-21 14:03  never             revoked',
      '',
    ].join('\n'),
  );
  t.same(
    calls.map((call) => call.path),
    ['/api/v1/devices?limit=500&user=Ann+B', '/api/v1/devices?limit=499&user=Ann+B&cursor=c%2F2'],
  );
  t.equal(calls[0]?.headers.authorization, `Bearer ${TOKEN}`);
});

t.test('a list that was cut says so, and an empty one too', async (t) => {
  const { halo } = await standIn(t, [
    [200, { items: [device(1)], next: 'c' }],
    [200, { items: [] }],
    [200, { items: [device(1)], next: 'c' }],
  ]);
  t.match((await halo('devices', 'list', '--limit', '1')).out, /There are more: --limit 10\n$/);
  t.equal((await halo('devices')).out, 'No devices.\n');
  const { out } = await halo('devices', '--limit', '1', '--json');
  t.same(JSON.parse(out), { items: [device(1)], more: true });
});

t.test('a device is shown, revoked and rotated by its id', async (t) => {
  const revoked = device(1, { revokedAt: '2026-10-22T00:00:00.000Z', revokedReason: 'lost' });
  const { calls, halo } = await standIn(t, [
    [200, device(1)],
    [200, revoked],
    [200, { credential: 'halo_device_new' }],
  ]);
  t.match((await halo('devices', 'show', 'dev_1')).out, /^id {9}dev_1\nuser {7}ann\n/);
  const { out } = await halo('devices', 'revoke', 'dev/1', '--reason', 'lost');
  t.match(out, /revoked {4}2026-10-22T00:00:00.000Z\nreason {5}lost\n$/);
  t.equal((await halo('devices', 'rotate', 'dev_1', '--overlap', '2m')).out, 'halo_device_new\n');
  t.same(
    calls.map(({ method, path, body }) => [method, path, body]),
    [
      ['GET', '/api/v1/devices/dev_1', ''],
      ['POST', '/api/v1/devices/dev%2F1/revoke', '{"reason":"lost"}'],
      ['POST', '/api/v1/devices/dev_1/rotate', '{"overlapSeconds":120}'],
    ],
  );
  t.match(calls[1]?.headers['idempotency-key'], /^[0-9a-f-]{36}$/);
});

t.test('an enrolment token is made for a user, for a time', async (t) => {
  const minted = { token: 'halo_enroll_x', expiresAt: '2026-10-21T15:00:00.000Z' };
  const { calls, halo } = await standIn(t, [
    [201, minted],
    [201, minted],
  ]);
  const { out } = await halo('enroll-token', 'ann', '--ttl', '1h');
  t.equal(out, 'token    halo_enroll_x\nexpires  2026-10-21T15:00:00.000Z\n');
  t.equal(calls[0]?.body, '{"user":"ann","ttlSeconds":3600}');
  t.same(JSON.parse((await halo('enroll-token', 'ann', '--json')).out), minted);
});

t.test('status shows whatever the server says of itself', async (t) => {
  const status = {
    replica: 'r1',
    backend: 'file',
    leader: { lease: 'controller', isLeader: true, holder: 'r1.2', token: 3 },
    leases: [
      { lease: 'controller', isLeader: true, holder: 'r1.2', token: 3 },
      { lease: 'audit-export-a', isLeader: false, holder: 'r2.1', token: 7 },
    ],
    newer: { b: 2 },
    actors: [
      {
        name: 'devices',
        thread: 'actor-1',
        readDepth: 2,
        epoch: 'e',
        devices: 3,
        failures: { x: 0 },
      },
      { name: 'kill-list', thread: 'actor-2', newer: { a: 1 } },
    ],
  };
  const { calls, halo } = await standIn(t, [
    [200, status],
    [200, status],
  ]);
  const { out } = await halo('status');
  t.equal(
    out.split('\n\n')[0],
    [
      'replica  r1',
      'backend  file',
      'newer    b 2',
      'leader   this replica, term 3',
      'leases   1 of 2 held',
    ].join('\n'),
  );
  t.equal(
    out.split('\n\n')[1],
    [
      'NAME       THREAD   STATE  READS  WRITES  RESTARTS  MORE',
      'devices    actor-1  -      2      -       -         devices 3',
      'kill-list  actor-2  -      -      -       -         newer a 1',
      '',
    ].join('\n'),
    'what only one actor has is told on its line, also what a newer server says',
  );
  t.equal(calls[0]?.path, '/v1/status');
  t.same(JSON.parse((await halo('status', '--json')).out), status);
});

t.test('a problem is told with its code and request id, and ends with 1', async (t) => {
  const problem = {
    title: 'The replica is tired.',
    code: 'replica_tired',
    requestId: 'r-17',
    retryable: false,
  };
  const { halo } = await standIn(t, [
    [404, problem],
    [
      503,
      { ...problem, title: 'Busy.', detail: 'Try later.', code: 'overloaded', retryable: true },
    ],
    [502, '<html>'],
    [200, '<html>'],
    [200, { items: [{ id: 7 }] }],
  ]);
  t.same(await halo('devices', 'show', 'dev_1'), {
    exitCode: 1,
    out: '',
    err: 'halo: The replica is tired. (replica_tired, request r-17)\n',
  });
  t.equal(
    (await halo('status')).err,
    'halo: Busy.: Try later. (overloaded, request r-17); trying again can help\n',
  );
  t.match(await halo('status'), {
    exitCode: 1,
    err: /status 502 from http:.*a Halos server.*--url/,
  });
  t.match(await halo('status'), { exitCode: 1, err: /is this a Halos server/ });
  t.match(await halo('devices'), { exitCode: 1, err: /another shape/ });
});

t.test('what a server sends cannot steer the terminal', async (t) => {
  const evil = '\u001b]0;owned\u0007\u202e';
  const { halo } = await standIn(t, [
    [200, { items: [device(1, { name: evil })] }],
    [400, { title: evil, code: evil }],
  ]);
  t.notMatch((await halo('devices')).out, STEERING);
  t.notMatch((await halo('devices')).err, STEERING);
});

t.test('a server that cannot be reached is a failure, not a crash', async (t) => {
  const { halo, tokenFile } = await standIn(t, []);
  const closed = createServer();
  await new Promise<void>((resolve) => closed.listen(0, '127.0.0.1', resolve));
  const { port } = closed.address() as AddressInfo;
  await new Promise((resolve) => closed.close(resolve));
  const { exitCode, err } = await halo('status', '--url', `http://127.0.0.1:${port}`);
  t.equal(exitCode, 1);
  t.equal(
    err,
    `halo: no answer from http://127.0.0.1:${port}: ECONNREFUSED: ` +
      'is a server running there? Name another with --url\n',
  );
  t.match(await halo('status', '--token-file', `${tokenFile}.none`), {
    exitCode: 1,
    err: /cannot read the token .* \(ENOENT\): .*--token-file/,
  });
  writeFileSync(tokenFile, '\u0000\ufffd');
  t.match(await halo('status'), { exitCode: 1, err: /^halo: there is no token in .*\/token\n$/ });
});

t.test('a problem that a person can do something about says what', async (t) => {
  const problem = (title: string, code: string): object => ({ title, code, detail: `${title}.` });
  const { halo, tokenFile } = await standIn(t, [
    [401, problem('The token is not known', 'token_unknown')],
    [404, problem('There is no such device', 'device_not_found')],
    [404, problem('There is no such gateway', 'gateway_not_found')],
    [403, problem('The device is revoked', 'device_revoked')],
  ]);
  t.equal(
    (await halo('status')).err,
    `halo: The token is not known: ${tokenFile} holds one of another server or kind; ` +
      'name another with --token-file (token_unknown)\n',
  );
  t.match((await halo('devices', 'show', 'x')).err, 'no such device: `halo devices` lists them (');
  t.match((await halo('gateway', 'remove', 'x')).err, 'no such gateway: `halo gateway list` lists');
  t.match((await halo('devices', 'rotate', 'x')).err, 'is revoked: that is for good; its user can');
});

t.test('a token file that others can read is told of, and used', async (t) => {
  const { halo, tokenFile } = await standIn(t, [
    [200, { items: [] }],
    [200, { items: [] }],
  ]);
  t.equal((await halo('devices')).err, '');
  chmodSync(tokenFile, 0o604);
  const expected = `halo: others can read ${tokenFile}: chmod 600 it\n`;
  t.same(await halo('devices'), { exitCode: 0, out: 'No devices.\n', err: expected });
});

t.test('a token is never carried to where a redirect leads', async (t) => {
  const target = await standIn(t, [[200, {}]]);
  const server = createServer((_, response) => {
    response.writeHead(307, { location: `${target.url}/v1/status` }).end();
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  t.teardown(() => server.close());
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  t.equal((await target.halo('status', '--url', url)).exitCode, 1);
  t.equal(target.calls.length, 0);
  server.closeAllConnections();
});

t.test('a wrong command line of halo ends with 2 before anything is asked', async (t) => {
  const { calls, halo } = await standIn(t, []);
  const wrong = [
    ['bogus'],
    ['devices', 'show'],
    ['devices', 'show', 'dev_1', 'dev_2'],
    ['devices', 'revoke', 'dev_1'],
    ['devices', '--limit', 'many'],
    ['enroll-token'],
    ['enroll-token', 'ann', '--ttl', '25h'],
    ['devices', 'rotate', 'dev_1', '--overlap', '2h'],
    ['status', '--bogus'],
    ['status', '--url', 'ftp://x'],
    ['status', '--url', 'http://user:hunter2@127.0.0.1'],
    ['status', '--token-file', 'http://user:hunter2@127.0.0.1'],
    ['status', '--json=http://user:hunter2@127.0.0.1'],
  ];
  for (const args of wrong) {
    const { exitCode, out, err } = await halo(...args);
    t.equal(exitCode, 2, args.join(' '));
    t.equal(out, '');
    t.notMatch(err, /hunter2/);
    t.not(err, '');
  }
  const unread = await halo('devices', 'revoke', 'dev_1', '--token-file', 'none');
  t.match(unread, { exitCode: 2, err: /--reason/ }, 'before the token is read');
  t.equal(calls.length, 0);
});

t.test('help names every command, and ends with 0', async (t) => {
  const { halo } = await standIn(t, []);
  const { exitCode, out, err } = await halo('--help');
  t.equal(exitCode, 0);
  t.equal(err, '');
  t.match(out, /status[\s\S]*devices[\s\S]*enroll-token[\s\S]*HALO_URL[\s\S]*Exit codes/);
  t.equal((await halo('devices', 'revoke', '--help')).exitCode, 0);
  t.match((await halo('gateway', 'watch', '--help')).out, /--token-file <FILE> +a gateway’s token/);
  t.match((await halo('gateway', 'list', '--help')).out, /--token-file <FILE> +an admin token/);
  t.match(await halo('--version'), { exitCode: 0, out: /^\d+\.\d+\.\d+\n$/, err: '' });
});
