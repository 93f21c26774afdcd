/** The gateway in docs/gateway.md is a whole one: it is taken from the page and run. */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdirSync, readFileSync, symlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import t from 'tap';
import { keepAlive } from './fixtures/keep-alive.js';
import { delta, snapshot, startScripted } from './fixtures/scripted-kill-list.js';
import { until } from './fixtures/toy-actor.js';

keepAlive(t);

const ROOT = fileURLToPath(new URL('../../', import.meta.url));
const LINES_MAX = 22;

t.test(
  'the gateway of the page refuses what is killed, also when its server is gone',
  async (t) => {
    const page = readFileSync(join(ROOT, 'docs/gateway.md'), 'utf8');
    const program = /```js\n([\s\S]*?)```/.exec(page)?.[1] ?? '';
    const lines = program.split('\n').filter((line) => line !== '').length;
    t.ok(lines > 10 && lines <= LINES_MAX, `it has ${lines} lines`);
    const folder = t.testdir({ 'gateway.mjs': program, token: 'halo_gateway_x\n' });
    mkdirSync(join(folder, 'node_modules'));
    symlinkSync(ROOT, join(folder, 'node_modules/halos'));
    writeFileSync(join(folder, 'package.json'), '{"type":"module"}');
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
