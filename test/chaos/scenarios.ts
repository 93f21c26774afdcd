/**
 * The days that users fear. Each shows that its fault was really there: what it resolves with says
 * how one could see it, and a scenario that cannot say so throws `FaultAbsent`.
 */
import pg from 'pg';
import type { Replica } from '../faults/site.js';
import { eventually, pause } from '../fixtures/halo-server.js';
import type { Dice } from '../simulation/dice.js';
import { GUARANTEES, type Guarantee } from './guarantees.js';
import { writeUnder } from './old-fence.js';
import { CONTROLLER_LEASE, LEASE_TTL_MS, SINK_LEASE, type Stage } from './stage.js';
import type { Held } from './watcher.js';

/** The fault was not there, so that nothing can be said about what holds in spite of it. */
export class FaultAbsent extends Error {}

export interface Act {
  readonly stage: Stage;
  readonly dice: Dice;
  /** Names the scenario and its round. */
  readonly where: string;
}

type Scenario = (act: Act) => Promise<string>;

/** The issue's bounds. */
const LEASE_WITHIN_MS = LEASE_TTL_MS + 1_000;
const CHAIN_WITHIN_MS = 3_000;
/** PostgreSQL ends a transaction that stands still after two seconds. */
const CHAIN_STOPPED_MS = 5_000;
/** A delivery takes some milliseconds, and the next is a second later. */
const BETWEEN_MS = 150;
/** Nothing is measured beyond it: it is broken then. */
const GIVE_UP_MS = 4 * LEASE_TTL_MS;
/** There is something to deliver about once a second. */
const DELIVERY_WITHIN_MS = 5_000;
const HOUR_MS = 3_600_000;
/** A kill's end, and how exactly it must be kept. */
const KILL_ENDS_MS = 2_000;
const KILL_EARLY_MS = 500;
const KILL_LATE_MS = 5_000;

/** The leases that a replica has, with their rows. */
function leasesOf({ watcher, replicaOf }: Stage, replica: Replica): [string, Held][] {
  return [...(watcher.last?.leases ?? [])].filter(
    ([, { holder, remainingMs }]) => remainingMs > 0 && replicaOf(holder) === replica.name,
  );
}

async function judgeTakeovers(
  { stage, where }: Act,
  leases: readonly [string, Held][],
  sinceMs: number,
): Promise<number> {
  let slowestMs = 0;
  for (const [lease, held] of leases) {
    const tookMs = await stage.takeover(lease, held, sinceMs, GIVE_UP_MS);
    const fault = (): string | undefined => {
      if (tookMs === undefined) return `nobody had ${lease} after ${GIVE_UP_MS} ms`;
      return tookMs > LEASE_WITHIN_MS ? `${lease} was had after ${tookMs} ms` : undefined;
    };
    stage.book.tested('the lease goes on', where, fault());
    slowestMs = Math.max(slowestMs, tookMs ?? GIVE_UP_MS);
  }
  return slowestMs;
}

/** Who was deposed may try what it likes: the store refuses it. */
async function judgeOldFences({ stage, where }: Act, leases: readonly [string, Held][]) {
  for (const [lease, { holder, token }] of leases) {
    const code = await writeUnder(stage.site.halo.database.url, { lease, holder, token });
    if (code !== undefined && code !== 'fenced') continue;
    const fault = code === undefined ? `a write under ${lease}'s old token ${token}` : undefined;
    stage.book.tested('a deposed leader writes nothing', where, fault);
  }
}

const killed: Scenario = async (act) => {
  const { stage, dice } = act;
  const lease = dice.pick([CONTROLLER_LEASE, SINK_LEASE]);
  await pause(dice.between(0, 500));
  const { replica } = await stage.leader(lease);
  const held = leasesOf(stage, replica);
  let text = '';
  await replica.whileExcused(async () => {
    const killedMs = performance.now();
    const how = await replica.server.stop('SIGKILL');
    if (how !== 'SIGKILL') throw new FaultAbsent(`the leader ended with ${how}`);
    if (held.length === 0) throw new FaultAbsent('the leader had no lease when it was killed');
    await judgeChain(act, replica, CHAIN_WITHIN_MS - 100);
    const tookMs = await judgeTakeovers(act, held, killedMs);
    text = `${replica.name} died of SIGKILL with ${held.length} leases; taken over in ${tookMs} ms`;
    await replica.replace('SIGKILL');
  });
  return text;
};

/** Whether a delivery, in whose middle its replica can be stopped, came in time. */
async function deliveryUnderWay({ receiver }: Stage, replica: Replica): Promise<boolean> {
  const underWay = receiver.hold(replica.name).then(() => true);
  return Promise.race([underWay, pause(DELIVERY_WITHIN_MS).then(() => false)]);
}

/** Whether one came, and was answered: then there is a second in which none is under way. */
async function betweenDeliveries({ receiver }: Stage, { name }: Replica): Promise<boolean> {
  const before = receiver.deliveries.length;
  const isNew = (): boolean =>
    receiver.deliveries.slice(before).some(({ replica }) => replica === name);
  const came = await eventually(isNew, DELIVERY_WITHIN_MS).catch(() => undefined);
  await pause(BETWEEN_MS);
  return came !== undefined;
}

/** What is done elsewhere is chained, whoever went down with a lock of the drain's. */
async function judgeChain(
  { stage, where }: Act,
  { name }: Replica,
  withinMs: number,
): Promise<void> {
  const { book, watcher, site } = stage;
  const other = site.replicas.find((one) => one.name !== name);
  await pause(100);
  const head = watcher.last?.headSeq ?? -1;
  const grows = (): boolean => (watcher.last?.headSeq ?? -1) > head;
  // The clients may all wait for the one that is down, and leave nothing to be chained.
  void other?.server
    .admin('POST', '/api/v1/enrollment-tokens', { user: 'chaos' })
    .catch(() => undefined);
  const fault = await eventually(grows, withinMs, `a record after ${head}`).then(
    () => undefined,
    (error: Error) => error.message,
  );
  book.tested('the chain goes on', where, fault);
}

const stopped: Scenario = async (act) => {
  const { stage, dice } = act;
  const lease = dice.pick([CONTROLLER_LEASE, SINK_LEASE, SINK_LEASE]);
  await pause(dice.between(0, 500));
  const { replica } = await stage.leader(lease);
  // Either way nothing of it is on its way to the sink when it is stopped.
  const inMiddle = lease === SINK_LEASE && (await deliveryUnderWay(stage, replica));
  const isQuiet = inMiddle || (await betweenDeliveries(stage, replica));
  const held = leasesOf(stage, replica);
  let tookMs = 0;
  await replica.whileExcused(async () => {
    const stoppedMs = performance.now();
    replica.server.signal('SIGSTOP');
    try {
      const judging = judgeChain(act, replica, CHAIN_STOPPED_MS);
      tookMs = await judgeTakeovers(act, held, stoppedMs);
      await judging;
      // The other one goes on from where the cursor is, and moves it.
      await pause(dice.between(500, 2_000));
    } finally {
      // The answer is there when it goes on: what it writes then must not count.
      stage.receiver.answer();
      const atMs = performance.now();
      if (!isQuiet) stage.continued.push({ replica: replica.name, atMs });
      replica.server.signal('SIGCONT');
    }
  });
  if (held.length === 0 || tookMs >= GIVE_UP_MS) {
    throw new FaultAbsent('no lease ran out while its holder was stopped');
  }
  await judgeOldFences(act, held);
  const when = inMiddle ? ' in the middle of a delivery' : '';
  const whose = `${held.length} leases were others'`;
  return `${replica.name} was stopped${when} until ${whose}, ${tookMs} ms`;
};

const cutOff: Scenario = async (act) => {
  const { stage, dice } = act;
  const lease = dice.pick([CONTROLLER_LEASE, SINK_LEASE]);
  const how = dice.pick(['refused', 'silent'] as const);
  const { replica } = await stage.leader(lease);
  const held = leasesOf(stage, replica);
  const cutMs = performance.now();
  if (how === 'refused') replica.proxy.refuse();
  else replica.proxy.goSilent();
  let tookMs = 0;
  let reached = true;
  try {
    reached = await reaches(stage, replica);
    tookMs = await judgeTakeovers(act, held, cutMs);
    await pause(dice.between(0, 1_500));
  } finally {
    replica.proxy.heal();
  }
  if (reached) throw new FaultAbsent('the database could be reached through the cut');
  if (held.length === 0 || tookMs >= GIVE_UP_MS) {
    throw new FaultAbsent('no lease ran out while its holder was cut off');
  }
  return `${replica.name}'s way to the database was ${how}; taken over in ${tookMs} ms`;
};

/** Whether a connection gets through the replica's way to the database. */
async function reaches({ site }: Stage, { proxy }: Replica): Promise<boolean> {
  const { cluster, database } = site.halo;
  const connectionString = proxy.urlOf(cluster.server.superuserUrl(database.name));
  const client = new pg.Client({ connectionString, connectionTimeoutMillis: 500 });
  client.on('error', () => undefined);
  try {
    await client.connect();
    await client.end();
    return true;
  } catch {
    return false;
  }
}

const databaseRestarted: Scenario = async ({ stage, dice }) => {
  const { server } = stage.site.halo.cluster;
  const startedAt = async (): Promise<string> =>
    String((await server.sql('SELECT pg_postmaster_start_time()::text AS at'))[0]?.['at']);
  const before = await startedAt();
  const how = dice.pick(['fast', 'immediate', 'killed'] as const);
  const downMs = Math.round(dice.between(0, 1_500));
  if (how === 'killed') await server.kill();
  else await server.halt(how);
  await pause(downMs);
  await server.start();
  const after = await startedAt();
  if (before === after) throw new FaultAbsent('PostgreSQL says that it was not started again');
  return `PostgreSQL was ${how === 'killed' ? how : `ended (${how})`}, away for ${downMs} ms`;
};

const clockSkewed: Scenario = async (act) => {
  const { stage, dice } = act;
  const replica = dice.pick(stage.site.replicas);
  const offsetMs = dice.pick([HOUR_MS, -HOUR_MS, 24 * HOUR_MS]);
  try {
    replica.environment = { HALO_CLOCK_OFFSET_MS: String(offsetMs), HALO_TEST_CLOCK: 'true' };
    await replica.whileExcused(() => replica.replace('SIGTERM'));
    await stage.learnNames();
    const seenMs = await skewOf(replica);
    if (Math.abs(seenMs - offsetMs) > HOUR_MS / 10) {
      throw new FaultAbsent(`its status shows a clock that is ${seenMs} ms off`);
    }
    await judgeLeases(act);
    await judgeExpiry(act, replica);
    return `${replica.name}'s status shows a clock that is ${Math.round(seenMs / 1000)} s off`;
  } finally {
    replica.environment = {};
    await replica.whileExcused(() => replica.replace('SIGTERM'));
    await stage.learnNames();
  }
};

/** By how much its own clock is off, as its status says. */
async function skewOf({ server }: Replica): Promise<number> {
  const { json } = await server.admin('GET', '/v1/status');
  return Date.parse(json.time) - Date.now();
}

/** Whoever has a lease keeps it, with a clock that is off as without. */
async function judgeLeases({ stage, where }: Act): Promise<void> {
  const { held } = await stage.leader(CONTROLLER_LEASE);
  await pause(2 * LEASE_TTL_MS);
  const later = stage.watcher.last?.leases.get(CONTROLLER_LEASE);
  const fault =
    later?.token === held.token && later.remainingMs > 0
      ? undefined
      : `the term ${held.token} gave way to ${later?.token}`;
  stage.book.tested('clocks of replicas judge nothing', where, fault);
}

/** A kill with an end that is made there ends at its time everywhere. */
async function judgeExpiry({ stage, where, dice }: Act, skewed: Replica): Promise<void> {
  const id = `chaos-${dice.whole(0, 1_000_000_000)}`;
  const endsAtMs = Date.now() + KILL_ENDS_MS;
  const body = { reason: 'chaos', expiresAt: new Date(endsAtMs).toISOString() };
  const made = await skewed.server.admin('PUT', `/api/v1/kill-list/agent/${id}`, body);
  if (made.status !== 200) {
    const fault = `a kill with an end was answered ${made.status} ${made.text}`;
    stage.book.broken('clocks of replicas judge nothing', where, fault);
    return;
  }
  for (const { name, server } of stage.site.replicas) {
    const isKilled = async (): Promise<boolean> => {
      const { status, json } = await server.admin('GET', '/api/v1/kill-list');
      return status !== 200 || json.entries.some((entry: { id: string }) => entry.id === id);
    };
    let fault: string | undefined;
    if (Date.now() < endsAtMs - KILL_EARLY_MS && !(await isKilled())) {
      if (Date.now() < endsAtMs - KILL_EARLY_MS) fault = `${name} lifted a kill before its end`;
    }
    await eventually(async () => !(await isKilled()), KILL_ENDS_MS + KILL_LATE_MS).catch(() => {
      fault = `${name} kept a kill ${KILL_LATE_MS} ms beyond its end`;
    });
    stage.book.tested('clocks of replicas judge nothing', where, fault);
  }
}

interface Played {
  readonly play: Scenario;
  readonly what: string;
  /** What it puts to the test beside what every scenario does. */
  readonly tests: readonly Guarantee[];
}

/** By the names that are printed, and that `--scenario` takes. */
export const SCENARIOS = {
  'leader-killed': {
    play: killed,
    what: 'the leader is killed with SIGKILL',
    tests: ['the lease goes on', 'the chain goes on'],
  },
  'leader-stopped': {
    play: stopped,
    what: 'the leader is stopped past its lease, and continued',
    tests: ['the lease goes on', 'the chain goes on'],
  },
  'leader-cut-off': {
    play: cutOff,
    what: 'the leader cannot reach the database any more',
    tests: ['the lease goes on'],
  },
  'database-restarted': {
    play: databaseRestarted,
    what: 'PostgreSQL is ended or killed',
    tests: [],
  },
  'clock-skewed': {
    play: clockSkewed,
    what: 'a replica has a clock that is hours off',
    tests: ['clocks of replicas judge nothing'],
  },
} as const satisfies Readonly<Record<string, Played>>;

export type ScenarioName = keyof typeof SCENARIOS;

/** What no scenario but some puts to the test. */
const SPECIAL: readonly Guarantee[] = Object.values(SCENARIOS).flatMap(({ tests }) => [...tests]);

/** What these scenarios put to the test. */
export function guaranteesOf(names: readonly ScenarioName[]): Guarantee[] {
  const special: readonly Guarantee[] = names.flatMap((name) => [...SCENARIOS[name].tests]);
  return (Object.keys(GUARANTEES) as Guarantee[]).filter(
    (guarantee) => !SPECIAL.includes(guarantee) || special.includes(guarantee),
  );
}
