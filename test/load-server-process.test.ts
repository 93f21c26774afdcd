import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as wait } from 'node:timers/promises';
import t, { type Test } from 'tap';
import { ServerProcess, type ServerSpec } from '../load/server-process.js';

/** A program that writes its ready file, with the environment it has, and does `then`. */
function program(then: string): string {
  return `
    import { writeFileSync } from 'node:fs';
    const file = process.argv[process.argv.indexOf('--ready-file') + 1];
    process.stdout.write('hello from the program\\n');
    ${then}
    function ready() {
      const halo = Object.keys(process.env).filter((name) => name.startsWith('HALO_'));
      writeFileSync(file, JSON.stringify({ pid: process.pid, url: 'http://x', halo }));
    }
  `;
}

function specOf(t: Test, then: string, readyWithinMs = 20_000): ServerSpec {
  const directory = t.testdir({ 'program.mjs': program(then) });
  const script = join(directory, 'program.mjs');
  return { name: 'program', script, args: ['one', 'two'], directory, readyWithinMs };
}

function isAlive(pid: number): boolean {
  // A killed process is a zombie until its parent asks for it.
  return existsSync(`/proc/${pid}/stat`) && !/ Z /.test(readFileSync(`/proc/${pid}/stat`, 'utf8'));
}

async function until(condition: () => boolean): Promise<void> {
  for (const end = Date.now() + 20_000; Date.now() < end; await wait(10)) {
    if (condition()) return;
  }
  throw new Error('The condition did not come true.');
}

t.test('a server starts, is measured, and ends by SIGTERM', async (t) => {
  process.env['HALO_LISTEN'] = 'elsewhere';
  t.teardown(() => delete process.env['HALO_LISTEN']);
  const server = await ServerProcess.start(
    specOf(
      t,
      'ready(); setInterval(() => {}, 1000); process.on("SIGTERM", () => process.exit(0));',
    ),
  );
  const { pid, ...written } = server.ready;
  t.same(written, { url: 'http://x', halo: [] }, 'it got none of the caller’s own settings');
  t.ok(server.startMs > 0 && server.startMs < 20_000);
  t.ok(server.usage().rssBytes > 0);
  await server.stop();
  t.notOk(isAlive(pid));
});

t.test('a server that ends at once is reported with its last words', async (t) => {
  const start = ServerProcess.start(specOf(t, 'process.exit(3);'));
  await t.rejects(start, /The server program ended:\nhello from the program/);
});

t.test('a server that is never ready is killed and reported', async (t) => {
  const spec = specOf(
    t,
    `writeFileSync(file + '.pid', String(process.pid)); setInterval(Object, 9);`,
    5_000,
  );
  await t.rejects(ServerProcess.start(spec), /was not ready within 5000 ms/);
  const pid = Number(readFileSync(join(spec.directory, 'program.ready.pid'), 'utf8'));
  await until(() => !isAlive(pid));
});

t.test('a server that does not end with 0 is reported', async (t) => {
  const server = await ServerProcess.start(
    specOf(
      t,
      'ready(); setInterval(() => {}, 1000); process.on("SIGTERM", () => process.exit(7));',
    ),
  );
  await t.rejects(server.stop(), /ended with 7 after SIGTERM:\nhello from the program/);
});

t.test('no server outlives the run, even one that ends by SIGKILL', async (t) => {
  const module = new URL('../load/server-process.js', import.meta.url).href;
  for (const signal of ['SIGTERM', 'SIGKILL'] as const) {
    const spec = specOf(
      t,
      'ready(); setInterval(() => {}, 1000); process.on("SIGTERM", () => {});',
    );
    const runner = join(spec.directory, 'runner.mjs');
    writeFileSync(
      runner,
      `import { ServerProcess } from '${module}';
       const server = await ServerProcess.start(${JSON.stringify(spec)});
       console.log(server.ready.pid);
       setInterval(() => {}, 1000);`,
    );
    const run = spawn(process.execPath, [runner], { stdio: ['ignore', 'pipe', 'inherit'] });
    const pid = Number(String((await once(run.stdout, 'data'))[0]));
    t.ok(isAlive(pid));
    run.kill(signal);
    await once(run, 'exit');
    await until(() => !isAlive(pid));
    t.pass(`gone after ${signal}`);
  }
});
