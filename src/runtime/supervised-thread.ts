/**
 * One worker thread under supervision: started, called through comlink, started again when it dies.
 *
 * States: starting → running → (death) restarting → starting …; stopping → stopped is final.
 */
import { once } from 'node:events';
import { MessageChannel, type TransferListItem, Worker } from 'node:worker_threads';
import { type Remote, releaseProxy, transfer, wrap } from 'comlink';
import nodeEndpoint from 'comlink/dist/esm/node-adapter.mjs';
import { type Clock, delay, repeat } from './clock.js';
import { CodedError, describe } from './failure.js';
import type { Fence } from './lease.js';
import type { Log } from './log.js';
import type { Random } from './random.js';
import { backoffMs, RESTART_BOUNDS, RestartIntensity } from './restart-policy.js';
import type { PingedControl, ThreadControl, ThreadEvent, ThreadStart } from './thread-control.js';

/** How one thread is started, at first and after each death. */
export interface ThreadSpec {
  readonly name: string;
  /** The module that the thread runs; it calls `serveControl`. */
  readonly entry: URL;
  /** Called at each start: fresh data and fresh ports. */
  readonly data: () => { data: unknown; transferList?: readonly TransferListItem[] };
  /** A thread that holds native handles ends itself; it is never terminated. */
  readonly endsItself: boolean;
  /** Limit of the heap in MiB, past which the thread dies. Without it, Node's own. */
  readonly heapMaxMib?: number;
}

/** What all supervised threads of a process share. */
export interface SupervisionEnvironment {
  readonly clock: Clock;
  readonly random: Random;
  readonly log: Log;
  /** The process should end: too many deaths, or an actor that crashes again and again. */
  readonly onFatal: (reason: string) => void;
  /** A thread was refused a write under a term. */
  readonly onFenced?: (fence: Fence) => void;
  /** Default: `ANSWER_BOUNDS`. */
  readonly answers?: AnswerBounds;
}

/** When a thread that does not answer is taken for stuck. */
export interface AnswerBounds {
  /** How long a thread may take to load its modules. */
  readonly loadWithinMs: number;
  /** How often a thread that runs is asked for a sign of life. */
  readonly pingPeriodMs: number;
  /** Periods in a row without one. Counted, not timed: while the process is stopped none passes. */
  readonly pingsMissedMax: number;
}

type ThreadState = 'stopped' | 'starting' | 'running' | 'restarting' | 'stopping';

/**
 * Modules load within half a minute on the most loaded machine. Ten seconds without an answer are
 * far more than a collection of a large heap or a page of a replay takes.
 */
const ANSWER_BOUNDS: AnswerBounds = {
  loadWithinMs: 30_000,
  pingPeriodMs: 2_000,
  pingsMissedMax: 5,
};
/** How long a thread that was closed may take to say so, and then to end. */
const EXIT_TIMEOUT_MS = 2_000;

/**
 * One thread that is kept running. After a death it starts again after a pause that grows; more
 * than `RESTART_BOUNDS` allows is `onFatal`, since a restart does not help then.
 */
export class SupervisedThread<Control extends ThreadControl> {
  /** Only this class changes it. */
  state: ThreadState = 'stopped';
  /** Whether a worker of it is there, in whatever state it is. */
  alive = false;
  private worker: Worker | undefined;
  private remote: Remote<Control> | undefined;
  private gone: Promise<never> | undefined;
  private exited: Promise<unknown> = Promise.resolve();
  private readonly intensity = new RestartIntensity(RESTART_BOUNDS);

  constructor(
    readonly spec: ThreadSpec,
    private readonly environment: SupervisionEnvironment,
    /** Called after each start, once the control surface answers. */
    private readonly onStarted: () => void,
    /** Called at each death, before any restart. */
    private readonly onDied: () => void,
  ) {}

  /**
   * Starts the thread; resolves when its control surface has answered, which is after its modules
   * have loaded. Rejects if it dies before, or does not answer in time.
   */
  async start(): Promise<void> {
    this.state = 'starting';
    const { name, entry, heapMaxMib } = this.spec;
    const { data, transferList = [] } = this.spec.data();
    const { port1, port2 } = new MessageChannel();
    port1.on('message', (event: ThreadEvent) => this.received(event));
    port1.unref();
    const start: ThreadStart<unknown> = { name, events: port2, data };
    const worker = new Worker(entry, {
      workerData: start,
      transferList: [port2, ...transferList],
      name,
      ...(heapMaxMib === undefined
        ? {}
        : { resourceLimits: { maxOldGenerationSizeMb: heapMaxMib } }),
    });
    this.worker = worker;
    this.alive = true;
    this.exited = once(worker, 'exit').catch(() => undefined);
    let cause: unknown;
    worker.on('error', (error) => {
      cause = error;
    });
    this.gone = new Promise((_, reject) => {
      worker.once('exit', (code) => {
        reject(
          new CodedError('actor_restarted', `Thread ${name} ended with code ${code}.`, { cause }),
        );
        port1.close();
        if (this.worker === worker) this.alive = false;
        if (this.worker === worker) this.died(code, cause);
      });
    });
    this.gone.catch(() => undefined);
    this.remote = wrap<Control>(nodeEndpoint(worker));
    await Promise.race([this.ping(), this.gone, this.loadTimeout()]);
    if (!this.is('starting')) return;
    this.state = 'running';
    this.watch(worker);
    this.onStarted();
  }

  /** Calls the control surface; rejects if the thread ends first. */
  call<Result>(use: (control: Remote<Control>) => Promise<Result>): Promise<Result> {
    if (!this.remote || !this.gone) {
      return Promise.reject(new CodedError('actor_restarted', `${this.spec.name} is not running.`));
    }
    return Promise.race([use(this.remote), this.gone]);
  }

  /** Hands a value over together with what it owns. */
  static handOver<Value extends TransferListItem>(value: Value): Value {
    return transfer(value as never, [value as never]) as Value;
  }

  /** Closes and ends the thread. Idempotent, and safe before `start`. */
  async stop(): Promise<void> {
    if (this.state === 'stopped' || this.state === 'stopping') {
      await this.exited;
      return;
    }
    this.state = 'stopping';
    const closed = this.call((control) => control.close() as Promise<void>);
    await this.inTime(closed.catch(() => undefined));
    this.remote?.[releaseProxy]();
    const ended = this.spec.endsItself ? this.exited : this.worker?.terminate();
    const inTime = await this.inTime(ended ?? this.exited);
    if (!inTime) this.environment.log.error({ thread: this.spec.name }, 'A thread did not end.');
    this.state = 'stopped';
  }

  private received(event: ThreadEvent): void {
    if (event.type === 'fenced') {
      this.environment.onFenced?.(event.fence);
      return;
    }
    this.environment.log.error({ actor: event.actor, error: event.error }, 'Restarts exhausted.');
    this.environment.onFatal(`The actor ${event.actor} crashed too often.`);
  }

  private died(code: number, cause: unknown): void {
    const { clock, log, onFatal } = this.environment;
    if (this.state === 'stopping' || this.state === 'stopped') return;
    const error = cause === undefined ? `exit code ${code}` : describe(cause);
    log.error({ thread: this.spec.name, error }, 'A thread died.');
    this.state = 'restarting';
    this.onDied();
    const crashes = this.intensity.crashed(clock.monotonicMs());
    if (crashes === 'exhausted') onFatal(`The thread ${this.spec.name} died too often.`);
    else void this.restart(crashes);
  }

  private async restart(crashes: number): Promise<void> {
    const { clock, random } = this.environment;
    await delay(clock, backoffMs(crashes, RESTART_BOUNDS, random));
    if (this.state !== 'restarting') return;
    // A death while starting comes back here through `died`.
    await this.start().catch(() => {
      if (this.is('starting')) void this.stuck();
    });
  }

  /** Asks a thread that runs for a sign of life, again and again, as long as it is this one. */
  private watch(worker: Worker): void {
    const { clock } = this.environment;
    const { pingPeriodMs, pingsMissedMax } = this.bounds;
    let missed = 0;
    let waiting = false;
    const looking = repeat(clock, pingPeriodMs, () => {
      if (this.worker !== worker || !this.is('running')) return looking.cancel();
      if (!waiting) {
        waiting = true;
        missed = 0;
        const answered = (): void => {
          waiting = false;
        };
        this.ping().then(answered, answered);
        return;
      }
      missed += 1;
      if (missed < pingsMissedMax) return;
      looking.cancel();
      void this.stuck();
    });
  }

  /**
   * A thread that does not answer is made to die and starts again like any other that died. One
   * that holds native handles cannot be: the process has to go.
   */
  private async stuck(): Promise<void> {
    const { log, onFatal } = this.environment;
    log.error({ thread: this.spec.name }, 'A thread does not answer.');
    const died = !this.spec.endsItself && (await this.inTime(this.worker?.terminate()));
    if (!died) onFatal(`The thread ${this.spec.name} does not answer.`);
  }

  /** Resolves when the thread has loaded and its loop turns. */
  private async ping(): Promise<void> {
    // Every control surface has it: `serveControl` adds it.
    await (this.remote as unknown as Remote<PingedControl> | undefined)?.ping();
  }

  /** Whether it was done within `EXIT_TIMEOUT_MS`. */
  private inTime(work: Promise<unknown> | undefined): Promise<boolean> {
    const late = delay(this.environment.clock, EXIT_TIMEOUT_MS).then(() => false);
    return Promise.race([Promise.resolve(work).then(() => true), late]);
  }

  private async loadTimeout(): Promise<never> {
    await delay(this.environment.clock, this.bounds.loadWithinMs);
    throw new CodedError('actor_restarted', `Thread ${this.spec.name} did not load in time.`);
  }

  private get bounds(): AnswerBounds {
    return this.environment.answers ?? ANSWER_BOUNDS;
  }

  /** Asked after a wait, in which the state may have changed. */
  private is(state: ThreadState): boolean {
    return this.state === state;
  }
}
