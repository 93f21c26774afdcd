/**
 * How fast the chain grows: what waits in the outbox is drained in batches, signed on the CPU pool,
 * beside clients that each append one record under the lock of the head's row. Then a burst, with
 * the audit chainer of a server behind it: how long until nothing waits.
 */
import { auditChainerActor } from '../../src/actors/audit-chainer/actor.js';
import { parseKeyring } from '../../src/evidence/keyring.js';
import { ActorHost } from '../../src/runtime/actor-host.js';
import { systemClock } from '../../src/runtime/clock.js';
import { DRAIN_BATCH_MAX } from '../../src/storage/evidence-store.js';
import { openEvidenceTables } from '../baselines/evidence-tables.js';
import { runClients } from '../clients-in-process.js';
import {
  chainVerdicts,
  type EvidenceOnPostgres,
  environment,
  fillOutbox,
  startEvidence,
} from '../evidence-on-postgres.js';
import type { LoadOptions } from '../options.js';
import { type LoadReport, reportOf, verdict } from '../report.js';
import { WARM_UP_MS } from '../rounds.js';
import type { RunContext } from '../run-context.js';
import { median } from '../statistics.js';

/** What issue 5 asks for. */
const BURST_EVENTS = 20_000;
/** Drained in one round, for each second that the baseline is measured in all rounds. */
const EVENTS_PER_SECOND = 2_000;
/** As many decisions as a batch of a busy lane holds. */
const EVENTS_PER_UNIT = 100;
/** How often the lag is looked at. */
const LOOK_MS = 20;

export async function runChainDrain(
  options: LoadOptions,
  context: RunContext,
): Promise<LoadReport> {
  const { connections: clients, rounds } = options;
  const halos = await startEvidence(context);
  const { databases, pem, event } = halos;
  const key = parseKeyring(pem).current;
  const baseline = await openEvidenceTables(context, databases, key, clients, 'baseline');
  let ordinal = 0;
  const append = (): Promise<void> => {
    ordinal += 1;
    return baseline.append(event(ordinal));
  };
  context.progress('warming up');
  await runClients(clients, WARM_UP_MS, append);
  await fillOutbox(halos, 10 * DRAIN_BATCH_MAX, EVENTS_PER_UNIT);
  await drainAll(halos);
  const roundMs = (options.durationSeconds * 1000) / rounds;
  const roundEvents = options.durationSeconds * EVENTS_PER_SECOND;
  const measured: Round[] = [];
  for (let round = 0; round < rounds; round += 1) {
    context.progress(`round ${round + 1} of ${rounds}`);
    const appended = await runClients(clients, roundMs, append);
    await fillOutbox(halos, roundEvents, EVENTS_PER_UNIT);
    measured.push({ drained: await drainAll(halos), appendedPerSecond: appended.perSecond });
  }
  context.progress(`a burst of ${BURST_EVENTS}`);
  const burst = await runBurst(halos);
  const drained = measured.map(({ drained }) => drained);
  const facts = {
    drainedPerSecond: median(drained.map(({ perSecond }) => perSecond)),
    drainCpuUs: median(drained.map(({ cpuUs }) => cpuUs)),
    databaseCpuUs: median(drained.map(({ databaseCpuUs }) => databaseCpuUs)),
    headLockPerSecond: median(measured.map(({ appendedPerSecond }) => appendedPerSecond)),
    ofHeadLock: median(
      measured.map(({ drained, appendedPerSecond }) => drained.perSecond / appendedPerSecond),
    ),
    ...burst,
  };
  const records = 10 * DRAIN_BATCH_MAX + rounds * roundEvents + BURST_EVENTS;
  const verdicts = [
    verdict('of appends under the head’s lock', facts.ofHeadLock, ['at least', 10, ' times']),
    verdict('lag gone after the burst', facts.lagGoneMs, ['at most', 5_000, ' ms']),
    ...(await chainVerdicts(halos, { records, pending: 0 })),
  ];
  return reportOf(options, context, databases, { facts, verdicts });
}

interface Round {
  readonly drained: Drained;
  readonly appendedPerSecond: number;
}

interface Drained {
  readonly perSecond: number;
  /** Of this process, all threads, for a record. */
  readonly cpuUs: number;
  readonly databaseCpuUs: number;
}

async function drainAll({ store, databases }: EvidenceOnPostgres): Promise<Drained> {
  const databaseBefore = databases.cpuMs();
  const before = process.cpuUsage();
  const beginMs = systemClock.monotonicMs();
  let events = 0;
  for (let last = DRAIN_BATCH_MAX; last === DRAIN_BATCH_MAX; ) {
    const result = await store.evidence.drain(DRAIN_BATCH_MAX);
    if (result.kind === 'busy') throw new Error('Somebody else drains.');
    last = result.events;
    events += last;
  }
  const elapsedMs = systemClock.monotonicMs() - beginMs;
  const { user, system } = process.cpuUsage(before);
  return {
    perSecond: (events * 1000) / elapsedMs,
    cpuUs: (user + system) / events,
    databaseCpuUs: ((databases.cpuMs() - databaseBefore) * 1000) / events,
  };
}

/** The burst in units of one lane, while the chainer runs; the lag is counted from its end. */
async function runBurst(
  halos: EvidenceOnPostgres,
): Promise<Record<'burstMs' | 'lagMax' | 'lagGoneMs', number>> {
  const { store, evidence } = halos;
  const chainer = auditChainerActor({ ...environment, store, chaining: evidence.chaining });
  const host = new ActorHost([chainer], { ...environment, onExhausted: () => undefined });
  await host.open();
  const beginMs = systemClock.monotonicMs();
  await fillOutbox(halos, BURST_EVENTS, EVENTS_PER_UNIT);
  const endMs = systemClock.monotonicMs();
  const lagMax = await store.evidence.pending();
  while ((await store.evidence.pending()) > 0) {
    await new Promise<void>((resolve) => systemClock.schedule(resolve, LOOK_MS));
  }
  const lagGoneMs = systemClock.monotonicMs() - endMs;
  await host.close();
  return { burstMs: endMs - beginMs, lagMax, lagGoneMs };
}
