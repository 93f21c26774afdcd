/**
 * The audit export.
 *
 * Owns a forwarder for each sink of this process (`forwarder.ts`); which replica forwards to which
 * sink is decided by the sinks' leases. Owns no stream: a cursor is a document under the fence of
 * its lease (ADR-0021 "Audit export and rotation").
 *
 * Messages: `messages.ts`. What is read is asked of the store, so that every replica says the same.
 *
 * Crash: the forwarders are not of the incarnation and go on; they end when the thread closes, or
 * with their terms. Bounds: `SINKS_MAX` sinks, one batch of each in memory.
 */
import type { ActorDefinition, ActorHandlers } from '../../runtime/actor.js';
import type { Clock } from '../../runtime/clock.js';
import { toFailure } from '../../runtime/failure.js';
import type { Log } from '../../runtime/log.js';
import type { Random } from '../../runtime/random.js';
import type { ThreadTerms } from '../../runtime/thread-terms.js';
import type { Store } from '../../storage/store.js';
import { auditExportLease } from '../lease-names.js';
import { AUDIT_EXPORT_ACTOR } from './client.js';
import { Forwarder } from './forwarder.js';
import type { AuditExportFacts } from './messages.js';
import type { Sink } from './sink.js';
import { sinkLags, sinkStatuses } from './status.js';

/** What the actor is given: its thread's store and terms, and the sinks of the process. */
export interface AuditExportEnvironment {
  readonly store: Store;
  readonly clock: Clock;
  readonly random: Random;
  readonly log: Log;
  readonly terms: ThreadTerms;
  readonly sinks: readonly Sink[];
}

/** Often enough for an alert; two small queries. */
const LAG_PERIOD_MS = 5_000;
/** Only people and their tools ask. */
const BOUNDS = {
  readLane: { depthMax: 64, operatorReserve: 0 },
  writeLane: { depthMax: 1, operatorReserve: 0 },
  readBatchMax: 4,
  writeBatchMax: 1,
  backgroundPeriodMs: LAG_PERIOD_MS,
} satisfies ActorDefinition['bounds'];

/** The audit export for a host; see the head of this file. */
export function auditExportActor(environment: AuditExportEnvironment): ActorDefinition {
  const forwarding = new Forwarding(environment);
  return {
    name: AUDIT_EXPORT_ACTOR,
    isWrite: isAuditExportWrite,
    create: () => new AuditExport(environment, forwarding),
    bounds: BOUNDS,
  };
}

/** It has no writes: what it writes belongs to terms. */
export function isAuditExportWrite(_kind: string): boolean {
  return false;
}

/** The forwarders of a thread, which outlive an incarnation of the actor. */
class Forwarding {
  readonly forwarders: readonly Forwarder[];
  private ends: readonly (() => Promise<void>)[] = [];

  constructor(private readonly environment: AuditExportEnvironment) {
    this.forwarders = environment.sinks.map((sink) => new Forwarder(sink, environment));
  }

  begin(): void {
    this.ends = this.forwarders.map((forwarder) =>
      this.environment.terms.follow(auditExportLease(forwarder.sink.name), (term) =>
        forwarder.work(term),
      ),
    );
  }

  async end(): Promise<void> {
    const { ends } = this;
    this.ends = [];
    await Promise.all(ends.map((end) => end()));
  }
}

class AuditExport implements ActorHandlers {
  private lags: ReadonlyMap<string, number> = new Map();

  constructor(
    private readonly environment: AuditExportEnvironment,
    private readonly forwarding: Forwarding,
  ) {}

  async open(): Promise<void> {
    this.forwarding.begin();
  }

  refresh(): void {
    // Nothing is answered from memory.
  }

  read(kind: string): unknown {
    if (kind !== 'sinks') {
      throw new RangeError(`The audit export knows no message of kind ${kind}.`);
    }
    const { store, clock, sinks } = this.environment;
    return sinkStatuses(store, clock, sinks).catch(toFailure);
  }

  async write(): Promise<readonly unknown[]> {
    throw new RangeError('The audit export has no writes.');
  }

  async background(): Promise<void> {
    const { store, sinks } = this.environment;
    if (sinks.length === 0) return;
    // While the store cannot be asked the last known lag stays; the store's own metrics tell.
    this.lags = await sinkLags(store, sinks).catch(() => this.lags);
  }

  close(): Promise<void> {
    return this.forwarding.end();
  }

  inspect(): Readonly<Record<string, unknown>> {
    const sinks = this.forwarding.forwarders.map(({ sink: { name }, delivered, errors }) => ({
      name,
      lagRecords: this.lags.get(name) ?? 0,
      delivered,
      errors,
    }));
    return { sinks } satisfies AuditExportFacts;
  }
}
