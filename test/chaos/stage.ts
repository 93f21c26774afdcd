/** What the scenarios of `halo chaos` play on: replicas, who leads, and how long things take. */
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { type Replica, Site } from '../faults/site.js';
import { eventually, newInstallation, pause } from '../fixtures/halo-server.js';
import type { Continued } from './acting.js';
import type { Book } from './guarantees.js';
import { Receiver } from './receiver.js';
import { type Held, Watcher } from './watcher.js';
import { installWitness } from './witness.js';

export const SINK = 'chaos';
export const CONTROLLER_LEASE = 'controller';
export const SINK_LEASE = `audit-export-${SINK}`;
/** Short, so that a scenario lasts seconds. */
export const LEASE_TTL_MS = 2_000;
/** A secret of nobody's: the receiver is this process. */
const SINK_SECRET = 'a-secret-of-the-chaos-command-0000000000';
/** Who does not lead by then does not lead. */
const LEADER_WITHIN_MS = 10_000;

export class Stage {
  /** By the ids of processes, those that are gone included. */
  private readonly names = new Map<string, string>();
  readonly continued: Continued[] = [];

  private constructor(
    readonly site: Site,
    readonly receiver: Receiver,
    readonly watcher: Watcher,
    readonly book: Book,
  ) {}

  static async start(replicas: number, book: Book): Promise<Stage> {
    const receiver = await Receiver.start();
    const { directory } = newInstallation();
    const secretFile = join(directory, 'sink-secret');
    writeFileSync(secretFile, SINK_SECRET, { mode: 0o600 });
    const sinksOf = (name: string): string[] => {
      const path = join(directory, `sinks-${name}.json`);
      const sink = { name: SINK, type: 'webhook', url: receiver.urlOf(name) };
      const sinks = { sinks: [{ ...sink, secretFile, allowPrivate: true }] };
      writeFileSync(path, JSON.stringify(sinks), { mode: 0o600 });
      return ['--audit-sinks-file', path];
    };
    const extra = (name: string): string[] => [
      ...['--lease-ttl', `${LEASE_TTL_MS}ms`],
      ...sinksOf(name),
    ];
    const site = await Site.start({ replicas, extra });
    const { cluster, database } = site.halo;
    await installWitness(database);
    const watcher = new Watcher(cluster.server.superuserUrl(database.name), SINK);
    const stage = new Stage(site, receiver, watcher, book);
    await stage.learnNames();
    return stage;
  }

  /** After processes were started: whose holder's ids are whose. */
  async learnNames(): Promise<void> {
    for (const { name, server } of this.site.replicas) {
      const status = await server.admin('GET', '/v1/status').catch(() => undefined);
      if (typeof status?.json?.replica === 'string') this.names.set(status.json.replica, name);
    }
  }

  /** A holder's id is its process's, a full stop, and which candidacy of it. */
  replicaOf = (holder: string): string | undefined =>
    this.names.get(holder.slice(0, holder.lastIndexOf('.')));

  /** The replica that has the lease, and its row. */
  async leader(lease: string): Promise<{ replica: Replica; held: Held }> {
    let found: { replica: Replica; held: Held } | undefined;
    await eventually(
      () => {
        const held = this.watcher.last?.leases.get(lease);
        const name = held === undefined ? undefined : this.replicaOf(held.holder);
        const replica = this.site.replicas.find((one) => one.name === name);
        // One that is about to be renewed is seen again in a moment.
        if (held !== undefined && held.remainingMs > 0 && replica !== undefined) {
          found = { replica, held };
        }
        return found !== undefined;
      },
      LEADER_WITHIN_MS,
      `a leader of ${lease}`,
    );
    if (found === undefined) throw new Error('unreachable');
    return found;
  }

  /**
   * Resolves with how long after `sinceMs` somebody had the lease under another token, in ms;
   * undefined: not within `withinMs`.
   */
  async takeover(
    lease: string,
    { token }: Held,
    sinceMs: number,
    withinMs: number,
  ): Promise<number | undefined> {
    for (;;) {
      const taken = this.watcher.since(sinceMs).find(({ leases }) => {
        const held = leases.get(lease);
        return held !== undefined && held.token > token && held.remainingMs > 0;
      });
      if (taken !== undefined) return Math.round(taken.seenMs - sinceMs);
      if (performance.now() - sinceMs > withinMs) return undefined;
      await pause(20);
    }
  }

  async stop(): Promise<void> {
    await this.watcher.stop();
    await this.site.stop();
    this.receiver.stop();
  }
}
