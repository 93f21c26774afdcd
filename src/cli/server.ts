/** One running server: the main thread's parts, and the order in which they start and stop. */
import { availableParallelism } from 'node:os';
import type { AdminToken } from '../http/authorization.js';
import type { FrontControl, FrontUpdate } from '../http/front-thread.js';
import { MetricsListener, type MetricsSnapshot } from '../http/metrics-exposition.js';
import { storeFamilies } from '../http/metrics-families.js';
import type { Readiness, StatusDocument } from '../http/services.js';
import { delay, systemClock } from '../runtime/clock.js';
import { proveFreePort } from '../runtime/exclusive-port.js';
import type { Log } from '../runtime/log.js';
import { defaultThreadCounts } from '../runtime/placement.js';
import { systemRandom, uuidV7 } from '../runtime/random.js';
import type { SupervisedThread } from '../runtime/supervised-thread.js';
import { type PlacedActor, Supervisor } from '../runtime/supervisor.js';
import { type AdminTokensWatch, watchAdminTokens } from './admin-tokens.js';
import { ReadinessWatch } from './readiness.js';
import { type ReadyFacts, removeReadyFile, writeReadyFile } from './ready-file.js';
import type { ServeOptions } from './serve-options.js';
import { openServerStorage, type ServerStorage } from './serve-storage.js';
import { actorThreadSpecs, frontThreadSpecs } from './serve-threads.js';
import { openSigningKeyFile } from './signing-key-file.js';
import { packageVersion } from './version.js';
import { welcomeText } from './welcome.js';

/** Purpose of the key under which idempotent bodies are recognised (HKDF label). */
const IDEMPOTENCY_KEY_LABEL = 'halos/idempotency-body/v1';
/** Part of the grace that is left for stopping threads after mailboxes have drained. */
const STOP_RESERVE_MS = 1_000;

const clock = systemClock;
const random = systemRandom;

export class Server {
  /** Resolves with the reason when the process must end. */
  readonly fatal: Promise<string>;
  private supervisor!: Supervisor<FrontControl>;
  private storage!: ServerStorage;
  private metrics!: MetricsListener;
  private tokenWatch: AdminTokensWatch | undefined;
  private readiness!: ReadinessWatch;
  private adminTokens: readonly AdminToken[] = [];
  private actors: readonly PlacedActor[] = [];
  private last: FrontUpdate;
  private announced = false;
  private url = '';
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

  /** Unready first, then no new connections, then whatever is in flight, then the rest. */
  async stop(): Promise<void> {
    const endMs = clock.monotonicMs() + this.options.shutdownGraceMs;
    const leftMs = (): number => Math.max(0, endMs - clock.monotonicMs() - STOP_RESERVE_MS);
    const { readyFile } = this.options;
    await this.readiness?.drain();
    if (readyFile !== null) await removeReadyFile(readyFile);
    await this.supervisor?.eachFront(async (front) => front.stopAccepting());
    await this.supervisor?.eachFront(async (front) => front.drain(leftMs()));
    await Promise.race([this.supervisor?.drained(), delay(clock, leftMs())]);
    this.readiness?.stop();
    this.tokenWatch?.close();
    await Promise.race([this.closeRest(), delay(clock, STOP_RESERVE_MS + leftMs())]);
    this.log.info({}, 'Stopped.');
  }

  private async closeRest(): Promise<void> {
    await this.supervisor?.stop();
    await this.storage?.close();
    await this.metrics?.close();
  }

  private async open(): Promise<void> {
    const { options, log } = this;
    const counts = this.threadCounts();
    this.storage = await openServerStorage(options.backend, {
      replica: this.replica,
      actorThreads: counts.actors,
      clock,
      log,
      onDeath: (reason) => this.reportFatal(reason),
    });
    const { keyring } = await openSigningKeyFile(
      options.signingKeyFile,
      options.makeSigningKey,
      random,
    );
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
    const { host } = options.listen;
    const port = await proveFreePort(host, options.listen.port);
    this.url = `http://${host.includes(':') ? `[${host}]` : host}:${port}`;
    this.metrics = await MetricsListener.open(options.metricsListen, () => this.measured());
    this.supervisor = this.makeSupervisor(
      counts,
      port,
      keyring.derive(IDEMPOTENCY_KEY_LABEL).secret,
    );
    await this.supervisor.start();
    this.watchReadiness();
  }

  private threadCounts(): { front: number; actors: number } {
    const fallback = defaultThreadCounts(availableParallelism());
    return {
      front: this.options.frontThreads ?? fallback.front,
      actors: this.options.actorThreads ?? fallback.actors,
    };
  }

  private makeSupervisor(
    counts: { front: number; actors: number },
    port: number,
    hmacKey: Uint8Array,
  ): Supervisor<FrontControl> {
    const { options, log, replica, version } = this;
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
    return new Supervisor<FrontControl>(
      actorThreadSpecs(counts.actors, this.storage, options.logLevel),
      frontThreadSpecs(counts.front, front, () => this.adminTokens, options.logLevel),
      { clock, random, log, onFatal: (reason) => this.reportFatal(reason) },
      (started: SupervisedThread<FrontControl>) =>
        started.call((control) => control.update(this.last) as Promise<void>),
    );
  }

  private watchReadiness(): void {
    this.readiness = new ReadinessWatch(
      {
        probe: () => this.storage.probe(),
        problems: async () => {
          const { actors, problems } = await this.supervisor.inspect();
          this.actors = actors;
          return problems;
        },
        onLook: (readiness) => this.looked(readiness),
      },
      clock,
    );
    this.readiness.start();
  }

  private async looked(readiness: Readiness): Promise<void> {
    await this.tellFronts({
      readiness,
      status: this.statusOf(this.actors),
      adminTokens: this.adminTokens,
    });
    if (readiness.ready && !this.announced) await this.announce();
  }

  private async tellFronts(update: FrontUpdate): Promise<void> {
    this.last = update;
    await this.supervisor?.eachFront(async (front) => front.update(update));
  }

  private async measured(): Promise<MetricsSnapshot> {
    const { actors, store } = await this.supervisor.inspect();
    const fronts = await this.supervisor.eachFront(async (front) => front.snapshot());
    return { fronts, actors, others: storeFamilies(store) };
  }

  private statusOf(actors: readonly PlacedActor[]): StatusDocument {
    const epoch = actors.map((actor) => actor.facts['epoch']).find((found) => found);
    return {
      replica: this.replica,
      backend: this.options.backend.kind,
      epoch: typeof epoch === 'string' ? epoch : '',
      version: this.version,
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

  private async announce(): Promise<void> {
    this.announced = true;
    const { options, log, url, version } = this;
    const metricsUrl = this.metrics.url;
    const facts: ReadyFacts = { pid: process.pid, url, metricsUrl, backend: options.backend.kind };
    log.info({ ...facts }, 'Ready.');
    if (options.readyFile !== null) await writeReadyFile(options.readyFile, facts);
    if (options.dev && options.backend.kind === 'file') {
      const { dataDir } = options.backend;
      const { adminTokenFile } = options;
      process.stdout.write(welcomeText({ version, url, metricsUrl, dataDir, adminTokenFile }));
    }
  }
}
