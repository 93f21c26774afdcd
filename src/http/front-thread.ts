/** Entry of a front thread: one FrontServer and its channels to the actor threads. */
import type { MessagePort } from 'node:worker_threads';
import { AUDIT_CHAINER_ACTOR, AuditClient } from '../actors/audit-chainer/client.js';
import { AUDIT_EXPORT_ACTOR, AuditExportClient } from '../actors/audit-export/client.js';
import { isActorWrite } from '../actors/catalogue.js';
import { DECISIONS_ACTOR, DecisionsClient } from '../actors/decisions/client.js';
import { DEVICES_ACTOR, DevicesClient } from '../actors/devices/client.js';
import { GATEWAYS_ACTOR, GatewaysClient } from '../actors/gateways/client.js';
import { KILL_LIST_ACTOR, KillListClient } from '../actors/kill-list/client.js';
import { LEADER_ACTOR, LeaderClient } from '../actors/leader/client.js';
import { LIMITER_ACTOR, LimiterClient } from '../actors/limiter/client.js';
import { ActorChannel } from '../runtime/actor-channel.js';
import { type ActorRef, refuseLater } from '../runtime/ask.js';
import { repeat, systemClock } from '../runtime/clock.js';
import { openCpuPool } from '../runtime/cpu-pool.js';
import { failure } from '../runtime/failure.js';
import { openLog } from '../runtime/pino-log.js';
import type { FromActorThread } from '../runtime/protocol.js';
import { systemRandom } from '../runtime/random.js';
import { type FrontThreadControl, serveControl, threadStart } from '../runtime/thread-control.js';
import type { AdminToken } from './authorization.js';
import type { VerifyProof } from './cpu-tasks.js';
import type { FrontSnapshot } from './front-metrics.js';
import { FrontServer } from './front-server.js';
import type { FrontOptions, Readiness, StatusDocument } from './services.js';

/** What the supervisor's process gives to a front thread. */
export interface FrontThreadData {
  readonly options: FrontOptions;
  readonly logLevel: string;
}

/** What a front thread is told every half second, and whenever it changes. */
export interface FrontUpdate {
  readonly readiness: Readiness;
  readonly status: StatusDocument;
  readonly adminTokens: readonly AdminToken[];
}

/** What the main thread tells a front thread, beside what the supervisor does. */
export interface FrontControl extends FrontThreadControl {
  update(update: FrontUpdate): void;
  snapshot(): FrontSnapshot;
  stopAccepting(): void;
  /** Resolves when every request was answered, at the latest after that time. */
  drain(withinMs: number): Promise<void>;
}

/** Without news for so long the main thread is stuck, and what was ready may not be any more. */
const UPDATE_AGE_MAX_MS = 3_000;
/** Proofs are verified at the rate of enrolments: one worker, and only while there are any. */
const PROOF_WORKERS_MAX = 1;

const { name, data } = threadStart<FrontThreadData>();
const log = openLog(name, data.logLevel);
const channels = new Map<string, ActorChannel>();
const hosts = new Map<string, ActorChannel>();
const pool = openCpuPool(new URL('./cpu-tasks.js', import.meta.url), PROOF_WORKERS_MAX);
let status: StatusDocument | undefined;
let updatedAtMs = systemClock.monotonicMs();

/** The actor wherever it runs now; until its thread is attached it is being started. */
function placedRef(actor: string): ActorRef {
  return {
    actor,
    ask: (kind, payload, sink, options) => {
      const channel = hosts.get(actor);
      if (channel) return channel.ask(actor, kind, payload, sink, options);
      const starting = failure('actor_restarted', 'The actor is being started.', 1);
      refuseLater(systemClock, sink, starting);
    },
  };
}

const server = new FrontServer(data.options, {
  devices: new DevicesClient(placedRef(DEVICES_ACTOR)),
  kills: new KillListClient(placedRef(KILL_LIST_ACTOR)),
  gateways: new GatewaysClient(placedRef(GATEWAYS_ACTOR)),
  audit: new AuditClient(placedRef(AUDIT_CHAINER_ACTOR)),
  auditExport: new AuditExportClient(placedRef(AUDIT_EXPORT_ACTOR)),
  leader: new LeaderClient(placedRef(LEADER_ACTOR)),
  decisions: new DecisionsClient(placedRef(DECISIONS_ACTOR)),
  limiter: new LimiterClient(placedRef(LIMITER_ACTOR)),
  verifyProof: (publicKey, message, signature) =>
    pool.run('verifyProof', { publicKey, message, signature } satisfies VerifyProof),
  sendAsks: () => {
    for (const channel of channels.values()) channel.sendNow();
  },
  status: async () => status ?? startingStatus(),
  clock: systemClock,
  random: systemRandom,
  log,
});

function startingStatus(): StatusDocument {
  const { replica, backend, version } = data.options;
  return { replica, backend, version, epoch: '', actors: [] };
}

function openChannel(): ActorChannel {
  return new ActorChannel(systemClock, isActorWrite, (actor, news) => server.hear(actor, news));
}

function watchUpdates(): void {
  repeat(systemClock, UPDATE_AGE_MAX_MS / 3, () => {
    if (systemClock.monotonicMs() - updatedAtMs <= UPDATE_AGE_MAX_MS) return;
    server.setReadiness({ ready: false, reasons: ['the main thread does not answer'] });
  });
}

const control: FrontControl = {
  open: async () => {
    await server.listen();
    watchUpdates();
  },
  attach: (thread: string, actors: readonly string[], port: MessagePort) => {
    const channel = channels.get(thread) ?? openChannel();
    channels.set(thread, channel);
    port.on('message', (message: FromActorThread) => channel.receive(message));
    channel.attach(port);
    for (const actor of actors) hosts.set(actor, channel);
  },
  detach: (thread: string) => channels.get(thread)?.detach(),
  update: (update: FrontUpdate) => {
    updatedAtMs = systemClock.monotonicMs();
    status = update.status;
    server.setReadiness(update.readiness);
    server.setAdminTokens(update.adminTokens);
  },
  snapshot: () => server.snapshot(),
  stopAccepting: () => server.stopAccepting(),
  drain: (withinMs: number) => server.drain(withinMs),
  close: async () => {
    server.close();
    for (const channel of channels.values()) channel.detach();
    await pool.close();
    // After the answer to this call has left: the thread is never terminated from outside.
    systemClock.schedule(() => process.exit(0), EXIT_DELAY_MS);
  },
};

/** Enough for the answer of `close` to reach the supervisor. */
const EXIT_DELAY_MS = 10;

// An app that is still open when its thread ends would abort the whole process.
process.on('exit', () => server.close());
serveControl(control);
