/**
 * The kill list as one JSON document, for gateways that poll: out of the same mirror that streams
 * are served from, and made once for each version, since a long list costs as much to write down as
 * thousands of authentications do.
 */
import { CodedError } from '../../runtime/failure.js';
import { entryOnTheWire } from './frames.js';
import type { KillListFeed } from './kill-list-feed.js';

/** The list at the moment of one answer. */
export interface KillListAnswer {
  /** `"<epoch>.<version>"`, quotes included; the same on every replica. */
  readonly entityTag: string;
  /** The whole document in UTF-8. */
  body(): Buffer;
}

/** One for each front thread. */
export class KillListDocument {
  private written: { readonly entityTag: string; readonly entries: Buffer } | undefined;

  constructor(private readonly feed: Pick<KillListFeed, 'caughtUp' | 'mirror'>) {}

  /**
   * The list after a catch-up that began after this call. Rejects with a `CodedError` when there is
   * none to be had.
   */
  async current(): Promise<KillListAnswer> {
    await this.feed.caughtUp();
    // Of one moment, tag and entries: another answer of the actor may move the mirror on.
    const { mirror } = this.feed;
    const { position, asOfMs } = mirror;
    if (position === undefined) {
      throw new CodedError('store_unavailable', 'The kill list is not complete yet.');
    }
    const { epoch, version } = position;
    const entityTag = `"${epoch}.${version}"`;
    if (this.written?.entityTag !== entityTag) {
      const entries = JSON.stringify(mirror.list().map(entryOnTheWire));
      this.written = { entityTag, entries: Buffer.from(`${entries}}`, 'utf8') };
    }
    const { entries } = this.written;
    const asOf = new Date(asOfMs).toISOString();
    const head = `{"epoch":"${epoch}","version":${version},"asOf":"${asOf}","entries":`;
    return { entityTag, body: () => Buffer.concat([Buffer.from(head, 'latin1'), entries]) };
  }
}
