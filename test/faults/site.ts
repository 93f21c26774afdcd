/**
 * What faults are done to: a PostgreSQL, replicas that each have a process and a network of their
 * own, and nginx before them where that is asked for.
 */
import { TRUST_LOOPBACK } from '../fixtures/another-address.js';
import { type HaloCluster, startHaloCluster } from '../fixtures/halo-cluster.js';
import { eventually, HaloServer, pause } from '../fixtures/halo-server.js';
import { type Nginx, startNginx } from '../fixtures/nginx.js';
import { Neighbour } from '../fixtures/proxy-neighbours.js';
import { TcpProxy } from '../fixtures/tcp-proxy.js';

/** A replica that was started again while its database was away is started until it stays. */
const START_WITHIN_MS = 60_000;
const START_AGAIN_AFTER_MS = 200;
/** What a replica may have of the database; the default of `--database-max-conns`. */
export const CONNECTIONS_MAX = 16;

export interface SiteOptions {
  readonly replicas: number;
  /** Whether nginx stands before the replicas, with the configuration that is shipped. */
  readonly nginx?: boolean;
  /** Further options of the server of that name. */
  readonly extra?: (name: string) => readonly string[];
}

/** A replica that is killed, stopped, continued and started again, always on the same port. */
export class Replica {
  /** Above zero while its clients may lose a connection or wait for an answer without a reason. */
  private excuses = 0;
  /** Grows with each such time, so that one that has passed is seen as well. */
  excused = 0;
  /** Laid over the environment of whatever replaces its process. */
  environment: Readonly<Record<string, string>> = {};

  private constructor(
    readonly name: string,
    private readonly halo: HaloCluster,
    readonly proxy: TcpProxy,
    private readonly extra: readonly string[],
    public server: HaloServer,
  ) {}

  static async start(name: string, halo: HaloCluster, extra: readonly string[]): Promise<Replica> {
    const { cluster, database, installation } = halo;
    const proxy = await TcpProxy.start(cluster.server);
    const storage = halo.storage(proxy.urlOf(database.url));
    const server = await HaloServer.start(installation, storage, extra);
    return new Replica(name, halo, proxy, extra, server);
  }

  get isExcused(): boolean {
    return this.excuses > 0;
  }

  /** What its clients lose until the work is done is nobody's fault. */
  async whileExcused(work: () => Promise<void>): Promise<void> {
    this.excuses += 1;
    this.excused += 1;
    try {
      await work();
    } finally {
      this.excuses -= 1;
    }
  }

  /** Ends the process and starts another on the same port; resolves when that one is ready. */
  async replace(signal: 'SIGKILL' | 'SIGTERM'): Promise<void> {
    const { port } = new URL(this.server.url);
    await this.server.stop(signal);
    const { installation, database } = this.halo;
    const storage = this.halo.storage(this.proxy.urlOf(database.url));
    const extra = [...this.extra, '--listen', `127.0.0.1:${port}`];
    const endMs = Date.now() + START_WITHIN_MS;
    for (;;) {
      this.server = HaloServer.spawn(installation, storage, extra, undefined, this.environment);
      try {
        await this.server.ready();
        return;
      } catch (error) {
        // Without its database a server does not start, and ends: it is for others to try again.
        if (Date.now() > endMs) throw error;
        await this.server.stop('SIGKILL');
        await pause(START_AGAIN_AFTER_MS);
      }
    }
  }

  async stop(): Promise<void> {
    await this.server.stop('SIGKILL');
    await this.proxy.stop();
  }
}

/** Everything that runs. Whoever starts it stops it. */
export class Site {
  private constructor(
    readonly halo: HaloCluster,
    readonly replicas: readonly Replica[],
    readonly nginx: Nginx | undefined,
    private readonly application: Neighbour | undefined,
  ) {}

  static async start({ replicas, nginx = false, extra }: SiteOptions): Promise<Site> {
    const halo = await startHaloCluster(0, { maxConnections: 50 + replicas * CONNECTIONS_MAX });
    const started: Replica[] = [];
    try {
      for (let index = 0; index < replicas; index += 1) {
        const name = `r${index + 1}`;
        const options = [...TRUST_LOOPBACK, ...(extra?.(name) ?? [])];
        started.push(await Replica.start(name, halo, options));
      }
      if (!nginx) return new Site(halo, started, undefined, undefined);
      const application = await Neighbour.start();
      const ports = started.map(({ server }) => Number(new URL(server.url).port));
      const door = await startNginx({ replicas: ports, application: application.port });
      return new Site(halo, started, door, application);
    } catch (error) {
      await Promise.all(started.map((replica) => replica.stop()));
      await halo.stop();
      throw error;
    }
  }

  /** Resolves when every replica says that it is ready, at most `withinMs` from now. */
  async ready(withinMs: number): Promise<void> {
    await Promise.all(
      this.replicas.map(({ name, server }) =>
        eventually(
          async () => {
            const answer = await server.call('GET', '/readyz').catch(() => undefined);
            return answer?.status === 200;
          },
          withinMs,
          `readiness of ${name}`,
        ),
      ),
    );
  }

  /** How many connections the replicas have at the database. */
  async databaseConnections(): Promise<number> {
    const rows = await this.halo.database.sql(
      "SELECT count(*)::int AS n FROM pg_stat_activity WHERE usename = 'halo_serving'",
    );
    return Number(rows[0]?.['n']);
  }

  async stop(): Promise<void> {
    await this.nginx?.stop();
    await this.application?.stop();
    await Promise.all(this.replicas.map((replica) => replica.stop()));
    await this.halo.stop();
  }
}
