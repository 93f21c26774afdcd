/** PostgreSQL dies under load and comes back: so does the rate, by itself. */
import { Agent, request } from 'node:http';
import t from 'tap';
import { startHaloCluster } from './fixtures/halo-cluster.js';
import { ADMIN_TOKEN, eventually, type HaloServer, pause } from './fixtures/halo-server.js';

// Real servers, and faults that take their time.
t.setTimeout(240_000);

/** The bound. */
const BACK_WITHIN_MS = 15_000;
/** Of the former rate, in a window: what else the machine does may take the rest. */
const FORMER = 0.7;
const WINDOW_MS = 500;
const AWAY_MS = 2_000;
const AUTHENTICATIONS = '/api/v1/auth/device';
const CLIENTS_OF_EACH = 16;
/** Each is a query of its own: more at once than there may be connections. */
const LISTS = '/api/v1/devices';
const LISTERS_OF_EACH = 12;
const CONNECTIONS_MAX = 8;

/** Clients that ask without a pause, and what they were told. */
class Load {
  readonly statuses = new Map<string, number>();
  /** Allows, and all answers, since the window began. */
  allowed = 0;
  answered = 0;
  /** The longest that anybody waited for an answer. */
  slowestMs = 0;
  private readonly agent = new Agent({ keepAlive: true });
  private readonly running: Promise<void>[] = [];
  private asking = true;

  ask(server: HaloServer, path: string, token: string, clients: number): void {
    for (let client = 0; client < clients; client += 1) {
      this.running.push(this.run(server.url + path, token));
    }
  }

  /** Allows per second in the next window. */
  async rate(): Promise<number> {
    this.allowed = 0;
    const startMs = performance.now();
    await pause(WINDOW_MS);
    return (this.allowed * 1000) / (performance.now() - startMs);
  }

  async stop(): Promise<void> {
    this.asking = false;
    await Promise.all(this.running);
    this.agent.destroy();
  }

  private async run(url: string, token: string): Promise<void> {
    while (this.asking) {
      const startMs = performance.now();
      const status = await this.once(url, token);
      this.slowestMs = Math.max(this.slowestMs, performance.now() - startMs);
      this.statuses.set(status, (this.statuses.get(status) ?? 0) + 1);
      this.answered += 1;
      if (status === '200') this.allowed += 1;
      // As a proxy does that is told 503: it does not ask again in the same moment.
      else await pause(20);
    }
  }

  private once(url: string, token: string): Promise<string> {
    return new Promise((resolve) => {
      const headers = { authorization: `Bearer ${token}` };
      request(url, { agent: this.agent, headers }, (answer) => {
        answer.resume().on('end', () => resolve(String(answer.statusCode)));
      })
        .on('error', (error: NodeJS.ErrnoException) => resolve(error.code ?? 'lost'))
        .end();
    });
  }
}

t.test('Postgres killed under load: 503 and nothing else, and then the former rate', async (t) => {
  const extra = ['--front-threads', '1', '--database-max-conns', String(CONNECTIONS_MAX)];
  const halo = await startHaloCluster(2, { fsync: true }, extra);
  t.teardown(() => halo.stop());
  const { cluster, database, servers } = halo;
  const load = new Load();
  for (const server of servers) {
    const { credential } = await server.enrol();
    load.ask(server, AUTHENTICATIONS, credential, CLIENTS_OF_EACH);
    load.ask(server, LISTS, ADMIN_TOKEN, LISTERS_OF_EACH);
  }
  t.teardown(() => load.stop());
  await eventually(() => load.allowed > 2_000, 20_000, 'load');
  const before = Math.max(await load.rate(), await load.rate(), await load.rate());
  await cluster.server.kill();
  await pause(AWAY_MS);
  const sinceMs = performance.now();
  await cluster.server.start();
  let most = 0;
  const look = async (): Promise<void> => {
    const rows = await database.sql(
      "SELECT count(*)::int AS n FROM pg_stat_activity WHERE usename = 'halo_serving'",
    );
    most = Math.max(most, Number(rows[0]?.['n']));
  };
  const isBack = async (): Promise<boolean> => {
    const rate = await load.rate();
    await look();
    return rate >= before * FORMER;
  };
  await eventually(isBack, BACK_WITHIN_MS, `${Math.round(before * FORMER)} requests/s`);
  t.comment(`${Math.round(before)}/s before; back ${Math.round(performance.now() - sinceMs)} ms`);
  await load.stop();
  t.same([...load.statuses.keys()].sort(), ['200', '503'], 'nothing else, to anybody');
  t.ok(load.slowestMs < 6_000, `nobody waited longer than ${Math.round(load.slowestMs)} ms`);
  t.ok(most <= 2 * CONNECTIONS_MAX, `${most} connections when all came back at once`);

  const guess = async (): Promise<number> => {
    const token = `${ADMIN_TOKEN}-guess`;
    return (await servers[0]!.call('GET', '/api/v1/auth/device', { token })).status;
  };
  const guesses: number[] = [];
  for (let count = 0; count < 11; count += 1) guesses.push(await guess());
  t.same(guesses, [...Array<number>(10).fill(401), 429], 'none of it counted against the address');
});
