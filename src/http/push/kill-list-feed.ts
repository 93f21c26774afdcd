/**
 * Keeps the mirror of a front thread complete: hears the actor's news, asks for the whole list when
 * something is missing, and catches up before a stream is answered.
 */
import type { KillListClient } from '../../actors/kill-list/client.js';
import type { KillListNews } from '../../actors/kill-list/messages.js';
import { type Clock, delay } from '../../runtime/clock.js';
import { CodedError } from '../../runtime/failure.js';
import { KillListMirror, type MirrorOutcome } from './kill-list-mirror.js';

/** Between two asks for the list while it cannot be had: one poll of the actor. */
const LIST_RETRY_MS = 200;

/** Whole lists that one catch-up asks for; the second began after the version was known. */
const LISTS_ASKED_MAX = 2;

/** What the feed tells its streams; never within a call of the feed's `caughtUp`. */
export interface FeedListener {
  /** The list is at a newer version of the same epoch, or is there for the first time. */
  changed(): void;
  /** The epoch is over: nothing that a stream was told holds any more. */
  replaced(): void;
}

/** Where the mirror is. */
export type KillListPosition = NonNullable<KillListMirror['position']>;

/** One for each front thread. */
export class KillListFeed {
  readonly mirror = new KillListMirror();
  private heardAtMs: number;
  private listing: Promise<void> | undefined;
  private catchingUp: Promise<KillListPosition> | undefined;
  private asking = false;
  private stopped = false;

  constructor(
    private readonly kills: Pick<KillListClient, 'list' | 'version'>,
    private readonly clock: Clock,
    private readonly listener: FeedListener,
  ) {
    this.heardAtMs = clock.monotonicMs();
  }

  /** Asks for the first list, until it is there or the feed is stopped. */
  start(): void {
    void this.askUntilListed();
  }

  stop(): void {
    this.stopped = true;
  }

  /** How long ago the list was last known to be current, on the monotonic clock. */
  get silentMs(): number {
    return this.clock.monotonicMs() - this.heardAtMs;
  }

  /** News of the actor, in order with its answers. */
  hear(news: KillListNews): void {
    this.took(this.mirror.hear(news));
  }

  /**
   * Resolves when the mirror holds everything that was committed before this call, with where it is
   * then. All calls of one turn share one ask. Rejects with a `CodedError` when the actor cannot
   * say.
   */
  caughtUp(): Promise<KillListPosition> {
    if (this.catchingUp !== undefined) return this.catchingUp;
    // Before the ask, so that it is over when the ask leaves at the end of this turn.
    this.clock.afterTurn(() => {
      this.catchingUp = undefined;
    });
    this.catchingUp = this.catchUp();
    return this.catchingUp;
  }

  private async catchUp(): Promise<KillListPosition> {
    const now = await this.kills.version();
    // A list that was asked for earlier may be older than that version: then one more.
    for (let tries = 0; ; tries += 1) {
      const { position } = this.mirror;
      if (position?.epoch === now.epoch && position.version >= now.version) {
        this.took(this.mirror.hear({ type: 'unchanged', ...now }));
        return position;
      }
      if (tries === LISTS_ASKED_MAX) break;
      await this.askForList();
    }
    throw new CodedError('store_unavailable', 'The kill list is not complete yet.');
  }

  /** One ask in flight. */
  private askForList(): Promise<void> {
    this.listing ??= this.kills
      .list()
      .then((view) => this.took(this.mirror.replace(view)))
      .finally(() => {
        this.listing = undefined;
      });
    return this.listing;
  }

  private async askUntilListed(): Promise<void> {
    if (this.asking) return;
    this.asking = true;
    while (!this.stopped && this.mirror.position === undefined) {
      try {
        await this.askForList();
      } catch {
        // The actor logs why; whoever wants a stream is refused until it is there.
        await delay(this.clock, LIST_RETRY_MS);
      }
    }
    this.asking = false;
  }

  private took(outcome: MirrorOutcome): void {
    if (outcome !== 'old' && outcome !== 'gap') this.heardAtMs = this.clock.monotonicMs();
    if (outcome === 'changed') this.listener.changed();
    if (outcome === 'other-epoch') this.listener.replaced();
    if (this.mirror.position === undefined) void this.askUntilListed();
    else if (outcome === 'gap') this.askForList().catch(() => undefined);
  }
}
