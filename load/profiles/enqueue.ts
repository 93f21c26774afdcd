/**
 * How fast evidence becomes durable: many units of one event each at the same time, committed
 * together as the lanes of two actors do, beside one `INSERT` per transaction by as many clients on
 * the same PostgreSQL. In one process, since what is asked is what a thread of a server can take.
 */
import { parseKeyring } from '../../src/evidence/keyring.js';
import { openEvidenceTables } from '../baselines/evidence-tables.js';
import { type ClientsResult, runClients } from '../clients-in-process.js';
import { chainVerdicts, fillOutbox, startEvidence } from '../evidence-on-postgres.js';
import type { LoadOptions } from '../options.js';
import { openRecordingLane } from '../recording-lane.js';
import { type LoadReport, reportOf, verdict } from '../report.js';
import { WARM_UP_MS } from '../rounds.js';
import type { RunContext } from '../run-context.js';
import { median } from '../statistics.js';

export async function runEnqueue(options: LoadOptions, context: RunContext): Promise<LoadReport> {
  const { connections: clients, rounds } = options;
  const halos = await startEvidence(context);
  const { databases, pem, event } = halos;
  // A chain without a record could not be verified.
  await fillOutbox(halos, 1, 1);
  await halos.store.evidence.drain(1);
  const lanes = await Promise.all(
    Array.from({ length: LANES }, () => openRecordingLane(halos.store)),
  );
  context.onEnd(async () => void (await Promise.all(lanes.map((lane) => lane.close()))));
  const key = parseKeyring(pem).current;
  const pooled = await openEvidenceTables(context, databases, key, POOL, 'pooled');
  const direct = await openEvidenceTables(context, databases, key, clients, 'direct');
  let ordinal = 0;
  const next = (): number => {
    ordinal += 1;
    return ordinal;
  };
  let recorded = 0;
  const targets = {
    lane: async (client: number) => {
      await lanes[client % LANES]?.record(event(next()));
      recorded += 1;
    },
    pooled: () => pooled.insert(event(next())),
    direct: () => direct.insert(event(next())),
  };
  for (const [name, act] of Object.entries(targets)) {
    context.progress(`warming up ${name}`);
    await runClients(clients, WARM_UP_MS, act);
  }
  const roundMs = (options.durationSeconds * 1000) / rounds;
  const measured: Record<keyof typeof targets, ClientsResult>[] = [];
  for (let round = 0; round < rounds; round += 1) {
    context.progress(`round ${round + 1} of ${rounds}`);
    measured.push({
      lane: await runClients(clients, roundMs, targets.lane),
      pooled: await runClients(clients, roundMs, targets.pooled),
      direct: await runClients(clients, roundMs, targets.direct),
    });
  }
  const facts = factsOf(measured);
  const verdicts = [
    verdict('of one INSERT per transaction', facts.ofBaseline, ['at least', 4, ' times']),
    verdict('durable, p95', facts.laneP95Ms, ['below', 20, ' ms']),
    ...(await chainVerdicts(halos, { pending: recorded })),
  ];
  return reportOf(options, context, databases, { facts, verdicts });
}

/** As two actors of one thread have: while one waits for its commit, the other goes on. */
const LANES = 2;
/** What most would give a service; the other baseline has a connection for each client. */
const POOL = 16;

type Facts = Record<
  | 'lanePerSecond'
  | 'laneP50Ms'
  | 'laneP95Ms'
  | 'laneP99Ms'
  | 'baselinePerSecond'
  | 'baselineP95Ms'
  | 'ofBaseline',
  number
>;

/** The faster of the two baselines is what counts, in each round. */
function factsOf(
  rounds: readonly Readonly<Record<'lane' | 'pooled' | 'direct', ClientsResult>>[],
): Facts {
  const faster = rounds.map(({ pooled, direct }) =>
    pooled.perSecond > direct.perSecond ? pooled : direct,
  );
  const middle = (pick: (result: ClientsResult) => number): number =>
    median(rounds.map(({ lane }) => pick(lane)));
  return {
    lanePerSecond: middle(({ perSecond }) => perSecond),
    laneP50Ms: middle(({ p50Ms }) => p50Ms),
    laneP95Ms: middle(({ p95Ms }) => p95Ms),
    laneP99Ms: middle(({ p99Ms }) => p99Ms),
    baselinePerSecond: median(faster.map(({ perSecond }) => perSecond)),
    baselineP95Ms: median(faster.map(({ p95Ms }) => p95Ms)),
    ofBaseline: median(
      rounds.map(({ lane }, round) => lane.perSecond / (faster[round]?.perSecond ?? Number.NaN)),
    ),
  };
}
