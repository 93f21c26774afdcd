/** Entry of an actor thread: opens the thread's store and hosts the actors placed on it. */
import { HostLookup } from '../effects/host-lookup.js';
import { ActorHost } from '../runtime/actor-host.js';
import { systemClock } from '../runtime/clock.js';
import { describe } from '../runtime/failure.js';
import { openLog } from '../runtime/pino-log.js';
import { systemRandom } from '../runtime/random.js';
import { TermBoard, type TermBoardData } from '../runtime/term-board.js';
import { actorThreadControl, serveControl, threadStart } from '../runtime/thread-control.js';
import { ThreadTerms } from '../runtime/thread-terms.js';
import { openStore, type StoreSource } from '../storage/open-store.js';
import { sweepRegularly } from '../storage/sweeper.js';
import type { SinkSettings } from './audit-export/sink-settings.js';
import { openSink } from './audit-export/sinks.js';
import { actorDefinition } from './catalogue.js';
import { followHints } from './hinted-actors.js';
import { policyDirectory } from './policy-directory.js';
import { type ThreadEvidenceData, threadEvidence } from './thread-evidence.js';

/** What the supervisor's process gives to an actor thread. */
export interface ActorThreadData {
  readonly actors: readonly string[];
  readonly store: StoreSource;
  /** Whether this thread deletes what has expired; one for each process. */
  readonly sweeps: boolean;
  readonly logLevel: string;
  readonly evidence: ThreadEvidenceData;
  /** The deadlines of the process's terms, in shared memory. */
  readonly terms: TermBoardData;
  /** Where the chain is forwarded to, with their secrets. */
  readonly auditSinks: readonly SinkSettings[];
  /** `--policy-dir`; null: not given. */
  readonly policyDir: string | null;
}

const { name, events, data } = threadStart<ActorThreadData>();
const log = openLog(name, data.logLevel);
const clock = systemClock;
const random = systemRandom;
const evidence = threadEvidence(data.evidence, { clock, random });
const store = openStore(data.store, { clock, random, log }, evidence.store);
const { recorder, chaining } = evidence;
const policySource = data.policyDir === null ? undefined : policyDirectory(data.policyDir);
const hosts = new HostLookup();
const terms = new ThreadTerms({
  board: new TermBoard(data.terms, clock),
  clock,
  log,
  onFenced: (fence) => events.postMessage({ type: 'fenced', fence }),
});
const environment = {
  store,
  terms,
  leases: data.terms.leases,
  clock,
  random,
  log,
  evidence: recorder,
  chaining,
  policySource,
  sinks: data.auditSinks.map((settings) => openSink(settings, { clock, hosts })),
};
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
const hints = followHints(host, data, { clock, random, log });
const sweeper = data.sweeps ? sweepRegularly(store, { clock, random, log }) : undefined;

serveControl(
  actorThreadControl(host, terms, {
    facts: () => ({
      ...store.facts(),
      dbOpenConnections: (store.facts()['dbOpenConnections'] ?? 0) + hints.open,
      hintsListening: hints.isListening ? 1 : 0,
    }),
    close: async () => {
      sweeper?.stop();
      await hints.close();
      await store.close();
      await evidence.close();
    },
  }),
);
