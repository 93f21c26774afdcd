/** What holds a server must not hold its end, nor the rest of it. */
import { existsSync, mkdtempSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import t, { type Test } from 'tap';
import { eventually, HaloServer, newInstallation } from './fixtures/halo-server.js';

// Real servers, some of which have to be waited for to be killed.
t.setTimeout(120_000);

/** Grace, and what the watchdog adds to it; then what a busy machine adds to both. */
const GRACE_MS = 1_000;
const ENDS_WITHIN_MS = GRACE_MS + 4_000 + 3_000;

const FAULTY = fileURLToPath(new URL('./fixtures/faulty-threads.js', import.meta.url));

type Order = (fault: string) => Promise<unknown>;

async function start(t: Test): Promise<{ server: HaloServer; order: Order }> {
  const faults = mkdtempSync(join(tmpdir(), 'halo-faults-'));
  const storage = ['--data-dir', mkdtempSync(join(tmpdir(), 'halo-data-'))];
  const server = HaloServer.spawn(
    newInstallation(),
    storage,
    ['--shutdown-grace', `${GRACE_MS}ms`, '--front-threads', '2'],
    undefined,
    { NODE_OPTIONS: `--import=${FAULTY}`, HALO_TEST_FAULTS: faults },
  );
  t.teardown(() => server.stop('SIGKILL'));
  await server.ready();
  const order = (fault: string): Promise<unknown> => {
    const file = join(faults, fault);
    writeFileSync(file, '');
    return eventually(() => !existsSync(file), 5_000, 'the order is taken');
  };
  return { server, order };
}

async function timed<Value>(work: Promise<Value>): Promise<{ value: Value; tookMs: number }> {
  const beganMs = Date.now();
  const value = await work;
  return { value, tookMs: Date.now() - beganMs };
}

t.test('a reader of the log that stops holds neither answers nor the end', async (t) => {
  const { server } = await start(t);
  server.readNoMore();
  // A line each: several times what a socket or a pipe takes.
  for (let round = 0; round < 100; round += 1) {
    const calls = Array.from({ length: 16 }, () => server.call('GET', '/api/v1/devices'));
    for (const { status } of await Promise.all(calls)) if (status !== 401) t.equal(status, 401);
  }
  t.equal((await server.call('GET', '/healthz')).status, 200);
  t.match(await (await fetch(`${server.metricsUrl}/metrics`)).text(), /halo_log_dropped_lines/);
  const { value, tookMs } = await timed(server.stop());
  t.equal(value, 0);
  t.ok(tookMs < ENDS_WITHIN_MS, `ended after ${tookMs} ms`);
});

t.test('lines that waited for their reader arrive, the last ones too', async (t) => {
  const { server } = await start(t);
  server.readNoMore();
  for (let round = 0; round < 100; round += 1) {
    const calls = Array.from({ length: 16 }, () => server.call('GET', '/api/v1/devices'));
    await Promise.all(calls);
  }
  server.readOn();
  t.equal(await server.stop(), 0);
  await eventually(() => server.output.includes('"Stopped."'), 5_000, 'the last line');
  const lines = server.output.split('\n').filter((line) => line !== '');
  const parsed = lines.map((line) => JSON.parse(line) as { status?: number; msg: string });
  t.equal(parsed.filter(({ status }) => status === 401).length, 1_600, 'each line, and whole');
  t.equal(parsed.at(-1)?.msg, 'Stopped.');
});

// A front thread holds native handles: an exit would abort the process and leave a dump.
for (const [thread, how] of [
  ['front-0', 'SIGKILL'],
  ['actors-0', 0],
] as const) {
  t.test(`a shutdown ends within its bound though ${thread} hangs`, async (t) => {
    const { server, order } = await start(t);
    await order(`${thread}-hang`);
    const { value, tookMs } = await timed(server.stop());
    t.equal(value, how);
    t.ok(tookMs < ENDS_WITHIN_MS, `ended after ${tookMs} ms`);
    t.match(server.output, /"msg":"Stopped\."/, 'in order, as far as that goes');
  });
}

t.test('a server whose front thread hangs gives itself up to its orchestrator', async (t) => {
  const { server, order } = await start(t);
  await order('front-0-hang');
  await server.ended();
  t.match(server.output, /The thread front-0 does not answer/);
});
