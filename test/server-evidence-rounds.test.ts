/**
 * Three replicas decide at once while one of them is killed, stopped and continued, or cut off from
 * the database, by a seed: what was answered is in the chain exactly once, and the chain verifies.
 *
 *   SEED=1 ROUNDS=100 node dist/test/server-evidence-rounds.test.js
 */
import { mkdtempSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import t from 'tap';
import { runHaloVerify } from '../src/cli/halo-verify/program.js';
import { type Random, seededRandom } from '../src/runtime/random.js';
import { type HaloCluster, startHaloCluster } from './fixtures/halo-cluster.js';
import { ADMIN_TOKEN, eventually, type HaloServer, pause } from './fixtures/halo-server.js';
import { policyFiles } from './fixtures/policy-files.js';
import { TcpProxy } from './fixtures/tcp-proxy.js';

// Real servers, and faults that take their time.
t.setTimeout(900_000);

const SEED = Number(process.env['SEED'] ?? Math.floor(Math.random() * 1_000_000));
const ROUNDS = Number(process.env['ROUNDS'] ?? 10);
const REPLICAS = 3;
/** Who asks at the same time: more than replicas, so that each is in the middle of something. */
const ASKERS = 12;
const ASKING_MS = 1_200;
/** Longer than a replica may hold a lock while it is stopped. */
const STOPPED_MAX_MS = 3_000;
const CHAINED_WITHIN_MS = 20_000;

interface Replica {
  server: HaloServer;
  readonly proxy: TcpProxy;
  readonly url: string;
}

/** The cluster, each replica behind a proxy of its own. */
class Site {
  readonly replicas: Replica[] = [];
  /** Every ref that was answered. */
  readonly refs = new Set<string>();
  answers = 0;
  refused = 0;

  constructor(
    readonly halo: HaloCluster,
    readonly random: Random,
    readonly policy: string,
  ) {}

  async open(): Promise<void> {
    for (let n = 0; n < REPLICAS; n += 1) {
      const url = new URL(this.halo.database.url);
      const proxy = await TcpProxy.start({ host: url.hostname, port: Number(url.port) });
      t.teardown(() => proxy.stop());
      url.port = String(proxy.port);
      url.hostname = '127.0.0.1';
      const server = await this.start(url.href);
      this.replicas.push({ server, proxy, url: url.href });
    }
  }

  start(url: string): Promise<HaloServer> {
    return this.halo.add(['--policy-dir', this.policy], url);
  }

  pick<T>(from: readonly T[]): T {
    return from[Math.floor(this.random.fraction() * from.length)] as T;
  }

  /** Asks until the time is over; whatever is answered with a ref has to be kept. */
  async ask(untilMs: number): Promise<void> {
    while (Date.now() < untilMs) {
      const { server } = this.pick(this.replicas);
      const amount = this.random.fraction() < 0.2 ? 500 : 5;
      const body = {
        principal: { type: 'Agent', id: 'a' },
        action: 'tool:call',
        resource: { type: 'Tool', id: 't' },
        context: { amount },
      };
      const answer = await server
        .call('POST', '/api/v1/decisions', { token: ADMIN_TOKEN, body })
        .catch(() => undefined);
      if (answer?.status === 200) {
        this.answers += 1;
        this.refs.add(answer.json.ref);
      } else {
        this.refused += 1;
        if (answer !== undefined && answer.status !== 503) t.fail(answer.text);
        await pause(20);
      }
    }
  }

  async fault(): Promise<string> {
    const replica = this.pick(this.replicas);
    await pause(this.random.fraction() * 300);
    const what = this.pick(['kill', 'stop', 'cut', 'silence'] as const);
    switch (what) {
      case 'kill':
        await replica.server.stop('SIGKILL');
        this.halo.servers.splice(this.halo.servers.indexOf(replica.server), 1);
        replica.server = await this.start(replica.url);
        break;
      case 'stop':
        replica.server.signal('SIGSTOP');
        await pause(this.random.fraction() * STOPPED_MAX_MS);
        replica.server.signal('SIGCONT');
        break;
      case 'cut':
        replica.proxy.cut();
        break;
      case 'silence':
        replica.proxy.goSilent();
        await pause(500 + this.random.fraction() * 1_500);
        replica.proxy.heal();
        break;
    }
    return what;
  }

  /** Once nothing waits any more: each answered ref once, and a chain that verifies. */
  async check(): Promise<void> {
    const { database } = this.halo;
    const count = async (sql: string): Promise<number> =>
      Number((await database.sql(sql))[0]?.['n']);
    await eventually(
      async () => (await count('SELECT count(*) AS n FROM halo_evidence_outbox')) === 0,
      CHAINED_WITHIN_MS,
      'everything is chained',
    );
    const rows = await database.sql('SELECT ref FROM halo_audit');
    const chained = new Set(rows.map(({ ref }) => String(ref)));
    t.equal(chained.size, rows.length, 'no ref twice');
    const missing = [...this.refs].filter((ref) => !chained.has(ref));
    t.strictSame(missing, [], 'every answered ref is in the chain');
    t.equal(await verified(database.url), 'verified');
  }
}

async function verified(url: string): Promise<string> {
  const file = join(mkdtempSync(join(tmpdir(), 'halo-rounds-')), 'url');
  writeFileSync(file, url, { mode: 0o600 });
  let out = '';
  const console = {
    environment: {},
    out: (text: string) => {
      out += text;
    },
    err: () => undefined,
  };
  await runHaloVerify(['--database-url-file', file, '--json'], console, { isTerminal: false });
  return (JSON.parse(out) as { status: string }).status;
}

t.test(`${ROUNDS} rounds on ${REPLICAS} replicas, seed ${SEED}`, async (t) => {
  t.comment(`SEED=${SEED}`);
  const policy = mkdtempSync(join(tmpdir(), 'halo-policy-'));
  for (const { name, text } of policyFiles()) writeFileSync(join(policy, name), text);
  const halo = await startHaloCluster(0);
  t.teardown(() => halo.stop());
  const site = new Site(halo, seededRandom(SEED), policy);
  await site.open();
  for (let round = 1; round <= ROUNDS; round += 1) {
    const untilMs = Date.now() + ASKING_MS;
    const asking = Array.from({ length: ASKERS }, () => site.ask(untilMs));
    const what = await site.fault();
    await Promise.all(asking);
    t.comment(`round ${round}: ${what}; ${site.answers} answers, ${site.refused} refused`);
    await site.check();
  }
  t.ok(site.answers > ROUNDS * 10, `${site.answers} answers`);
});
