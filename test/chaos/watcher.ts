/**
 * Looks at the database again and again, past the replicas: who has which lease under which token,
 * how far the fenced cursor of the sink is, and how long the chain.
 */
import pg from 'pg';
import { pause } from '../fixtures/halo-server.js';

/** One look. Times are of this process's monotonic clock, in ms. */
export interface Look {
  readonly askedMs: number;
  readonly seenMs: number;
  readonly leases: ReadonlyMap<string, Held>;
  /** The newest record that the sink's cursor says was delivered; -1: none. */
  readonly cursor: number;
  readonly headSeq: number;
}

/** A lease's row. */
export interface Held {
  readonly holder: string;
  readonly token: number;
  readonly remainingMs: number;
}

const LOOK_EVERY_MS = 20;
const LEASES = `
  SELECT name, holder, token::float8 AS token,
    date_part('epoch', expires_at - clock_timestamp()) * 1000 AS remaining
  FROM halo_leases`;
const CURSOR = "SELECT body FROM halo_documents WHERE kind = 'audit-sink' AND id = $1";
const HEAD = 'SELECT seq::float8 AS seq FROM halo_audit_head';

export class Watcher {
  readonly looks: Look[] = [];
  private client: pg.Client | undefined;
  private watching = true;
  private readonly run: Promise<void>;

  constructor(
    private readonly url: string,
    private readonly sink: string,
  ) {
    this.run = this.watch();
  }

  get last(): Look | undefined {
    return this.looks.at(-1);
  }

  /** Looks that were begun after this moment. */
  since(atMs: number): readonly Look[] {
    return this.looks.filter(({ askedMs }) => askedMs >= atMs);
  }

  async stop(): Promise<void> {
    this.watching = false;
    await this.run;
    await this.client?.end().catch(() => undefined);
  }

  private async watch(): Promise<void> {
    while (this.watching) {
      try {
        this.client ??= await this.connect();
        this.looks.push(await this.look(this.client));
      } catch {
        // The database is away: that is for the scenario to know.
        void this.client?.end().catch(() => undefined);
        this.client = undefined;
      }
      await pause(LOOK_EVERY_MS);
    }
  }

  private async connect(): Promise<pg.Client> {
    const client = new pg.Client({ connectionString: this.url, query_timeout: 2_000 });
    client.on('error', () => undefined);
    await client.connect();
    return client;
  }

  private async look(client: pg.Client): Promise<Look> {
    const askedMs = performance.now();
    const leases = await client.query(LEASES);
    const cursor = await client.query(CURSOR, [this.sink]);
    const head = await client.query(HEAD);
    return {
      askedMs,
      seenMs: performance.now(),
      leases: new Map(
        leases.rows.map(({ name, holder, token, remaining }) => [
          String(name),
          { holder: String(holder), token: Number(token), remainingMs: Number(remaining) },
        ]),
      ),
      cursor: cursor.rows[0] === undefined ? -1 : Number(JSON.parse(cursor.rows[0].body).seq),
      headSeq: Number(head.rows[0]?.seq ?? -1),
    };
  }
}

/** What is wrong with tokens over time: one that went back, or a holder that came without one. */
export function tokenFault(looks: readonly Look[]): string | undefined {
  const newest = new Map<string, Held>();
  for (const { leases } of looks) {
    for (const [lease, held] of leases) {
      const before = newest.get(lease);
      newest.set(lease, held);
      if (before === undefined) continue;
      if (held.token < before.token) {
        return `${lease}: token ${held.token} after ${before.token}`;
      }
      if (held.token === before.token && held.holder !== before.holder) {
        return `${lease}: ${before.holder} and ${held.holder} under token ${held.token}`;
      }
    }
  }
  return undefined;
}

/** What is wrong with the cursor over time. */
export function cursorFault(looks: readonly Look[]): string | undefined {
  for (let at = 1; at < looks.length; at += 1) {
    const [before, after] = [looks[at - 1], looks[at]];
    if (before !== undefined && after !== undefined && after.cursor < before.cursor) {
      return `the cursor went back from ${before.cursor} to ${after.cursor}`;
    }
  }
  return undefined;
}
