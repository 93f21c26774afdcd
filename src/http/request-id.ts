/** Request ids: the caller's own when it is sane, so that its logs and ours can be joined. */
import type { Random } from '../runtime/random.js';

/** Longer than any id in use (a UUID has 36), short enough for a header and a log line. */
const REQUEST_ID_LENGTH_MAX = 128;
const SANE = /^[0-9A-Za-z._:=+/@-]+$/;

/** Whether an inbound id can be repeated in a header and a log without harm. */
export function isSaneRequestId(header: string): boolean {
  return header.length > 0 && header.length <= REQUEST_ID_LENGTH_MAX && SANE.test(header);
}

/** Ids of one front thread: a random prefix and a counter, which is all that being unique takes. */
export class RequestIds {
  private readonly prefix: string;
  private count = 0;

  constructor(random: Random) {
    this.prefix = `${Buffer.from(random.bytes(6)).toString('hex')}-`;
  }

  next(): string {
    this.count += 1;
    return this.prefix + this.count.toString(36);
  }

  /** The caller's id if it is sane, otherwise one of our own. */
  for(header: string): string {
    return isSaneRequestId(header) ? header : this.next();
  }
}
