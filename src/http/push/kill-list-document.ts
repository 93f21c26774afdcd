/**
 * The kill list as one JSON document, for gateways that poll: out of the same mirror that streams
 * are served from, and made once for each version, since a long list costs as much to write down as
 * thousands of authentications do.
 */
import { entryOnTheWire } from './frames.js';
import type { KillListFeed } from './kill-list-feed.js';

/** The list at the moment of one answer. */
export interface KillListAnswer {
  /** `"<epoch>.<version>"`, quotes included; the same on every replica. */
  readonly entityTag: string;
  /** The whole document in UTF-8; nothing is done for it before this is called. */
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
    const { epoch, version } = await this.feed.caughtUp();
    const { asOfMs } = this.feed.mirror;
    const entityTag = `"${epoch}.${version}"`;
    return { entityTag, body: () => this.body({ epoch, version, asOfMs, entityTag }) };
  }

  private body(at: { epoch: string; version: number; asOfMs: number; entityTag: string }): Buffer {
    if (this.written?.entityTag !== at.entityTag) {
      const entries = JSON.stringify(this.feed.mirror.list().map(entryOnTheWire));
      this.written = { entityTag: at.entityTag, entries: Buffer.from(`${entries}}`, 'utf8') };
    }
    const asOf = new Date(at.asOfMs).toISOString();
    const head = `{"epoch":"${at.epoch}","version":${at.version},"asOf":"${asOf}","entries":`;
    return Buffer.concat([Buffer.from(head, 'latin1'), this.written.entries]);
  }
}
