/** Threads of a real server that die: replaced, or the whole process goes; nothing in between. */
import { mkdtempSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import t, { type Test } from 'tap';
import { eventually, HaloServer, newInstallation } from './fixtures/halo-server.js';

// Real servers, which take their time to start.
t.setTimeout(240_000);

/** A thread loads its modules again, after a pause that begins small. */
const REPLACED_WITHIN_MS = 15_000;
/** How often an actor may crash in a minute before its process gives up. */
const CRASHES_MAX = 5;

interface Faulty {
  readonly server: HaloServer;
  readonly credential: string;
  /** Makes a thread fail; resolves when the order is there. */
  order(thread: string, fault: 'throw' | 'exit' | 'exhaust-memory' | 'bug'): void;
  /** 'in', a code, or 'lost' when the connection was. */
  ask(): Promise<string>;
}

async function start(t: Test): Promise<Faulty> {
  const folder = mkdtempSync(join(tmpdir(), 'halo-faults-'));
  const data = mkdtempSync(join(tmpdir(), 'halo-data-'));
  const preload = new URL('./fixtures/faulty-threads.js', import.meta.url).href;
  const server = HaloServer.spawn(
    newInstallation(),
    ['--data-dir', data],
    ['--front-threads', '1', '--actor-threads', '1'],
    undefined,
    { NODE_OPTIONS: `--import=${preload}`, HALO_TEST_FAULTS: folder },
  );
  t.teardown(() => server.stop('SIGKILL'));
  await server.ready();
  const { credential } = await server.enrol();
  return {
    server,
    credential,
    order: (thread, fault) => writeFileSync(join(folder, `${thread}-${fault}`), ''),
    ask: () => server.authenticate(credential).catch(() => 'lost'),
  };
}

/** Asks until a thread has died and another answers; resolves with everything else it was told. */
async function untilReplaced({ server, ask }: Faulty): Promise<string[]> {
  const told = new Set<string>();
  await eventually(
    async () => {
      const said = await ask();
      if (said !== 'in') told.add(said);
      return told.size > 0 && said === 'in';
    },
    REPLACED_WITHIN_MS,
    'service by another thread',
  );
  await eventually(
    async () => (await server.call('GET', '/readyz').catch(() => undefined))?.status === 200,
    REPLACED_WITHIN_MS,
    'readiness',
  );
  return [...told];
}

for (const fault of ['throw', 'exit', 'exhaust-memory'] as const) {
  t.test(`an actor thread that ends by ${fault} is replaced, and nobody is kept out`, async (t) => {
    const faulty = await start(t);
    faulty.order('actors-0', fault);
    const told = await untilReplaced(faulty);
    for (const code of told) {
      t.ok(['actor_restarted', 'store_unavailable', 'deadline_exceeded'].includes(code), code);
    }
    await faulty.server.enrol();
    t.equal(faulty.server.exited, false);
  });
}

t.test('an actor with a bug is restarted, and who asked is told at once', async (t) => {
  const faulty = await start(t);
  faulty.order('actors-0', 'bug');
  t.same(await untilReplaced(faulty), ['actor_restarted']);
  t.match(faulty.server.output, /An actor crashed and is restarted/);
  await eventually(async () => {
    const status = await faulty.server.admin('GET', '/v1/status');
    const devices = status.json.actors.find(({ name }: { name: string }) => name === 'devices');
    return devices.state === 'running' && devices.restarts === 1;
  }, 5_000);
});

t.test('an actor that crashes again and again ends its process with 1', async (t) => {
  const faulty = await start(t);
  let crashes = 0;
  while (!faulty.server.exited && crashes <= CRASHES_MAX) {
    faulty.order('actors-0', 'bug');
    crashes += 1;
    if (crashes <= CRASHES_MAX) await untilReplaced(faulty);
    else await eventually(async () => (await faulty.ask()) !== 'in', REPLACED_WITHIN_MS);
  }
  await eventually(() => faulty.server.exited, REPLACED_WITHIN_MS, 'the end of the process');
  t.equal(await faulty.server.ended(), 1);
  t.equal(crashes, CRASHES_MAX + 1);
  t.match(faulty.server.output, /gives up/);
});

for (const fault of ['throw', 'exit'] as const) {
  t.test(`a front thread that ends by ${fault} gives back its port and is replaced`, async (t) => {
    const faulty = await start(t);
    faulty.order('front-0', fault);
    t.same(await untilReplaced(faulty), ['lost'], 'nobody else has the port meanwhile');
    await faulty.server.enrol();
    t.equal(await faulty.server.stop(), 0, 'and it still stops in order');
  });
}

t.test(
  'a front thread that dies without closing its sockets takes its process along',
  async (t) => {
    const faulty = await start(t);
    faulty.order('front-0', 'exhaust-memory');
    await eventually(() => faulty.server.exited, REPLACED_WITHIN_MS, 'the end of the process');
    const how = await faulty.server.stop();
    t.not(how, 0);
    t.comment(`it ended with ${how}`);
  },
);
