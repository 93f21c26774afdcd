/**
 * What a front thread refuses when more arrives than it can serve: with `overloaded`, at once, and
 * for less than serving costs.
 *
 * The mailboxes of actors are bounded, but a front thread takes two thirds of a request's time, so
 * that it is the first to fall behind; and what waits then waits in the kernel, a request for each
 * connection, where nothing counts it. It shows as a turn of the event loop that does not end. So a
 * turn takes new requests for a bounded time, and refuses the rest of what has arrived: whoever is
 * served waits for a few such turns, whatever the number of connections.
 */
import type { HttpResponse } from 'uWebSockets.js';
import type { Clock } from '../runtime/clock.js';
import type { Log } from '../runtime/log.js';
import type { FrontMetrics } from './front-metrics.js';
import {
  PROBLEM_MEDIA_TYPE,
  problemDetails,
  problemHeaders,
  statusLine,
} from './problem-details.js';
import { isSaneRequestId, type RequestIds } from './request-id.js';

/**
 * How long one turn takes new requests. Taking one is a quarter to a half of what it costs this
 * thread, since its answer is written in a later turn, and whoever is served waits for up to three
 * turns: the one before, its own, and the next, in which the actor's answer is read.
 */
export const TURN_TAKES_MS = 1;
/**
 * So many authentications, or a quarter as many other requests, are always taken: three to four
 * milliseconds of work. A turn that takes long with fewer was held up by something else, such as a
 * busy machine, which is no reason to refuse; and no client with fewer connections is ever refused.
 */
export const TURN_TAKES_MIN = 384;
/** What a request of the route table costs, in authentications: measured, 40 µs and 10 µs. */
export const ROUTE_WEIGHT = 4;
/** The clock is read once for so many authentications: a few dozen microseconds of work. */
const LOOK_EVERY = 8;
/** How often the number of those that were refused is logged: a line for each would cost more. */
const LOG_PERIOD_MS = 1_000;

/** What the one of a front thread shares with its server. */
export interface LoadSheddingHost {
  readonly clock: Clock;
  readonly log: Log;
  readonly metrics: FrontMetrics;
  readonly requestIds: RequestIds;
  /** See `FrontServices`. */
  readonly sendAsks: () => void;
}

/** One for each front thread. */
export class LoadShedding {
  private taken = 0;
  private spent = false;
  private takesUntilMs = 0;
  private untold = 0;
  private toldAtMs = Number.NEGATIVE_INFINITY;
  private readonly turnOver = (): void => {
    this.taken = 0;
    this.spent = false;
  };

  constructor(private readonly host: LoadSheddingHost) {}

  /** Takes one more request in this turn; false when it has to be refused. */
  take(weight: number): boolean {
    const { clock } = this.host;
    if (this.taken === 0) {
      this.takesUntilMs = clock.monotonicMs() + TURN_TAKES_MS;
      clock.afterTurn(this.turnOver);
    }
    this.taken += weight;
    if (this.spent) return false;
    if (this.taken <= TURN_TAKES_MIN || this.taken % LOOK_EVERY >= weight) return true;
    this.spent = clock.monotonicMs() > this.takesUntilMs;
    // What was taken is answered while the rest is refused, rather than after that.
    if (this.spent) this.host.sendAsks();
    return !this.spent;
  }

  /** A request was refused for this: counts it, and logs their number now and then. */
  refused(): void {
    const { clock, log } = this.host;
    this.untold += 1;
    const nowMs = clock.monotonicMs();
    if (nowMs - this.toldAtMs < LOG_PERIOD_MS) return;
    log.warn({ refused: this.untold }, 'More arrives than can be served; requests are refused.');
    this.toldAtMs = nowMs;
    this.untold = 0;
  }

  /**
   * Refuses within the request's own handler, where the library has corked the response: the same
   * problem details as anywhere else, without anything that the request would have to be read for.
   */
  refuse(res: HttpResponse, requestId: string, close: boolean): void {
    const id = isSaneRequestId(requestId) ? requestId : this.host.requestIds.next();
    res.writeStatus(HEAD + id);
    res.end(BODY_BEGIN + id + BODY_END, close);
    this.host.metrics.failed('overloaded');
    this.refused();
  }
}

/** Stands where the request's id is going to: no id is like it. */
const ID = '{id}';
const DETAILS = problemDetails('overloaded', ID);
const [BODY_BEGIN = '', BODY_END = ''] = JSON.stringify(DETAILS).split(ID);
/** Status and headers in one native call instead of five: the library adds only the line's end. */
const HEAD = [
  statusLine(DETAILS.status),
  `content-type: ${PROBLEM_MEDIA_TYPE}`,
  ...Object.entries(problemHeaders('overloaded')).map(([name, value]) => `${name}: ${value}`),
  'x-request-id: ',
].join('\r\n');
