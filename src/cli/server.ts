/** One running server: the main thread's parts, and the order in which they start and stop. */
import { availableParallelism } from 'node:os';
import type { Remote } from 'comlink';
import type { SinkSettings } from '../actors/audit-export/sink-settings.js';
import { auditExportLease, CONTROLLER_LEASE } from '../actors/lease-names.js';
import type { ThreadEvidenceData } from '../actors/thread-evidence.js';
import { auditExportFamilies } from '../http/audit-export-families.js';
import type { AdminToken } from '../http/authorization.js';
import { auditFacts, evidenceFamilies } from '../http/evidence-families.js';
import type { FrontControl, FrontUpdate } from '../http/front-thread.js';
import { leaderStatus, leaseFamilies } from '../http/lease-families.js';
import { limiterFamilies } from '../http/limiter-families.js';
import { MetricsListener, type MetricsSnapshot } from '../http/metrics-exposition.js';
import { logFamilies, storeFamilies } from '../http/metrics-families.js';
import { policyFacts, policyFamilies, policyProblems } from '../http/policy-families.js';
import type { StatusDocument } from '../http/services.js';
import { delay, systemClock } from '../runtime/clock.js';
import type { LeaseView } from '../runtime/elector.js';
import { proveFreePort } from '../runtime/exclusive-port.js';
import { CodedError } from '../runtime/failure.js';
import type { Log } from '../runtime/log.js';
import { droppedLogLines } from '../runtime/pino-log.js';
import type { ThreadCounts } from '../runtime/placement.js';
import { systemRandom, uuidV7 } from '../runtime/random.js';
import type { SupervisedThread } from '../runtime/supervised-thread.js';
import { type PlacedActor, Supervisor } from '../runtime/supervisor.js';
import { type AdminTokensWatch, watchAdminTokens } from './admin-tokens.js';
import { readAuditSinks } from './audit-sinks-file.js';
import { ReadinessWatch } from './readiness.js';
import { type ReadyFacts, removeReadyFile, writeReadyFile } from './ready-file.js';
import { openServerEvidence } from './serve-evidence.js';
import { Leadership } from './serve-leadership.js';
import type { ServeOptions } from './serve-options.js';
import { openServerStorage, type ServerStorage } from './serve-storage.js';
import {
  actorThreadSpecs,
  frontThreadSpecs,
  serverThreadCounts,
  threadHeapMaxMib,
  usableMemoryBytes,
} from './serve-threads.js';
import { packageVersion } from './version.js';
import { welcomeText } from './welcome.js';

/** Purpose of the key under which idempotent bodies are recognised (HKDF label). */
const IDEMPOTENCY_KEY_LABEL = 'halos/idempotency-body/v1';
/** Part of the grace that is left for stopping threads after mailboxes have drained. */
export const STOP_RESERVE_MS = 1_000;
/** Without any grace left, a step still has the time in which a thread that is well answers. */
const STEP_WITHIN_MS = 100;

const clock = systemClock;
const random = systemRandom;

/** Started by `Server.start`, ended by `stop`; both are for the main thread only. */
export class Server {
  /** Resolves with the reason when the process must end. */
  readonly fatal: Promise<string>;
  private supervisor: Supervisor<FrontControl> | undefined;
  private storage: ServerStorage | undefined;
  private leadership: Leadership | undefined;
  private metrics: MetricsListener | undefined;
  private tokenWatch: AdminTokensWatch | undefined;
  private readiness: ReadinessWatch | undefined;
  private adminTokens: readonly AdminToken[] = [];
  private actors: readonly PlacedActor[] = [];
  private auditSinks: readonly SinkSettings[] = [];
  private hintsListening = false;
  private last: FrontUpdate;
  private reportFatal: (reason: string) => void = () => undefined;
  private readonly replica = `rep_${uuidV7(random, clock.wallMs())}`;
  private readonly version = packageVersion();

  private constructor(
    private readonly options: ServeOptions,
    private readonly log: Log,
  ) {
    this.fatal = new Promise((resolve) => {
      this.reportFatal = resolve;
    });
    this.last = {
      readiness: { ready: false, reasons: ['starting'] },
      status: this.statusOf([]),
      adminTokens: [],
    };
  }

  /** Resolves when the server listens; it is ready some moments later. Throws `CodedError`. */
  static async start(options: ServeOptions, log: Log): Promise<Server> {
    const server = new Server(options, log);
    try {
      await server.open();
    } catch (error) {
      await server.stop().catch(() => undefined);
      throw error;
    }
    return server;
  }

  /**
   * Unready first, then no new connections, then whatever is in flight, then the rest. No step
   * waits longer than the grace leaves: a thread that does not answer must not hold the others.
   */
  async stop(): Promise<void> {
    const endMs = clock.monotonicMs() + this.options.shutdownGraceMs;
    const leftMs = (): number => Math.max(0, endMs - clock.monotonicMs() - STOP_RESERVE_MS);
    const stepMs = (): number => Math.max(STEP_WITHIN_MS, leftMs());
    const within = (step: Promise<unknown> | undefined): Promise<unknown> =>
      Promise.race([step, delay(clock, stepMs())]);
    const { readyFile } = this.options;
    await within(this.readiness?.drain());
    // First of all, so that another replica leads while this one still answers what is in flight.
    await within(this.leadership?.stop());
    if (readyFile !== null) await removeReadyFile(readyFile);
    await within(this.supervisor?.eachFront(async (front) => front.stopAccepting()));
    const drain = async (front: Remote<FrontControl>): Promise<void> => front.drain(leftMs());
    await within(this.supervisor?.eachFront(drain, stepMs()));
    await within(this.supervisor?.drained());
    this.readiness?.stop();
    this.tokenWatch?.close();
    await Promise.race([this.closeRest(), delay(clock, STOP_RESERVE_MS + leftMs())]);
    this.log.info({}, 'Stopped.');
  }

  /** Whether a thread is left that an exit of the process would end, which would abort it. */
  get endless(): boolean {
    return this.supervisor?.endless === true;
  }

  private async closeRest(): Promise<void> {
    await this.supervisor?.stop();
    await this.storage?.close();
    await this.metrics?.close();
  }

  private async open(): Promise<void> {
    const { options, log } = this;
    const counts = serverThreadCounts(options, availableParallelism());
    const { replica, version } = this;
    const { auditSinksFile } = options;
    if (auditSinksFile !== null) this.auditSinks = await readAuditSinks(auditSinksFile, log);
    const evidence = await openServerEvidence(options, { id: replica, version }, random);
    const storage = await openServerStorage(options.backend, {
      replica: this.replica,
      actorThreads: counts.actors,
      clock,
      random,
      log,
      signingKeyPem: evidence.data.signingKeyPem,
      onDeath: (reason) => this.reportFatal(reason),
    });
    this.storage = storage;
    const leadership = new Leadership({
      leases: [CONTROLLER_LEASE, ...this.auditSinks.map(({ name }) => auditExportLease(name))],
      replica: this.replica,
      ttlMs: options.leaseTtlMs,
      store: storage.leases,
      clock,
      random,
      log,
    });
    this.leadership = leadership;
    this.tokenWatch = await watchAdminTokens({
      path: options.adminTokenFile,
      clock,
      random,
      log,
      onTokens: (tokens) => {
        this.adminTokens = tokens;
        void this.tellFronts({ ...this.last, adminTokens: tokens });
      },
    });
    // Before the other port is chosen, which is free again until the front threads have it: where
    // both are to be any free one, this one could be given the same.
    this.metrics = await openMetrics(options, log, () =>
      measured(this.supervisor, this.leadership?.inspect() ?? []),
    );
    const { host } = options.listen;
    const port = await proveFreePort(host, options.listen.port);
    const { secret } = evidence.keyring.derive(IDEMPOTENCY_KEY_LABEL);
    const supervisor = this.makeSupervisor(storage, leadership, evidence.data, counts, {
      port,
      secret,
    });
    this.supervisor = supervisor;
    await supervisor.start();
    leadership.start(supervisor);
    this.readiness = this.watchReadiness(storage, supervisor, {
      pid: process.pid,
      url: `http://${host.includes(':') ? `[${host}]` : host}:${port}`,
      metricsUrl: this.metrics.url,
      backend: options.backend.kind,
    });
  }

  private makeSupervisor(
    storage: ServerStorage,
    leadership: Leadership,
    evidence: ThreadEvidenceData,
    counts: ThreadCounts,
    { port, secret: hmacKey }: { readonly port: number; readonly secret: Uint8Array },
  ): Supervisor<FrontControl> {
    const { options, log, replica, version, auditSinks } = this;
    const { policyDir } = options;
    const front = {
      host: options.listen.host,
      port,
      trustedProxies: options.trustedProxies,
      hmacKey,
      replica,
      version,
      backend: options.backend.kind,
      logAllowed: options.logLevel === 'debug' || options.logLevel === 'trace',
    };
    const heapMaxMib = threadHeapMaxMib(usableMemoryBytes(), counts);
    const settings = { logLevel: options.logLevel, heapMaxMib };
    return new Supervisor<FrontControl>(
      actorThreadSpecs(counts.actors, storage, evidence, {
        ...settings,
        policyDir,
        auditSinks,
        terms: leadership.terms,
      }),
      frontThreadSpecs(counts.front, front, () => this.adminTokens, settings),
      {
        clock,
        random,
        log,
        onFatal: (reason) => this.reportFatal(reason),
        onFenced: (fence) => leadership.fenced(fence),
      },
      (started: SupervisedThread<FrontControl>) =>
        started.call((control) => control.update(this.last) as Promise<void>),
      () => leadership.held(),
    );
  }

  private watchReadiness(
    storage: ServerStorage,
    supervisor: Supervisor<FrontControl>,
    facts: ReadyFacts,
  ): ReadinessWatch {
    let announced = false;
    const watch = new ReadinessWatch(
      {
        probe: () => storage.probe(),
        problems: async () => {
          const { actors, store, problems } = await supervisor.inspect();
          this.actors = actors;
          this.hintsListening = (store['hintsListening'] ?? 0) > 0;
          return [...problems, ...policyProblems(actors)];
        },
        onLook: async (readiness) => {
          const { adminTokens } = this;
          await this.tellFronts({ readiness, status: this.statusOf(this.actors), adminTokens });
          if (!readiness.ready || announced) return;
          announced = true;
          await this.announce(facts);
        },
      },
      clock,
    );
    watch.start();
    return watch;
  }

  private async tellFronts(update: FrontUpdate): Promise<void> {
    this.last = update;
    await this.supervisor?.eachFront(async (front) => front.update(update));
  }

  private statusOf(actors: readonly PlacedActor[]): StatusDocument {
    const epoch = actors.map((actor) => actor.facts['epoch']).find((found) => found);
    return {
      replica: this.replica,
      time: new Date(clock.wallMs()).toISOString(),
      backend: this.options.backend.kind,
      epoch: typeof epoch === 'string' ? epoch : '',
      version: this.version,
      push: this.hintsListening ? 'listen' : 'poll',
      ...leaderStatus(this.leadership?.inspect() ?? [], clock.monotonicMs()),
      chain_lag_records: auditFacts(actors)?.lagRecords ?? null,
      policy: { digest: policyFacts(actors)?.digest ?? null },
      actors: actors.map(({ name, thread, state, readDepth, writeDepth, restarts, facts }) => ({
        name,
        thread,
        state,
        readDepth,
        writeDepth,
        restarts,
        ...facts,
      })),
    };
  }

  private async announce(facts: ReadyFacts): Promise<void> {
    const { options, log, version } = this;
    log.info({ ...facts }, 'Ready.');
    if (options.readyFile !== null) await writeReadyFile(options.readyFile, facts);
    if (options.dev && options.backend.kind === 'file') {
      const { dataDir } = options.backend;
      const { adminTokenFile } = options;
      process.stdout.write(welcomeText({ ...facts, version, dataDir, adminTokenFile }));
    }
  }
}

/** Throws `CodedError` `port_taken` when another process has the port. */
async function openMetrics(
  { metricsListen }: ServeOptions,
  log: Log,
  measure: () => Promise<MetricsSnapshot>,
): Promise<MetricsListener> {
  try {
    return await MetricsListener.open(metricsListen, measure, log);
  } catch (cause) {
    const where = `${metricsListen.host}:${metricsListen.port}`;
    throw new CodedError('port_taken', `Cannot serve metrics on ${where}.`, { cause });
  }
}

async function measured(
  supervisor: Supervisor<FrontControl> | undefined,
  leases: readonly LeaseView[],
): Promise<MetricsSnapshot> {
  if (supervisor === undefined) return { fronts: [], actors: [], others: [] };
  const { actors, store } = await supervisor.inspect();
  const fronts = await supervisor.eachFront(async (front) => front.snapshot());
  const log = logFamilies(droppedLogLines());
  const others = [...storeFamilies(store), ...limiterFamilies(actors)];
  const evidence = [...evidenceFamilies(actors), ...policyFamilies(actors)];
  const led = [...leaseFamilies(leases), ...auditExportFamilies(actors)];
  return { fronts, actors, others: [...others, ...evidence, ...led, ...log] };
}
