/** Entry of an actor thread: opens the thread's store and hosts the actors placed on it. */
import { ActorHost } from '../runtime/actor-host.js';
import { systemClock } from '../runtime/clock.js';
import { describe } from '../runtime/failure.js';
import { openLog } from '../runtime/pino-log.js';
import { systemRandom } from '../runtime/random.js';
import { actorThreadControl, serveControl, threadStart } from '../runtime/thread-control.js';
import { openHints, openStore, type StoreSource } from '../storage/open-store.js';
import { sweepRegularly } from '../storage/sweeper.js';
import { actorDefinition } from './catalogue.js';
import { KILL_LIST_ACTOR, KillListClient } from './kill-list/client.js';

/** What the supervisor's process gives to an actor thread. */
export interface ActorThreadData {
  readonly actors: readonly string[];
  readonly store: StoreSource;
  /** Whether this thread deletes what has expired; one for each process. */
  readonly sweeps: boolean;
  readonly logLevel: string;
}

const { name, events, data } = threadStart<ActorThreadData>();
const log = openLog(name, data.logLevel);
const clock = systemClock;
const random = systemRandom;
const store = openStore(data.store, { clock, random, log });
const environment = { store, clock, random, log };
const host = new ActorHost(
  data.actors.map((actor) => actorDefinition(actor, environment)),
  {
    clock,
    random,
    log,
    onExhausted: (actor, cause) => {
      events.postMessage({ type: 'exhausted', actor, error: describe(cause) });
    },
  },
);
const kills = data.actors.includes(KILL_LIST_ACTOR)
  ? new KillListClient(host.localRef(KILL_LIST_ACTOR))
  : undefined;
/** The thread of the kill list listens: a hint makes the actor catch up, which tells its news. */
const hints =
  kills &&
  openHints(data.store, { clock, random, log }, () => {
    // What fails here is made up for by the poll.
    kills.version().catch(() => undefined);
  });
const sweeper = data.sweeps ? sweepRegularly(store, { clock, random, log }) : undefined;

serveControl(
  actorThreadControl(host, {
    facts: () => ({
      ...store.facts(),
      dbOpenConnections: (store.facts()['dbOpenConnections'] ?? 0) + (hints?.open ?? 0),
      hintsListening: hints?.isListening === true ? 1 : 0,
    }),
    close: async () => {
      sweeper?.stop();
      await hints?.close();
      await store.close();
    },
  }),
);
