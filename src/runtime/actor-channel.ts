/**
 * A front thread's end of the port to one actor thread: gathers the asks of a turn into one message
 * for each kind, matches the answers, and answers by itself when the other side does not.
 */
import { READ_DEADLINE_MS, WRITE_DEADLINE_MS } from './actor.js';
import { type ActorRef, type AnswerSink, type AskOptions, refuseLater } from './ask.js';
import { type Clock, repeat, type Timer } from './clock.js';
import { type Failure, failure } from './failure.js';
import type { AnswerMessage, AskMessage, FromActorThread } from './protocol.js';

/** The part of a MessagePort that the channel uses. */
export interface AskPort {
  postMessage(message: AskMessage): void;
  close(): void;
}

interface Group {
  readonly message: AskMessage & { readonly payloads: unknown[] };
  /** Emptied one by one as answers come. */
  readonly sinks: (AnswerSink | undefined)[];
  readonly write: boolean;
  open: number;
  sent: boolean;
}

/** Asks without an answer that one front thread may have: far above what its sockets can bring. */
const PENDING_MAX = 131_072;
/** Asks beyond it that operators may have: overload never refuses the one who stops it. */
const OPERATOR_RESERVE = 1_024;
/** How often asks whose actor thread does not answer are looked for. */
const EXPIRY_SWEEP_MS = 250;
/** The actor's own answer to an expired ask should win, if it still can. */
const EXPIRY_GRACE_MS = 500;

/**
 * Answers every ask exactly once, also when the port closes or the actor thread falls silent: then
 * with `outcome_unknown` when a write may have happened, with `actor_restarted` or
 * `deadline_exceeded` when nothing can have. Beyond `PENDING_MAX` it answers `overloaded`,
 * operators only beyond their reserve.
 */
export class ActorChannel {
  private port: AskPort | undefined;
  private readonly groups = new Map<number, Group>();
  private filling: Group[] = [];
  private nextGroup = 1;
  private pending = 0;
  private flushScheduled = false;
  private sweepTimer: Timer | undefined;
  private readonly flush = (): void => {
    this.flushScheduled = false;
    this.sendNow();
  };

  /** `isWrite(actor, kind)` decides the default deadline and what the death of the port means. */
  constructor(
    private readonly clock: Clock,
    private readonly isWrite: (actor: string, kind: string) => boolean,
    /** News of an actor, in order with its answers. */
    private readonly onNews: (actor: string, message: unknown) => void = () => undefined,
  ) {}

  /** Uses this port from now on; whatever was pending on an older one is answered first. */
  attach(port: AskPort): void {
    this.detach();
    this.port = port;
    this.sweepTimer = repeat(this.clock, EXPIRY_SWEEP_MS, () => this.sweep());
  }

  /** The other side is gone: everything pending rejects. Idempotent. */
  detach(): void {
    this.port?.close();
    this.port = undefined;
    this.sweepTimer?.cancel();
    this.sweepTimer = undefined;
    const lost = [...this.groups.values(), ...this.filling];
    this.groups.clear();
    this.filling = [];
    for (const group of lost) this.settleGroup(group, lostFailure(group));
  }

  /** An actor behind this port; it stays good when the port is replaced. */
  ref(actor: string): ActorRef {
    return {
      actor,
      ask: (kind, payload, sink, options) => this.ask(actor, kind, payload, sink, options),
    };
  }

  /** What came over the port. */
  receive(message: FromActorThread): void {
    if (message.type === 'publish') this.onNews(message.actor, message.message);
    else this.deliver(message);
  }

  private deliver(message: AnswerMessage): void {
    const group = this.groups.get(message.group);
    if (!group) return;
    const { answers, indexes, freshSinceMs } = message;
    if (answers.length === group.open) this.groups.delete(message.group);
    for (let at = 0; at < answers.length; at += 1) {
      const index = indexes === undefined ? at : (indexes[at] as number);
      const sink = group.sinks[index];
      if (!sink) continue;
      group.sinks[index] = undefined;
      group.open -= 1;
      this.pending -= 1;
      sink.answered(answers[at], freshSinceMs);
    }
  }

  /** Asks that were not answered yet. */
  get pendingCount(): number {
    return this.pending;
  }

  /** See `ActorRef.ask`. */
  ask(actor: string, kind: string, payload: unknown, sink: AnswerSink, options?: AskOptions): void {
    if (!this.port) {
      const restarting = failure('actor_restarted', 'The actor is being restarted.', 1);
      refuseLater(this.clock, sink, restarting);
      return;
    }
    const pendingMax = PENDING_MAX + (options?.operator === true ? OPERATOR_RESERVE : 0);
    if (this.pending >= pendingMax) {
      const overloaded = failure('overloaded', 'Too many requests are pending.', 1);
      refuseLater(this.clock, sink, overloaded);
      return;
    }
    this.pending += 1;
    const group = this.groupFor(actor, kind, options);
    group.message.payloads.push(payload);
    group.sinks.push(sink);
    group.open += 1;
    if (this.flushScheduled) return;
    this.flushScheduled = true;
    this.clock.afterTurn(this.flush);
  }

  /**
   * The group of this turn that the ask fits into; asks with a deadline of their own stand alone.
   */
  private groupFor(actor: string, kind: string, options: AskOptions | undefined): Group {
    const operator = options?.operator ?? false;
    if (options?.deadlineMs === undefined) {
      for (const group of this.filling) {
        const { message } = group;
        if (message.kind === kind && message.actor === actor && message.operator === operator) {
          return group;
        }
      }
    }
    const write = this.isWrite(actor, kind);
    const waitMs = options?.deadlineMs ?? (write ? WRITE_DEADLINE_MS : READ_DEADLINE_MS);
    const deadlineMs = this.clock.monotonicMs() + waitMs;
    const group: Group = {
      message: {
        type: 'ask',
        group: this.nextGroup,
        actor,
        kind,
        operator,
        deadlineMs,
        payloads: [],
      },
      sinks: [],
      write,
      open: 0,
      sent: false,
    };
    this.nextGroup += 1;
    this.filling.push(group);
    return group;
  }

  /** Sends what was asked in this turn so far, which otherwise leaves at its end. */
  sendNow(): void {
    const groups = this.filling;
    this.filling = [];
    for (const group of groups) {
      this.groups.set(group.message.group, group);
      group.sent = true;
      this.port?.postMessage(group.message);
    }
  }

  private sweep(): void {
    const nowMs = this.clock.monotonicMs();
    for (const group of this.groups.values()) {
      if (group.message.deadlineMs + EXPIRY_GRACE_MS > nowMs) continue;
      this.groups.delete(group.message.group);
      this.settleGroup(group, expiredFailure(group));
    }
  }

  private settleGroup(group: Group, answer: Failure): void {
    for (const sink of group.sinks) {
      if (!sink) continue;
      this.pending -= 1;
      sink.answered(answer, 0);
    }
    group.sinks.length = 0;
  }
}

function lostFailure(group: Group): Failure {
  if (group.write && group.sent) {
    return failure('outcome_unknown', 'The actor stopped before it could say what happened.', 1);
  }
  return failure('actor_restarted', 'The actor stopped while the request was pending.', 1);
}

function expiredFailure(group: Group): Failure {
  if (group.write) {
    return failure('outcome_unknown', 'No answer came in time; the change may have happened.', 1);
  }
  return failure('deadline_exceeded', 'No answer came in time.', 1);
}
