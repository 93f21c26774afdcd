/**
 * One replica: a front thread and an actor thread with the production actors, joined by the
 * simulated bus, on a connection of their own to the store. It can be stopped, stalled and killed.
 */
import { AUDIT_CHAINER_ACTOR } from '../../src/actors/audit-chainer/client.js';
import { AUDIT_EXPORT_ACTOR } from '../../src/actors/audit-export/client.js';
import {
  ACTOR_NAMES,
  type ActorEnvironment,
  actorDefinition,
  isActorWrite,
} from '../../src/actors/catalogue.js';
import { DEVICES_ACTOR } from '../../src/actors/devices/client.js';
import { LEADER_ACTOR } from '../../src/actors/leader/client.js';
import type { ActorDefinition, ActorHandlers } from '../../src/runtime/actor.js';
import { ActorChannel } from '../../src/runtime/actor-channel.js';
import { ActorHost } from '../../src/runtime/actor-host.js';
import { silentLog } from '../../src/runtime/log.js';
import { linkOverBus, type SimulatedLink } from '../../src/runtime/simulated-bus.js';
import { type Answer, type Asked, Door } from './door.js';
import { SimulatedStore } from './simulated-store.js';
import { ThreadClock } from './thread-clock.js';
import type { DevicesView } from './view-check.js';
import type { World } from './world.js';

/**
 * The chainer is left out: it signs on a pool of real threads, and has rounds of its own with real
 * processes. What the others enqueue stays in the model's outbox, and so nothing is exported.
 */
const LEFT_OUT = [AUDIT_CHAINER_ACTOR, AUDIT_EXPORT_ACTOR, LEADER_ACTOR];
const SIMULATED_ACTORS = ACTOR_NAMES.filter((name) => !LEFT_OUT.includes(name));
/** Bugs in one actor that the simulation makes at most: five in a minute end a process. */
const BUGS_MAX = 3;

interface ActorThread {
  readonly clock: ThreadClock;
  readonly host: ActorHost;
  readonly store: SimulatedStore;
  readonly link: SimulatedLink;
  /** The newest incarnation of each actor, by its name. */
  readonly incarnations: Map<string, ActorHandlers>;
}

export class SimulatedReplica {
  private front: ThreadClock;
  private channel: ActorChannel;
  private door: Door;
  private actors: ActorThread;
  private readonly outstanding = new Set<(answer: Answer) => void>();
  private heldBeforeMs = 0;
  private bugs = 0;
  private actorThreads = 0;

  constructor(
    readonly name: string,
    private readonly world: World,
  ) {
    this.front = new ThreadClock(world.clock);
    this.channel = new ActorChannel(this.front, isActorWrite);
    this.door = new Door(this.channel, this.front);
    this.actors = this.startActors();
  }

  /**
   * Asks as a client over the network does; always answered, with `connection_lost` if the process
   * dies.
   */
  ask(asked: Asked): Promise<Answer> {
    const { front, door, outstanding } = this;
    return new Promise((resolve) => {
      const settle = (answer: Answer): void => {
        if (outstanding.delete(settle)) resolve(answer);
      };
      outstanding.add(settle);
      front.schedule(() => door.pass(asked, settle), 0);
    });
  }

  /** Counts up with every actor thread that it starts. */
  get actorThread(): number {
    return this.actorThreads;
  }

  /** For how long its front thread could do nothing, up to now. */
  heldMs(): number {
    return this.heldBeforeMs + this.front.heldMs();
  }

  /** SIGSTOP now, SIGCONT after that time. */
  pause(forMs: number): void {
    this.world.trace.note(`${this.name} is stopped for ${forMs.toFixed(0)} ms`);
    this.holdFor([this.front, this.actors.clock], forMs);
  }

  /** One thread is busy with something else. */
  stall(thread: 'front' | 'actors', forMs: number): void {
    this.world.trace.note(`${this.name} stalls its ${thread} thread for ${forMs.toFixed(0)} ms`);
    this.holdFor([thread === 'front' ? this.front : this.actors.clock], forMs);
  }

  get paused(): boolean {
    return this.front.held && this.actors.clock.held;
  }

  /** Kill -9 and a new process. */
  crash(): void {
    this.world.trace.note(`${this.name} is killed and starts anew`);
    for (const settle of [...this.outstanding]) settle({ code: 'connection_lost' });
    this.heldBeforeMs += this.front.heldMs();
    this.front.die();
    this.dropActors();
    this.front = new ThreadClock(this.world.clock);
    this.channel = new ActorChannel(this.front, isActorWrite);
    this.door = new Door(this.channel, this.front);
    this.actors = this.startActors();
  }

  /** The actor thread dies alone, as when it runs out of memory; the supervisor starts another. */
  crashActorThread(): void {
    this.world.trace.note(`${this.name} loses its actor thread and starts another`);
    this.dropActors();
    this.actors = this.startActors();
  }

  /** An orderly end. */
  async close(): Promise<void> {
    this.actors.link.cut();
    await this.actors.host.close();
    await this.actors.store.close();
  }

  /** The devices actor's view as it is now. */
  devicesView(): DevicesView {
    return this.actors.incarnations.get(DEVICES_ACTOR) as unknown as DevicesView;
  }

  /** What its actors say about themselves, and the views that they have. */
  views(): ReadonlyMap<string, { readonly facts: unknown; readonly state: unknown }> {
    const found = new Map<string, { facts: unknown; state: unknown }>();
    for (const { name, facts } of this.actors.host.snapshots()) {
      const handlers = this.actors.incarnations.get(name) as unknown as { state?: unknown };
      found.set(name, { facts, state: handlers.state });
    }
    return found;
  }

  private holdFor(clocks: readonly ThreadClock[], forMs: number): void {
    for (const clock of clocks) clock.hold();
    this.world.clock.schedule(() => {
      for (const clock of clocks) clock.release();
    }, forMs);
  }

  private dropActors(): void {
    this.actors.clock.die();
    this.actors.link.cut();
  }

  private startActors(): ActorThread {
    const { world } = this;
    const { settings, random } = world;
    this.actorThreads += 1;
    const clock = new ThreadClock(world.clock);
    const incarnations = new Map<string, ActorHandlers>();
    const store = new SimulatedStore(world.server, {
      clock,
      late: !settings.oneIsLate || this.name === 'r1',
      pause: () => this.pauseFromWithin(),
      mayHaveBug: () => this.mayHaveBug(),
    });
    const environment = { store, clock, random, log: silentLog, evidence: world.recorder } as Omit<
      ActorEnvironment,
      'chaining' | 'policySource' | 'terms' | 'leases' | 'sinks'
    > as ActorEnvironment;
    const definitions = SIMULATED_ACTORS.map((name): ActorDefinition => {
      const definition = actorDefinition(name, environment);
      return {
        ...definition,
        bounds: { ...definition.bounds, ...settings.bounds },
        create: (...context) => {
          const handlers = definition.create(...context);
          incarnations.set(name, handlers);
          return handlers;
        },
      };
    });
    const host = new ActorHost(definitions, {
      ...environment,
      onExhausted: (actor) => world.fail(`${this.name} gave up its ${actor} actor`),
    });
    void host.open();
    const clocks = { channel: this.front, host: clock };
    const link = linkOverBus(this.channel, host, clocks, world.busRandom, settings.busDelayMaxMs);
    return { clock, host, store, link, incarnations };
  }

  /** Long enough for knowledge to become stale, short enough for others to go on. */
  private pauseFromWithin(): void {
    if (this.paused || this.world.calm) return;
    this.pause(this.world.faultDice.between(200, 3_000));
  }

  private mayHaveBug(): boolean {
    this.bugs += 1;
    if (this.bugs > BUGS_MAX) return false;
    this.world.trace.note(`${this.name} meets a bug`);
    return true;
  }
}
