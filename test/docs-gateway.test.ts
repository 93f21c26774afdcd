/** The gateway in docs/gateway.md is a whole one: it and its commands are taken from there, run. */
import { execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdirSync, readFileSync, symlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import t, { type Test } from 'tap';
import { HaloServer, newInstallation } from './fixtures/halo-server.js';
import { keepAlive } from './fixtures/keep-alive.js';
import { delta, snapshot, startScripted } from './fixtures/scripted-kill-list.js';
import { until } from './fixtures/toy-actor.js';

keepAlive(t);

const ROOT = fileURLToPath(new URL('../../', import.meta.url));
const COMPILED = fileURLToPath(new URL('..', import.meta.url));
const LINES_MAX = 22;
const PAGE = readFileSync(join(ROOT, 'docs/gateway.md'), 'utf8');
const PROGRAM = /```js\n([\s\S]*?)```/.exec(PAGE)?.[1] ?? '';
const run = promisify(execFile);

/** A folder with the page's program and a gateway's token, where the library is found. */
function gatewayFolder(t: Test): string {
  const folder = t.testdir({ 'gateway.mjs': PROGRAM, token: 'halo_gateway_x\n' });
  mkdirSync(join(folder, 'node_modules'));
  symlinkSync(ROOT, join(folder, 'node_modules/halos'));
  writeFileSync(join(folder, 'package.json'), '{"type":"module"}');
  return folder;
}

t.test(
  'the gateway of the page refuses what is killed, also when its server is gone',
  async (t) => {
    const lines = PROGRAM.split('\n').filter((line) => line !== '').length;
    t.ok(lines > 10 && lines <= LINES_MAX, `it has ${lines} lines`);
    const folder = gatewayFolder(t);
    const server = await startScripted();
    t.teardown(() => server.close());
    const gateway = spawn(process.execPath, ['gateway.mjs'], {
      cwd: folder,
      env: { HALO_URL: server.url, HALO_TOKEN_FILE: 'token', PATH: process.env['PATH'] },
    });
    t.teardown(() => gateway.kill('SIGKILL'));
    let out = '';
    let err = '';
    gateway.stdout.on('data', (chunk: Buffer) => {
      out += chunk.toString();
    });
    gateway.stderr.on('data', (chunk: Buffer) => {
      err += chunk.toString();
    });
    const stream = await server.connection(0);
    t.equal(stream.request.headers.authorization, 'Bearer halo_gateway_x');
    t.equal(out, '', 'it lets nobody in before it has a list');
    stream.send(snapshot(1, ['evil']));
    await until(() => out !== '', 10_000);
    const ask = async (agent: string) => {
      const answer = await fetch(`http://127.0.0.1:${out.trim()}/`, {
        headers: { 'x-agent': agent },
      });
      return `${answer.status} ${(await answer.text()).trim()}`;
    };
    t.equal(await ask('evil'), '403 killed: r');
    t.equal(await ask('good'), '200 let through');
    stream.send(delta(1, 2, ['good'], ['evil']));
    await until(() => stream.acked.includes(2));
    t.same([await ask('evil'), await ask('good')], ['200 let through', '403 killed: r']);
    server.refusal = { status: 503 };
    stream.socket.terminate();
    await until(() => server.refused > 0);
    t.equal(await ask('good'), '403 killed: r', 'the last list stays in force');
    t.match(err, /^connected .*\nlist [\s\S]*\nchange [\s\S]*\ndisconnected /);
    const exited = once(gateway, 'exit');
    gateway.kill('SIGTERM');
    t.same(await exited, [0, null]);
  },
);

t.test('the commands of the page make its token, kill, and see it refused', async (t) => {
  const installation = newInstallation();
  const data = join(installation.directory, 'data');
  const server = await HaloServer.start(installation, ['--data-dir', data]);
  t.teardown(() => server.stop());
  const folder = gatewayFolder(t);
  const npx = `#!/bin/sh\nname=$1; shift\nexec node "${COMPILED}/src/cli/$name.js" "$@"\n`;
  writeFileSync(join(folder, 'npx'), npx, { mode: 0o755 });
  const env = {
    HALO_URL: server.url,
    HALO_TOKEN_FILE: installation.tokenFile,
    PATH: `${folder}:${process.env['PATH']}`,
  };
  const blocks = [...PAGE.matchAll(/```sh\n([\s\S]*?)```/g)].map(([, text = '']) => text);
  const [starting = '', killing = ''] = blocks;
  t.match(starting, /^HALO_URL=http:\/\/127\.0\.0\.1:8080 .* PORT=9090 node gateway\.mjs$/m);
  const script = starting.replace('http://127.0.0.1:8080', server.url).replace('9090', '0');
  const gateway = spawn('sh', ['-ec', script.replace(/ node (?=gateway)/, ' exec node ')], {
    cwd: folder,
    env,
  });
  t.teardown(() => gateway.kill('SIGKILL'));
  let out = '';
  gateway.stdout.on('data', (chunk: Buffer) => {
    out += chunk.toString();
  });
  await until(() => out !== '', 20_000);
  const there = killing.replaceAll('127.0.0.1:9090', `127.0.0.1:${out.trim()}`);
  const { stdout } = await run('sh', ['-ec', there], { cwd: folder, env });
  t.match(stdout, /known {4}by every connected gateway\nHTTP\/1\.1 403 [\s\S]*killed: leaked\n/);
  t.match(stdout, /my-gateway .* 1 +1 +current\nversion {2}2\nHTTP\/1\.1 [\s\S]*\n$/);
});
