/**
 * Which streams gateways have open and what they acknowledged: reported by front threads, kept in
 * memory, written in batches to a table of its own, never replayed and never a write for each ack.
 */
import type { Clock } from '../../runtime/clock.js';
import { describe } from '../../runtime/failure.js';
import type { Log } from '../../runtime/log.js';
import type { GatewayAck, Store } from '../../storage/store.js';
import type { GatewayReport } from './messages.js';

/** How often what was reported is written: an operator waits about so long for the others. */
const FLUSH_MS = 1_000;
/** A front reports every second; after five without a report it is gone or stuck. */
export const REPORT_AGE_MAX_MS = 5_000;
/** Rows that are not renewed for so long are a dead replica's: ten flushes. */
export const ACK_TTL_MS = 10_000;

/** The streams of one gateway on all replicas. */
export interface GatewayOpen {
  readonly connections: number;
  readonly ackVersion: number;
  /** When the least was last known to be so, ms on the store's clock. */
  readonly ackAtMs: number;
}

interface Reported {
  readonly atMs: number;
  readonly gateways: GatewayReport['gateways'];
}

/** What one replica has open. A crash loses nothing: fronts report again within a second. */
export class OpenStreams {
  private readonly fronts = new Map<string, Reported>();
  private flushedAtMs: number;
  private hasRows = false;
  private isFailing = false;
  private epoch = '';

  /** `start` tells this start of this replica from every other. */
  constructor(
    private readonly store: Pick<Store, 'recordGatewayAcks' | 'gatewayAcks'>,
    private readonly clock: Clock,
    private readonly log: Log,
    private readonly start: string,
  ) {
    this.flushedAtMs = clock.monotonicMs();
  }

  /**
   * Replaces what that front said before. Nobody can have acknowledged more than `version`, which
   * is the list's now.
   */
  report({ front, gateways }: GatewayReport, version: number): void {
    this.forgetSilent();
    if (gateways.length === 0) this.fronts.delete(front);
    else {
      const known = gateways.map((one) => ({
        ...one,
        ackVersion: Math.min(one.ackVersion, version),
      }));
      this.fronts.set(front, { atMs: this.clock.monotonicMs(), gateways: known });
    }
  }

  /** By gateway: what this replica has open now and what others wrote, within one epoch. */
  async open(epoch: string, storeTimeMs: number): Promise<ReadonlyMap<string, GatewayOpen>> {
    const open = new Map<string, GatewayOpen>();
    const add = (ack: GatewayAck, ackAtMs: number): void => {
      const other = open.get(ack.gateway);
      const isLeast = !other || ack.ackVersion < other.ackVersion;
      open.set(ack.gateway, {
        connections: ack.connections + (other?.connections ?? 0),
        ackVersion: isLeast ? ack.ackVersion : other.ackVersion,
        ackAtMs: isLeast ? ackAtMs : other.ackAtMs,
      });
    };
    const own = this.mark(epoch);
    for (const row of await this.store.gatewayAcks()) {
      // A version of another epoch says nothing about this one.
      if (!row.replicaStart.startsWith(`${epoch}.`) || row.replicaStart === own) continue;
      add(row, row.expiresAtMs - ACK_TTL_MS);
    }
    for (const ack of this.acks()) add(ack, storeTimeMs);
    return open;
  }

  /** Writes what is open when that was last done a second ago; nothing while nothing is. */
  async flushIfDue(epoch: string): Promise<void> {
    if (this.clock.monotonicMs() - this.flushedAtMs < FLUSH_MS) return;
    this.epoch = epoch;
    await this.flush(this.acks());
  }

  /** The replica stops: its streams are closed, and others need not wait for the rows to expire. */
  async close(): Promise<void> {
    this.fronts.clear();
    await this.flush([]);
  }

  /** How many streams this replica has open. */
  get connections(): number {
    return this.acks().reduce((sum, { connections }) => sum + connections, 0);
  }

  private async flush(acks: readonly GatewayAck[]): Promise<void> {
    this.flushedAtMs = this.clock.monotonicMs();
    if (acks.length === 0 && !this.hasRows) return;
    try {
      await this.store.recordGatewayAcks(this.mark(this.epoch), acks, ACK_TTL_MS);
      this.hasRows = acks.length > 0;
      this.isFailing = false;
    } catch (error) {
      if (!this.isFailing) {
        this.log.warn({ error: describe(error) }, 'Other replicas do not learn who acknowledged.');
      }
      this.isFailing = true;
    }
  }

  private acks(): readonly GatewayAck[] {
    this.forgetSilent();
    const merged = new Map<string, GatewayAck>();
    for (const { gateways } of this.fronts.values()) {
      for (const { gateway, connections, ackVersion } of gateways) {
        if (connections === 0) continue;
        const other = merged.get(gateway);
        merged.set(gateway, {
          gateway,
          connections: connections + (other?.connections ?? 0),
          ackVersion: Math.min(ackVersion, other?.ackVersion ?? ackVersion),
        });
      }
    }
    return [...merged.values()];
  }

  private forgetSilent(): void {
    const nowMs = this.clock.monotonicMs();
    for (const [front, { atMs }] of this.fronts) {
      if (nowMs - atMs > REPORT_AGE_MAX_MS) this.fronts.delete(front);
    }
  }

  private mark(epoch: string): string {
    return `${epoch}.${this.start}`;
  }
}
