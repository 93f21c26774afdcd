/**
 * Starts the threads of a process, gives every front thread a direct port to every actor thread,
 * restarts what dies one for one, and stops everything in order.
 */
import type { Remote } from 'comlink';
import type { ActorSnapshot } from './actor-metrics.js';
import { delay } from './clock.js';
import { CodedError, describe } from './failure.js';
import type { Fence } from './lease.js';
import {
  SupervisedThread,
  type SupervisionEnvironment,
  type ThreadSpec,
} from './supervised-thread.js';
import {
  type ActorThreadControl,
  type ActorThreadSnapshot,
  type FrontThreadControl,
  portPair,
} from './thread-control.js';

/** A thread of actors, and which ones it hosts: every front thread is told. */
export interface ActorThreadSpec extends ThreadSpec {
  readonly actors: readonly string[];
}

/** One actor's snapshot and the thread it runs on. */
export interface PlacedActor extends ActorSnapshot {
  readonly thread: string;
}

/** The whole process at one moment, for `/readyz`, `/metrics` and the status page. */
export interface Inspection {
  readonly actors: readonly PlacedActor[];
  readonly store: Readonly<Record<string, number>>;
  /** Threads that are down or silent, and actors that are not running; empty when all is well. */
  readonly problems: readonly string[];
}

interface ActorThread {
  readonly spec: ActorThreadSpec;
  readonly thread: SupervisedThread<ActorThreadControl>;
}

/** A snapshot that takes longer says that the thread is stuck. */
const SNAPSHOT_TIMEOUT_MS = 1_000;
/** The same for what front threads are told, unless the caller knows that it takes longer. */
const FRONT_TIMEOUT_MS = 1_000;

/** The threads of one process. `stop` may be called at any time: before `start`, and again. */
export class Supervisor<FrontControl extends FrontThreadControl> {
  private readonly actorThreads: ActorThread[];
  private readonly fronts: SupervisedThread<FrontControl>[];
  private stopping = false;

  constructor(
    actorSpecs: readonly ActorThreadSpec[],
    frontSpecs: readonly ThreadSpec[],
    private readonly environment: SupervisionEnvironment,
    /** Called when a front thread (re)started, before it opens: to hand it what it must know. */
    private readonly onFrontStarted: (front: SupervisedThread<FrontControl>) => Promise<void>,
    /** The terms that hold now: what a thread of actors that (re)started is told. */
    private readonly terms: () => readonly Fence[] = () => [],
  ) {
    this.actorThreads = actorSpecs.map((spec) => this.actorThread(spec));
    this.fronts = frontSpecs.map((spec) => this.frontThread(spec));
  }

  /** Starts all threads. Views go on being opened in the background: see `inspect`. */
  async start(): Promise<void> {
    const threads = [...this.actorThreads.map(({ thread }) => thread), ...this.fronts];
    await Promise.all(threads.map((thread) => thread.start()));
  }

  /**
   * Calls every running front thread. One that dies meanwhile, or has not answered within
   * `withinMs`, is left out: a stuck thread must not hold what all are told.
   */
  async eachFront<Result>(
    use: (control: Remote<FrontControl>) => Promise<Result>,
    withinMs = FRONT_TIMEOUT_MS,
  ): Promise<Result[]> {
    const running = this.fronts.filter((front) => front.state === 'running');
    const late = delay(this.environment.clock, withinMs).then(() => {
      throw new CodedError('deadline_exceeded', 'A front thread does not answer.');
    });
    late.catch(() => undefined);
    const results = await Promise.allSettled(
      running.map((front) => Promise.race([front.call(use), late])),
    );
    return results.flatMap((result) => (result.status === 'fulfilled' ? [result.value] : []));
  }

  /** Tells every thread of actors; one that is down is told at its start (`terms`). */
  beginTerm(fence: Fence): void {
    for (const { spec, thread } of this.actorThreads) {
      if (thread.state === 'running') this.tellTerm(spec.name, thread, fence);
    }
  }

  /** Resolves when no thread does anything under that term; one that dies has stopped as well. */
  async endTerm(fence: Fence): Promise<void> {
    const ends = this.actorThreads.map(({ thread }) =>
      thread.call((control) => control.endTerm(fence) as Promise<void>).catch(() => undefined),
    );
    await Promise.all(ends);
  }

  private tellTerm(name: string, thread: SupervisedThread<ActorThreadControl>, fence: Fence): void {
    thread
      .call((control) => control.beginTerm(fence) as Promise<void>)
      .catch((error: unknown) => this.report(name, error));
  }

  /** All actors as they are now, the stores' facts added up, and what is wrong, as phrases. */
  async inspect(): Promise<Inspection> {
    const actors: PlacedActor[] = [];
    const store: Record<string, number> = {};
    const problems = this.fronts
      .filter((front) => front.state !== 'running')
      .map((front) => `thread ${front.spec.name} is ${front.state}`);
    await Promise.all(
      this.actorThreads.map(async ({ spec, thread }) => {
        const found = await this.snapshotOf(thread);
        if (!found) problems.push(`thread ${spec.name} does not answer`);
        actors.push(...(found?.actors ?? []).map((actor) => ({ ...actor, thread: spec.name })));
        for (const [name, value] of Object.entries(found?.store ?? {})) {
          store[name] = (store[name] ?? 0) + value;
        }
      }),
    );
    for (const { name, state } of actors) {
      if (state !== 'running') problems.push(`actor ${name} is ${state}`);
    }
    return { actors, store, problems };
  }

  private snapshotOf(
    thread: SupervisedThread<ActorThreadControl>,
  ): Promise<ActorThreadSnapshot | undefined> {
    const late = delay(this.environment.clock, SNAPSHOT_TIMEOUT_MS).then(() => undefined);
    const asked = thread.call(async (control) => control.snapshots());
    return Promise.race([asked.catch(() => undefined), late]);
  }

  /** Resolves when no mailbox holds anything; threads that are down hold nothing. */
  async drained(): Promise<void> {
    await Promise.all(
      this.actorThreads.map(({ thread }) =>
        thread.call((control) => control.drained() as Promise<void>).catch(() => undefined),
      ),
    );
  }

  /** Whether a thread is left that must end by itself, such as one that hung at the stop. */
  get endless(): boolean {
    return this.fronts.some(({ spec, alive }) => spec.endsItself && alive);
  }

  /** Stops the front threads first, so that nobody asks, then the actors. Idempotent. */
  async stop(): Promise<void> {
    this.stopping = true;
    await Promise.all(this.fronts.map((front) => front.stop()));
    await Promise.all(this.actorThreads.map(({ thread }) => thread.stop()));
  }

  private actorThread(spec: ActorThreadSpec): ActorThread {
    const own: ActorThread = {
      spec,
      thread: new SupervisedThread<ActorThreadControl>(
        spec,
        this.environment,
        () => this.actorThreadStarted(own),
        () => this.actorThreadDied(own),
      ),
    };
    return own;
  }

  private actorThreadStarted(own: ActorThread): void {
    for (const front of this.fronts) if (front.state === 'running') this.connect(front, own);
    for (const fence of this.terms()) this.tellTerm(own.spec.name, own.thread, fence);
    own.thread
      .call((control) => control.open() as Promise<void>)
      .catch((error: unknown) => this.report(own.spec.name, error));
  }

  private actorThreadDied(own: ActorThread): void {
    if (this.stopping) return;
    void this.eachFront(async (control) => control.detach(own.spec.name));
  }

  private frontThread(spec: ThreadSpec): SupervisedThread<FrontControl> {
    const front: SupervisedThread<FrontControl> = new SupervisedThread<FrontControl>(
      spec,
      this.environment,
      () => void this.frontStarted(front),
      () => undefined,
    );
    return front;
  }

  private async frontStarted(front: SupervisedThread<FrontControl>): Promise<void> {
    try {
      for (const own of this.actorThreads) {
        if (own.thread.state === 'running') this.connect(front, own);
      }
      await this.onFrontStarted(front);
      await front.call((control) => control.open() as Promise<void>);
    } catch (error) {
      this.report(front.spec.name, error);
      if (!this.stopping) this.environment.onFatal(`The thread ${front.spec.name} cannot open.`);
    }
  }

  private connect(front: SupervisedThread<FrontControl>, own: ActorThread): void {
    const ports = portPair();
    const { name, actors } = own.spec;
    const attached = [
      own.thread.call(async (control) =>
        control.attach(SupervisedThread.handOver(ports.actors) as never),
      ),
      front.call(async (control) =>
        control.attach(name, actors as never, SupervisedThread.handOver(ports.front) as never),
      ),
    ];
    for (const done of attached) done.catch((error: unknown) => this.report(name, error));
  }

  private report(thread: string, error: unknown): void {
    if (this.stopping) return;
    this.environment.log.warn({ thread, error: describe(error) }, 'A thread could not be told.');
  }
}
