/**
 * Thousands of gateways come back at once: first because all of their sockets were cut, then
 * because their replica was restarted while the other one took a kill. Each time a kill waits for
 * them, so that "back" means: connected, and told what they missed.
 */
import { setTimeout as wait } from 'node:timers/promises';
import type { LoadDatabases } from '../databases.js';
import { startOnPostgres } from '../halo-on-postgres.js';
import { KillStreamLot } from '../kill-streams.js';
import { nowMs } from '../open-loop.js';
import type { LoadOptions } from '../options.js';
import { HALOS, type LoadReport, reportOf, verdict } from '../report.js';
import type { RunContext } from '../run-context.js';
import { ServerProcess } from '../server-process.js';
import { timedKill } from '../stream-clients.js';

/** PostgreSQL's backends report what they did within a second; the server's polls go on. */
const STATISTICS_MS = 2_000;
/** What the polls of both replicas do by themselves is measured over this. */
const BACKGROUND_MS = 5_000;
/** A query for each socket would be 1; many sockets share one, so that it is a small part of it. */
const QUERIES_PER_SOCKET_MAX = 0.5;
/** As long as a fleet may do without news: clients spread their return over two seconds anyway. */
const BACK_WITHIN_MS = 5_000;

export async function runReconnectStorm(
  options: LoadOptions,
  context: RunContext,
): Promise<LoadReport> {
  const count = options.streams ?? 0;
  const storm = await Storm.begin(options, context, count);
  const background = await storm.backgroundPerSecond();
  context.progress('cutting every stream');
  const cut = await storm.cut();
  context.progress('restarting the replica');
  const restart = await storm.restart();
  const facts = {
    streams: restart.streams,
    cutBackMs: cut.backMs,
    cutQueries: cut.queries - (background * cut.measuredMs) / 1000,
    cutQueriesPerSocket: (cut.queries - (background * cut.measuredMs) / 1000) / count,
    cutServerCpuMs: cut.serverCpuMs,
    cutClientCpuMs: cut.clientCpuMs,
    restartDownMs: restart.downMs,
    restartBackMs: restart.backMs,
    restartQueries: restart.queries - (background * restart.measuredMs) / 1000,
    restartServerCpuMs: restart.serverCpuMs,
    restartClientCpuMs: restart.clientCpuMs,
    backgroundQueriesPerSecond: background,
  };
  const verdicts = [
    verdict('streams after a cut', cut.streams, ['at least', count, ''], true),
    verdict('streams after a restart', restart.streams, ['at least', count, ''], true),
    verdict('all back after a cut', cut.backMs, ['below', BACK_WITHIN_MS, ' ms']),
    verdict('all back after a restart', restart.backMs, ['below', BACK_WITHIN_MS, ' ms']),
    verdict('queries for each socket', facts.cutQueriesPerSocket, [
      'below',
      QUERIES_PER_SOCKET_MAX,
      '',
    ]),
  ];
  return reportOf(options, context, storm.databases, {
    facts,
    verdicts,
  });
}

/** What one return of all streams took. */
interface Return {
  /** From when they could come back to the last one's frame. */
  readonly backMs: number;
  readonly downMs: number;
  /** How many are open when all that are have had the frame. */
  readonly streams: number;
  readonly queries: number;
  /** How long the queries were counted. */
  readonly measuredMs: number;
  readonly serverCpuMs: number;
  readonly clientCpuMs: number;
}

class Storm {
  private held = '';

  private constructor(
    private near: ServerProcess,
    private readonly far: ServerProcess,
    private readonly adminToken: string,
    readonly databases: LoadDatabases,
    private readonly lot: KillStreamLot,
  ) {}

  static async begin(options: LoadOptions, context: RunContext, count: number): Promise<Storm> {
    const { servers, adminToken, databases } = await startOnPostgres(options, context, 2);
    const [near, far] = servers;
    if (near === undefined || far === undefined) throw new Error('Two replicas are needed.');
    const lot = await KillStreamLot.open(context, near.url, adminToken, count);
    const storm = new Storm(near, far, adminToken, databases, lot);
    context.onEnd(() => storm.near.stop());
    const { version, epoch } = await timedKill(far.url, adminToken, 'before');
    await lot.reached(version);
    storm.held = `${epoch}.${version}`;
    return storm;
  }

  /** What the replicas ask by themselves, per second, with all streams open. */
  async backgroundPerSecond(): Promise<number> {
    await wait(STATISTICS_MS);
    const before = await this.databases.transactions(HALOS);
    await wait(BACKGROUND_MS);
    return ((await this.databases.transactions(HALOS)) - before) / (BACKGROUND_MS / 1000);
  }

  /** Cuts every socket, kills something, and lets all come back. */
  cut(): Promise<Return> {
    return this.back('cut', async () => {
      await this.lot.cut();
      return async () => undefined;
    });
  }

  /** Restarts the replica on its port; something is killed on the other one meanwhile. */
  restart(): Promise<Return> {
    return this.back('restart', async () => {
      await this.near.stop();
      await this.lot.cut();
      return async () => {
        const { spec, url } = this.near;
        const args = [...spec.args, '--listen', `127.0.0.1:${new URL(url).port}`];
        this.near = await ServerProcess.start({ ...spec, args });
      };
    });
  }

  /** `fault` takes all streams down and returns what lets them come back. */
  private async back(name: string, fault: () => Promise<() => Promise<void>>): Promise<Return> {
    const queriesBefore = await this.databases.transactions(HALOS);
    const measuredFromMs = nowMs();
    const { cpuMs: clientBefore } = await this.lot.count();
    const downAtMs = nowMs();
    const recover = await fault();
    const { version, epoch } = await timedKill(this.far.url, this.adminToken, name);
    await recover();
    const downMs = nowMs() - downAtMs;
    const serverBefore = this.near.usage().cpuMs;
    const startedMs = nowMs();
    await this.lot.openAll(this.held);
    const { lastMs, cpuMs, streams } = await this.lot.reached(version);
    const serverCpuMs = this.near.usage().cpuMs - serverBefore;
    this.held = `${epoch}.${version}`;
    await wait(STATISTICS_MS);
    return {
      backMs: lastMs - startedMs,
      streams,
      downMs,
      queries: (await this.databases.transactions(HALOS)) - queriesBefore,
      measuredMs: nowMs() - measuredFromMs,
      serverCpuMs,
      clientCpuMs: cpuMs - clientBefore,
    };
  }
}
