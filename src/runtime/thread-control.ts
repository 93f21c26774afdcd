/**
 * The control surface between the supervisor and its threads, carried by comlink: open, attach,
 * drain, close, inspect. Nothing of it is on the way of a request.
 */
import { MessageChannel, type MessagePort, parentPort, workerData } from 'node:worker_threads';
import { expose } from 'comlink';
import nodeEndpoint from 'comlink/dist/esm/node-adapter.mjs';
import type { ActorHost } from './actor-host.js';
import type { ActorSnapshot } from './actor-metrics.js';
import type { Fence } from './lease.js';
import type { AskMessage } from './protocol.js';
import type { ThreadTerms } from './thread-terms.js';

/** What every thread of a process can be told. */
export interface ThreadControl {
  /** Resolves when the thread can be used; its control surface answers before that. */
  open(): Promise<void>;
  /** Lets go of everything. Idempotent. The thread ends afterwards. */
  close(): Promise<void>;
}

/** What `serveControl` adds to every control surface: a sign of life, to be waited for. */
export interface PingedControl {
  ping(): void;
}

/** What a thread of actors can be told. */
export interface ActorThreadControl extends ThreadControl {
  /** One front thread's port; asks come over it from now on. */
  attach(port: MessagePort): void;
  snapshots(): ActorThreadSnapshot;
  /** A term of this process began; the same again changes nothing. */
  beginTerm(fence: Fence): void;
  /** Resolves when what this thread did under that term has stopped. */
  endTerm(fence: Fence): Promise<void>;
  /** Resolves when no mailbox holds anything. */
  drained(): Promise<void>;
}

/** One thread of actors at one moment: plain data that comlink can carry. */
export interface ActorThreadSnapshot {
  readonly actors: readonly ActorSnapshot[];
  /** What the thread says of its store: plain numbers by name. */
  readonly store: Readonly<Record<string, number>>;
}

/** What a front thread can be told, as far as the supervisor does it. */
export interface FrontThreadControl extends ThreadControl {
  /** The port to an actor thread that hosts these actors; replaces an earlier one. */
  attach(thread: string, actors: readonly string[], port: MessagePort): void;
  /** That actor thread is gone: everything pending on it rejects. */
  detach(thread: string): void;
}

/** What a thread is given at its start, beside its own data. */
export interface ThreadStart<Data> {
  readonly name: string;
  /** For `ThreadEvent`s to the supervisor. */
  readonly events: MessagePort;
  readonly data: Data;
}

/** What a thread tells the supervisor by itself. */
export type ThreadEvent =
  | { readonly type: 'exhausted'; readonly actor: string; readonly error: string }
  /** A write under that term was refused. */
  | { readonly type: 'fenced'; readonly fence: Fence };

/** The start data of the thread that this is called in. */
export function threadStart<Data>(): ThreadStart<Data> {
  return workerData as ThreadStart<Data>;
}

/** Serves the control surface of this thread. */
export function serveControl(control: ThreadControl): void {
  if (!parentPort) throw new Error('A thread entry was run outside a worker thread.');
  const pinged: ThreadControl & PingedControl = { ...control, ping: () => undefined };
  expose(pinged, nodeEndpoint(parentPort));
}

/** The control surface of a thread of actors; `store` is asked for facts and closed last. */
export function actorThreadControl(
  host: ActorHost,
  terms: ThreadTerms,
  store: { facts(): Readonly<Record<string, number>>; close(): Promise<void> },
): ActorThreadControl {
  const ports = new Set<MessagePort>();
  return {
    open: () => host.open(),
    attach: (port) => {
      ports.add(port);
      host.subscribe(port);
      port.on('message', (message: AskMessage) => host.receive(message, port));
      port.once('close', () => {
        ports.delete(port);
        host.unsubscribe(port);
      });
    },
    snapshots: () => ({ actors: host.snapshots(), store: store.facts() }),
    beginTerm: (fence) => terms.begin(fence),
    endTerm: (fence) => terms.end(fence),
    drained: () => host.drained(),
    close: async () => {
      await host.close();
      await store.close();
      for (const port of ports) port.close();
    },
  };
}

/** A direct connection between two threads: one port for each. */
export function portPair(): { readonly front: MessagePort; readonly actors: MessagePort } {
  const { port1, port2 } = new MessageChannel();
  return { front: port1, actors: port2 };
}
