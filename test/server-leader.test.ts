/**
 * Who leads, on real replicas: told the same everywhere, asked to step down, ended in order,
 * killed, and stopped past its lease.
 */
import { join } from 'node:path';
import t, { type Test } from 'tap';
import { type HaloCluster, startHaloCluster } from './fixtures/halo-cluster.js';
import { eventually, HaloServer, newInstallation } from './fixtures/halo-server.js';
import { hasPgbouncer, startPgbouncer } from './fixtures/pgbouncer.js';

t.setTimeout(150_000);

interface LeaseView {
  readonly lease: string;
  readonly holder: string;
  readonly token: number;
  readonly remainingMs: number;
}

interface TermView {
  readonly token: number;
  readonly holder: string;
  readonly beganAt: string;
}

const TTL_MS = 3_000;
const TTL = ['--lease-ttl', `${TTL_MS}ms`];

async function controllerOf(server: HaloServer): Promise<LeaseView | undefined> {
  const { json } = await server.admin('GET', '/api/v1/leases');
  return json.items.find(({ lease }: LeaseView) => lease === 'controller');
}

async function termsOf(server: HaloServer): Promise<TermView[]> {
  const { json } = await server.admin('GET', '/api/v1/leases/controller/terms');
  return json.items ?? [];
}

/** Resolves when the newest term of the history is the one that the lease's row has. */
async function led(server: HaloServer, otherThan?: string): Promise<LeaseView> {
  let found: LeaseView | undefined;
  await eventually(
    async () => {
      const held = await controllerOf(server);
      const [newest] = await termsOf(server);
      const isLed = held !== undefined && held.remainingMs > 0 && newest?.token === held.token;
      if (isLed && held.holder !== otherThan) found = held;
      return found !== undefined;
    },
    20_000,
    'somebody leads and has written so',
  );
  if (found === undefined) throw new Error('unreachable');
  return found;
}

async function idOf(server: HaloServer): Promise<string> {
  return (await server.admin('GET', '/v1/status')).json.replica;
}

/** The replica that leads, and the other one. */
async function sides(t: Test): Promise<{
  halo: HaloCluster;
  leader: HaloServer;
  other: HaloServer;
  held: LeaseView;
}> {
  const halo = await startHaloCluster(2, {}, TTL);
  t.teardown(() => halo.stop());
  const [a, b] = halo.servers as [HaloServer, HaloServer];
  const held = await led(a);
  const isA = held.holder.startsWith(`${await idOf(a)}.`);
  return { halo, held, leader: isA ? a : b, other: isA ? b : a };
}

t.test('every replica says the same of leases, and a step-down hands one over', async (t) => {
  const { leader, other, held } = await sides(t);
  for (const server of [leader, other]) {
    const { holder, token } = (await controllerOf(server)) as LeaseView;
    t.same({ holder, token }, { holder: held.holder, token: held.token });
    t.match(await termsOf(server), [{ token: held.token, holder: held.holder }]);
  }
  const asked = await other.admin('POST', '/api/v1/leases/controller/step-down');
  t.equal(asked.status, 200);
  t.same(asked.json, { lease: 'controller', holder: held.holder, token: held.token });
  const next = await led(leader, held.holder);
  t.ok(next.holder.startsWith(`${await idOf(other)}.`), 'the other one has it');
  t.ok(next.token > held.token);
  t.same(
    (await termsOf(other)).map(({ token }) => token),
    [next.token, held.token],
    'newest first',
  );
  await eventually(
    async () => {
      const { json } = await other.admin('GET', '/api/v1/audit?kind=leader.step-down-asked');
      return json.items.length === 1;
    },
    10_000,
    'it is evidence',
  );
});

t.test('a leader that ends in order hands over at once', async (t) => {
  const { leader, other, held } = await sides(t);
  const startMs = Date.now();
  const ending = leader.stop('SIGTERM');
  await led(other, held.holder);
  const tookMs = Date.now() - startMs;
  // Without the hint of the release it would take as long as the lease, or the campaign's pace.
  t.ok(tookMs < 1_500, `another one led, and had written so, after ${tookMs} ms`);
  t.equal(await ending, 0);
});

t.test('oban-bg/oban#1488: of a leader that is killed another is made in time', async (t) => {
  const { leader, other, held } = await sides(t);
  const startMs = Date.now();
  await leader.stop('SIGKILL');
  await led(other, held.holder);
  const tookMs = Date.now() - startMs;
  t.ok(tookMs < TTL_MS + 1_500, `another one led after ${tookMs} ms`);
});

t.test('a leader that was stopped past its lease never leads under its old term', async (t) => {
  const { leader, other, held } = await sides(t);
  leader.signal('SIGSTOP');
  const next = await led(other, held.holder);
  leader.signal('SIGCONT');
  await eventually(() => leader.output.includes('does not lead any more'), 10_000, 'it notices');
  await other.stop('SIGTERM');
  const later = await led(leader, next.holder);
  t.not(later.holder, held.holder, 'under a holder id of its own again');
  t.ok(later.token > next.token);
  t.same(
    (await termsOf(leader)).map(({ token }) => token),
    [later.token, next.token, held.token],
  );
});

t.test('behind a transaction pooler a leader is made and replaced without hints', async (t) => {
  if (!hasPgbouncer()) {
    t.not(process.env.CI, 'true', 'pgbouncer is not installed: the pooler was not tried');
    return;
  }
  const halo = await startHaloCluster(0);
  t.teardown(() => halo.stop());
  const pooler = await startPgbouncer(halo.cluster.server, ['halo_serving'], 16);
  t.teardown(() => pooler.stop());
  const url = pooler.urlOf(halo.database.url);
  const a = await halo.add([...TTL, '--database-pooled'], url);
  const b = await halo.add([...TTL, '--database-pooled'], url);
  const held = await led(a);
  const isA = held.holder.startsWith(`${await idOf(a)}.`);
  const [leader, other] = isA ? [a, b] : [b, a];
  await leader.stop('SIGKILL');
  const next = await led(other, held.holder);
  t.ok(next.token > held.token);
});

t.test(
  'on files the process leads from the start, and asking it to step down says so',
  async (t) => {
    const installation = newInstallation();
    const storage = ['--data-dir', join(installation.directory, 'data')];
    const server = await HaloServer.start(installation, storage, TTL);
    t.teardown(() => server.stop('SIGKILL'));
    const held = await led(server);
    t.ok(held.holder.startsWith(`${await idOf(server)}.`));
    t.equal(
      (await server.admin('POST', '/api/v1/leases/nothing/step-down')).json.code,
      'lease_unknown',
    );
    t.equal((await server.admin('GET', '/api/v1/leases/nothing/terms')).json.code, 'lease_unknown');
    t.equal((await server.admin('POST', '/api/v1/leases/controller/step-down')).status, 200);
    const next = await led(server, held.holder);
    t.ok(next.token > held.token, 'nobody else is there: it takes the lease again');
  },
);
