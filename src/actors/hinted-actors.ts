/**
 * Hints of other replicas, brought to the actors that they concern. One connection of the process
 * listens, in the thread of the kill list; all its threads hear what comes over it.
 *
 * A hint makes its actor catch up, which tells front threads the news. Whatever fails or is lost
 * here is made up for by the poll.
 */
import { BroadcastChannel } from 'node:worker_threads';
import type { ActorHost } from '../runtime/actor-host.js';
import {
  type Hints,
  openHints,
  type StoreEnvironment,
  type StoreSource,
} from '../storage/open-store.js';
import { GATEWAYS_ACTOR, GatewaysClient } from './gateways/client.js';
import { GATEWAYS_STREAM } from './gateways/state.js';
import { KILL_LIST_ACTOR, KillListClient } from './kill-list/client.js';
import { KILL_LIST_STREAM } from './kill-list/state.js';

/** Reaches every thread of this process, and no other process. */
const CHANNEL = 'halos/hints';

/** Makes the actor that is hinted at catch up. */
type CatchUp = () => Promise<unknown>;

/** What a thread is given that matters here. */
export interface HintedThread {
  /** The actors that it hosts. */
  readonly actors: readonly string[];
  readonly store: StoreSource;
}

/** From now on hints reach the actors of this thread, until it is closed. */
export function followHints(
  host: ActorHost,
  { actors, store }: HintedThread,
  environment: StoreEnvironment,
): Hints {
  const hinted = hintedActors(host, actors);
  const heed = (stream: string | undefined): void => {
    for (const [of, catchUp] of hinted) {
      if (stream === undefined || stream === of) catchUp().catch(() => undefined);
    }
  };
  const channel = new BroadcastChannel(CHANNEL);
  channel.unref();
  channel.onmessage = (message) => heed((message as { data: string | undefined }).data);
  const listens = actors.includes(KILL_LIST_ACTOR);
  const listener = listens
    ? openHints(store, environment, (stream) => {
        heed(stream);
        channel.postMessage(stream);
      })
    : undefined;
  return {
    get isListening(): boolean {
      return listener?.isListening === true;
    },
    get open(): number {
      return listener?.open ?? 0;
    },
    close: async () => {
      channel.close();
      await listener?.close();
    },
  };
}

/** By stream: the actors of this thread that follow a stream which is hinted at. */
function hintedActors(host: ActorHost, actors: readonly string[]): Map<string, CatchUp> {
  const found = new Map<string, CatchUp>();
  if (actors.includes(KILL_LIST_ACTOR)) {
    const kills = new KillListClient(host.localRef(KILL_LIST_ACTOR));
    found.set(KILL_LIST_STREAM, () => kills.version());
  }
  if (actors.includes(GATEWAYS_ACTOR)) {
    const gateways = new GatewaysClient(host.localRef(GATEWAYS_ACTOR));
    found.set(GATEWAYS_STREAM, () => gateways.catchUp());
  }
  return found;
}
