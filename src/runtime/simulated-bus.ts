/**
 * Ports for simulations: a channel and a host in one thread, with a message taking as long as the
 * seed says. Like a MessagePort it keeps order, clones what it carries, and loses everything when
 * it is cut.
 */
import type { ActorChannel } from './actor-channel.js';
import type { ActorHost } from './actor-host.js';
import type { Clock } from './clock.js';
import type { AnswerMessage, AskMessage } from './protocol.js';
import type { Random } from './random.js';

/** A channel and a host that were joined. Once cut, only another link joins them again. */
export interface SimulatedLink {
  /** Nothing that is under way arrives any more; the channel notices. */
  cut(): void;
}

/**
 * Joins them; every message takes up to `delayMaxMs` and arrives on the clock of the thread that it
 * is for, so that it waits for a thread that is held.
 */
export function linkOverBus(
  channel: ActorChannel,
  host: ActorHost,
  clocks: { readonly channel: Clock; readonly host: Clock },
  random: Random,
  delayMaxMs: number,
): SimulatedLink {
  let alive = true;
  const toHost = orderedWire<AskMessage>(clocks.host, random, delayMaxMs, (message) => {
    if (alive) host.receive(message, { postMessage: toChannel });
  });
  const toChannel = orderedWire<AnswerMessage>(clocks.channel, random, delayMaxMs, (message) => {
    if (alive) channel.receive(message);
  });
  const cut = (): void => {
    alive = false;
    channel.detach();
  };
  channel.attach({ postMessage: toHost, close: () => undefined });
  return { cut };
}

function orderedWire<Message>(
  clock: Clock,
  random: Random,
  delayMaxMs: number,
  deliver: (message: Message) => void,
): (message: Message) => void {
  let arrivesMs = 0;
  return (message) => {
    const copy = structuredClone(message);
    arrivesMs = Math.max(arrivesMs, clock.monotonicMs() + random.fraction() * delayMaxMs);
    clock.schedule(() => deliver(copy), arrivesMs - clock.monotonicMs());
  };
}
