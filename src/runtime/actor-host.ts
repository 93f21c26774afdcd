/**
 * All actors of one thread, and their ends of the ports. In a simulation, a host is all there is:
 * `localRef` asks its actors without any port.
 */
import type { ActorDefinition } from './actor.js';
import { READ_DEADLINE_MS, WRITE_DEADLINE_MS } from './actor.js';
import { ActorCell, type CellEnvironment } from './actor-cell.js';
import type { ActorSnapshot } from './actor-metrics.js';
import type { ActorRef, AnswerSink, AskOptions } from './ask.js';
import { failure } from './failure.js';
import type { Reply } from './lane.js';
import type { AskMessage, FromActorThread } from './protocol.js';

/** The part of a MessagePort that the host uses, so that a simulated bus can stand in for it. */
export interface AnswerPort {
  postMessage(message: FromActorThread): void;
}

/**
 * Hosts the actors that were placed on this thread. A message for any other is answered
 * `internal_error`: whoever sent it has another idea of the placement.
 */
export class ActorHost {
  private readonly cells = new Map<string, ActorCell>();
  private readonly subscribers = new Set<AnswerPort>();

  constructor(
    definitions: readonly ActorDefinition[],
    private readonly environment: CellEnvironment,
  ) {
    const publish = (actor: string, message: unknown): void => {
      for (const port of this.subscribers) port.postMessage({ type: 'publish', actor, message });
    };
    for (const definition of definitions) {
      this.cells.set(definition.name, new ActorCell(definition, { ...environment, publish }));
    }
  }

  /** From now on the port gets the news of all actors here. Idempotent. */
  subscribe(port: AnswerPort): void {
    this.subscribers.add(port);
  }

  /** Idempotent. */
  unsubscribe(port: AnswerPort): void {
    this.subscribers.delete(port);
  }

  /** Opens all actors at once; resolves when every view is complete. */
  async open(): Promise<void> {
    await Promise.all([...this.cells.values()].map((cell) => cell.open()));
  }

  /** Handles what came over a port: queues every ask of the message, then runs. */
  receive(message: AskMessage, port: AnswerPort): void {
    const group = new GroupReply(message, port);
    const cell = this.cells.get(message.actor);
    if (!cell) {
      const unknown = failure('internal_error', 'No such actor in this thread.');
      for (const index of message.payloads.keys()) group.reply(index, unknown, 0);
      return;
    }
    const { kind, operator, deadlineMs, payloads } = message;
    const arrivedMs = this.environment.clock.monotonicMs();
    for (let index = 0; index < payloads.length; index += 1) {
      const payload = payloads[index];
      cell.offer({ kind, payload, deadlineMs, arrivedMs, operator, to: group, index });
    }
    cell.run();
  }

  /** An actor of this thread, asked directly. */
  localRef(actor: string): ActorRef {
    const cell = this.cells.get(actor);
    if (!cell) throw new RangeError(`This thread hosts no actor named ${actor}.`);
    return new LocalRef(actor, cell, this.environment);
  }

  /** Resolves when no lane holds anything and nothing runs. */
  async drained(): Promise<void> {
    await Promise.all([...this.cells.values()].map((cell) => cell.drained()));
  }

  /** Closes every actor, which answers whatever still waits. Idempotent. */
  async close(): Promise<void> {
    await Promise.all([...this.cells.values()].map((cell) => cell.close()));
  }

  snapshots(): ActorSnapshot[] {
    return [...this.cells.values()].map((cell) => cell.snapshot());
  }
}

/** Collects the answers of one group and sends what one turn of the loop produced together. */
class GroupReply implements Reply {
  private indexes: number[] = [];
  private answers: unknown[] = [];
  private freshSinceMs = 0;

  constructor(
    private readonly message: AskMessage,
    private readonly port: AnswerPort,
  ) {}

  reply(index: number, answer: unknown, freshSinceMs: number): void {
    if (this.answers.length === 0) queueMicrotask(() => this.send());
    if (freshSinceMs !== 0 && (this.freshSinceMs === 0 || freshSinceMs < this.freshSinceMs)) {
      this.freshSinceMs = freshSinceMs;
    }
    this.indexes.push(index);
    this.answers.push(answer);
  }

  private send(): void {
    const { indexes, answers, freshSinceMs } = this;
    this.indexes = [];
    this.answers = [];
    this.freshSinceMs = 0;
    const inOrder =
      answers.length === this.message.payloads.length && indexes.every((index, at) => index === at);
    this.port.postMessage({
      type: 'answer',
      group: this.message.group,
      ...(inOrder ? {} : { indexes }),
      answers,
      freshSinceMs,
    });
  }
}

class LocalRef implements ActorRef {
  constructor(
    readonly actor: string,
    private readonly cell: ActorCell,
    private readonly environment: CellEnvironment,
  ) {}

  ask(kind: string, payload: unknown, sink: AnswerSink, options: AskOptions = {}): void {
    const { clock } = this.environment;
    const arrivedMs = clock.monotonicMs();
    let offering = true;
    const lane = this.cell.isWrite(kind) ? WRITE_DEADLINE_MS : READ_DEADLINE_MS;
    this.cell.offer({
      kind,
      payload,
      arrivedMs,
      deadlineMs: arrivedMs + (options.deadlineMs ?? lane),
      operator: options.operator ?? false,
      index: 0,
      to: {
        reply: (_, answer, freshSinceMs) => {
          // A full lane refuses at once, which is before `ask` has returned.
          if (offering) clock.afterTurn(() => sink.answered(answer, freshSinceMs));
          else sink.answered(answer, freshSinceMs);
        },
      },
    });
    offering = false;
    clock.afterTurn(() => this.cell.run());
  }
}
