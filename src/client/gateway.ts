/**
 * `halos/gateway`: what a gateway needs to refuse whatever is killed, within a moment, and through
 * an outage of every server. See docs/gateway.md for a whole gateway in twenty lines.
 */
import { systemClock } from '../runtime/clock.js';
import { keepProcessAlive } from '../runtime/keep-alive.js';
import { systemRandom } from '../runtime/random.js';
import { Follower, type KillListEvent } from './follower.js';
import type { KillEntry, KillTarget } from './frames.js';

export type { KillEntry, KillListEvent, KillTarget };

/** How to follow a kill list. */
export interface KillListOptions {
  /** A server's address such as `https://halos.example`, or several, which are tried in turn. */
  readonly url: string | readonly string[];
  /** The gateway's token, or a function that reads it, asked before each connection. */
  readonly token: string | (() => string | Promise<string>);
  /**
   * Told what happens, in order; what it throws is not caught. It is called before a version is
   * acknowledged, so that what it does about a kill is done when the operator sees it done.
   */
  readonly onEvent?: (event: KillListEvent) => void;
}

/** A copy of the kill list that follows its server. Look-ups never wait and never fail. */
export interface KillList {
  /** Resolves when there is a list; let nobody in before. Rejects when closed without one. */
  ready(): Promise<void>;
  /** The kill in force of that name; an expired one is not, even while no server is reached. */
  find(kind: string, id: string): KillEntry | undefined;
  /** Everything in force. */
  entries(): readonly KillEntry[];
  /** Identity of the history that versions belong to; '' before the first list. */
  readonly epoch: string;
  /** -1 before the first list. Never less than before within an epoch. */
  readonly version: number;
  /** ms since the list was last known to be the server's; undefined before the first list. */
  ageMs(): number | undefined;
  readonly isConnected: boolean;
  /** Ends the connection and lets the process end. Idempotent. */
  close(): void;
}

/** JavaScript passes what an environment variable holds that is not set: no address either. */
function addressesOf(url: string | readonly string[] | undefined): readonly string[] {
  const urls = typeof url === 'string' ? [url] : (url ?? []);
  const isAddress = (text: unknown): boolean =>
    typeof text === 'string' && /^https?:\/\/[^\s/?#]+\/?$/.test(text);
  if (urls.length > 0 && urls.every(isAddress)) return urls;
  throw new TypeError('url must be an address such as https://halos.example');
}

/**
 * Follows the kill list until `close`, keeping the process alive. Throws a `TypeError` for an
 * address that is none.
 */
export function followKillList(options: KillListOptions): KillList {
  const urls = addressesOf(options.url);
  const { token } = options;
  const waiting: { resolve: () => void; reject: (error: Error) => void }[] = [];
  const follower = new Follower({
    urls,
    token: typeof token === 'string' ? () => token : token,
    clock: systemClock,
    random: systemRandom,
    onEvent: (event) => {
      if (event.type === 'list') for (const { resolve } of waiting.splice(0)) resolve();
      options.onEvent?.(event);
    },
  });
  const letGo = keepProcessAlive();
  follower.start();
  let isClosed = false;
  return {
    ready: () =>
      new Promise((resolve, reject) => {
        if (follower.copy.version >= 0) resolve();
        else if (isClosed) reject(new Error('The kill list was closed.'));
        else waiting.push({ resolve, reject });
      }),
    find: (kind, id) => {
      return follower.copy.find(kind, id, systemClock.monotonicMs(), systemClock.wallMs());
    },
    entries: () => follower.copy.entries(systemClock.monotonicMs(), systemClock.wallMs()),
    get epoch() {
      return follower.copy.epoch;
    },
    get version() {
      return follower.copy.version;
    },
    ageMs: () => follower.copy.ageMs(systemClock.monotonicMs()),
    get isConnected() {
      return follower.isConnected;
    },
    close: () => {
      isClosed = true;
      follower.close();
      letGo();
      for (const { reject } of waiting.splice(0)) reject(new Error('The kill list was closed.'));
    },
  };
}
