/** Every kind of fault: what is done, to what, and how it ends. */

import { pause } from '../fixtures/halo-server.js';
import type { Dice } from '../simulation/dice.js';
import type { Replica, Site } from './site.js';

/** What one fault of a round is given. */
export interface Blow {
  readonly site: Site;
  /** Who is hit, where the fault hits a replica. */
  readonly replica: Replica;
  readonly holdMs: number;
  /** For what else the fault chooses. */
  readonly dice: Dice;
}

interface Fault {
  /** How often it is chosen, in proportion to the others. */
  readonly weight: number;
  /** Two faults of one round never hit the same. */
  readonly hits: 'replica' | 'database';
  /** Does it, and resolves when it is over. */
  happen(blow: Blow): Promise<void>;
}

async function held(start: () => void, holdMs: number, end: () => void): Promise<void> {
  start();
  await pause(holdMs);
  end();
}

const killed: Fault = {
  weight: 3,
  hits: 'replica',
  happen: ({ replica }) => replica.whileExcused(() => replica.replace('SIGKILL')),
};

const restarted: Fault = {
  weight: 2,
  hits: 'replica',
  happen: ({ replica }) => replica.whileExcused(() => replica.replace('SIGTERM')),
};

const stopped: Fault = {
  weight: 4,
  hits: 'replica',
  happen: ({ replica, holdMs }) =>
    replica.whileExcused(() =>
      held(
        () => replica.server.signal('SIGSTOP'),
        holdMs,
        () => replica.server.signal('SIGCONT'),
      ),
    ),
};

/** Its connections to the database are reset, again and again. */
const cut: Fault = {
  weight: 3,
  hits: 'replica',
  happen: async ({ replica, dice }) => {
    const times = dice.whole(1, 8);
    for (let time = 0; time < times; time += 1) {
      replica.proxy.cut();
      await pause(dice.between(0, 100));
    }
  },
};

const refused: Fault = {
  weight: 2,
  hits: 'replica',
  happen: ({ replica: { proxy }, holdMs }) =>
    held(
      () => proxy.refuse(),
      holdMs,
      () => proxy.heal(),
    ),
};

const silent: Fault = {
  weight: 2,
  hits: 'replica',
  happen: ({ replica: { proxy }, holdMs }) =>
    held(
      () => proxy.goSilent(),
      holdMs,
      () => proxy.heal(),
    ),
};

/** Half-open: what there is hears nothing any more, and what is new works. */
const forgotten: Fault = {
  weight: 3,
  hits: 'replica',
  happen: async ({ replica: { proxy }, holdMs }) => {
    proxy.loseConnections();
    await pause(holdMs);
  },
};

const slow: Fault = {
  weight: 2,
  hits: 'replica',
  happen: ({ replica: { proxy }, holdMs, dice }) =>
    held(
      () => proxy.delay(dice.between(5, 250)),
      holdMs,
      () => proxy.heal(),
    ),
};

/** A commit is done and its answer is lost. */
const unanswered: Fault = {
  weight: 3,
  hits: 'replica',
  happen: ({ replica: { proxy }, holdMs, dice }) => {
    const committing = new WeakSet<object>();
    return held(
      () => {
        proxy.watch((chunk, link) => {
          if (chunk.includes('COMMIT')) committing.add(link);
          return 'pass';
        });
        proxy.watchAnswers((_chunk, link) =>
          committing.delete(link) && dice.chance(0.3) ? 'cut' : 'pass',
        );
      },
      holdMs,
      () => proxy.heal(),
    );
  },
};

const databaseKilled: Fault = {
  weight: 2,
  hits: 'database',
  happen: async ({ site, holdMs }) => {
    await site.halo.cluster.server.kill();
    await pause(holdMs / 2);
    await site.halo.cluster.server.start();
  },
};

const databaseRestarted: Fault = {
  weight: 2,
  hits: 'database',
  happen: ({ site, dice }) =>
    site.halo.cluster.server.restart(dice.chance(0.5) ? 'fast' : 'immediate'),
};

const databaseStopped: Fault = {
  weight: 2,
  hits: 'database',
  happen: ({ site, holdMs }) =>
    held(
      () => site.halo.cluster.server.pause(),
      holdMs,
      () => site.halo.cluster.server.resume(),
    ),
};

const sessionsEnded: Fault = {
  weight: 3,
  hits: 'database',
  happen: async ({ site, dice }) => {
    const share = dice.pick([0.3, 1]);
    await site.halo.database.sql(
      `SELECT pg_terminate_backend(pid) FROM pg_stat_activity
       WHERE usename = 'halo_serving' AND random() < ${share}`,
    );
  },
};

/** By the names that a schedule prints. */
export const FAULTS = {
  'replica killed': killed,
  'replica restarted': restarted,
  'replica stopped': stopped,
  'replica cut off and back': cut,
  'replica refused': refused,
  'replica in silence': silent,
  'replica half-open': forgotten,
  'replica far away': slow,
  'commits unanswered': unanswered,
  'database killed': databaseKilled,
  'database restarted': databaseRestarted,
  'database stopped': databaseStopped,
  'sessions ended': sessionsEnded,
} satisfies Readonly<Record<string, Fault>>;

export type FaultName = keyof typeof FAULTS;
