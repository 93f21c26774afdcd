/**
 * The way from a request to a stream: what the request asks for, a catch-up, who asks, the upgrade.
 * In this order, so that the stream is known by its token in the turn in which the token was
 * found to work: an end of the token that is told later finds it.
 */
import type { HttpRequest, HttpResponse, us_socket_context_t } from 'uWebSockets.js';
import type { GatewaysClient } from '../../actors/gateways/client.js';
import type { LimiterClient } from '../../actors/limiter/client.js';
import { digestOf } from '../../actors/secrets.js';
import { CodedError, describe, isFailure } from '../../runtime/failure.js';
import { isStale } from '../../runtime/freshness.js';
import { bearerCredential } from '../authorization.js';
import { Exchange, type ExchangeHost, problemOf } from '../exchange.js';
import { countFailure, failureClassOf, GatewayUnknown } from '../failed-attempts.js';
import { HttpProblem } from '../problem-details.js';
import { STREAM_PATH } from '../routes/kill-list-stream.js';
import { decodedQuery } from '../url.js';
import { fieldProblem } from '../validation.js';
import { asksForSubprotocol, parseSince, SUBPROTOCOL } from './frames.js';
import type { KillListFeed } from './kill-list-feed.js';
import { KillStream } from './kill-stream.js';
import type { KillStreams } from './kill-streams.js';
import { type Handshake, UpgradeBatch } from './upgrade-batch.js';

/**
 * Streams of one token on one front thread: a gateway of a hundred processes may share one, and a
 * token that leaked cannot take all the sockets that a thread has.
 */
export const STREAMS_PER_TOKEN_MAX = 100;
/** Streams of one front thread: five times what it is measured with, far below its memory. */
export const STREAMS_MAX = 50_000;

/** What an upgrade needs beside the request. */
export interface UpgradeServices {
  readonly host: ExchangeHost;
  readonly feed: KillListFeed;
  readonly streams: KillStreams;
  readonly gateways: GatewaysClient;
  readonly limiter: LimiterClient;
  /** Whether streams are not begun any more, since the list is too old or the server ends. */
  readonly refusing: () => boolean;
}

/** Handles the upgrade requests of one front server. */
export class StreamUpgrade {
  private readonly upgrades: UpgradeBatch;

  constructor(private readonly services: UpgradeServices) {
    this.upgrades = new UpgradeBatch(() => services.streams.anySocket());
  }

  /** The library's `subscription` handler. */
  subscribed(): void {
    this.upgrades.subscribed();
  }

  /** The library's `upgrade` handler. Never throws. */
  serve(res: HttpResponse, req: HttpRequest, context: us_socket_context_t): void {
    let exchange: Exchange | undefined;
    res.onAborted(() => exchange?.abort());
    try {
      const handshake = {
        key: req.getHeader('sec-websocket-key'),
        extensions: req.getHeader('sec-websocket-extensions'),
        context,
      };
      exchange = new Exchange(this.services.host, res, req);
      exchange.template = STREAM_PATH;
      void this.begin(exchange, res, handshake);
    } catch (error) {
      this.services.host.log.error({ error: describe(error) }, 'An upgrade could not be read.');
      res.close();
    }
  }

  /** Never rejects. */
  private async begin(exchange: Exchange, res: HttpResponse, handshake: Handshake): Promise<void> {
    try {
      const since = askedFor(exchange);
      const credential = bearerCredential(exchange.header('authorization') ?? '');
      if (credential === undefined) throw new HttpProblem('credential_missing');
      this.checkOpen();
      await this.services.feed.caughtUp();
      if (exchange.isOver) return;
      const digest = digestOf(credential);
      this.services.gateways.authenticate(digest, {
        answered: (answer, freshSinceMs) => {
          const gateway = this.admitted(exchange, answer, freshSinceMs, digest);
          if (gateway === undefined) return;
          const stream = new KillStream(gateway, digest, since);
          exchange.switched();
          this.upgrades.add(res, handshake, { stream });
        },
      });
    } catch (error) {
      this.refuse(exchange, error);
    }
  }

  private checkOpen(): void {
    const { streams, refusing } = this.services;
    if (refusing()) throw new CodedError('store_unavailable', 'The kill list is too old.');
    if (streams.size + this.upgrades.size >= STREAMS_MAX)
      throw new CodedError('overloaded', 'Too many streams.');
  }

  /** The gateway's id; undefined when the request was refused, or its client went away. */
  private admitted(
    exchange: Exchange,
    answer: unknown,
    freshSinceMs: number,
    digest: string,
  ): string | undefined {
    const { host, feed, streams } = this.services;
    if (exchange.isOver) return undefined;
    try {
      if (isFailure(answer)) {
        if (answer.failure === 'token_unknown') throw new GatewayUnknown();
        throw new CodedError(answer.failure, answer.detail ?? answer.failure, {
          ...(answer.retryAfterSeconds === undefined
            ? {}
            : { retryAfterSeconds: answer.retryAfterSeconds }),
        });
      }
      if (isStale(freshSinceMs, host.clock.monotonicMs())) {
        throw new CodedError('stale', 'The answer would be too old.');
      }
      this.checkOpen();
      if (feed.mirror.position === undefined) {
        throw new CodedError('store_unavailable', 'The kill list is not complete.');
      }
      const own = streams.gateways.withCredential(digest).size + this.upgrades.sizeOf(digest);
      if (own >= STREAMS_PER_TOKEN_MAX) {
        throw new HttpProblem('too_many_streams');
      }
      return answer as string;
    } catch (error) {
      this.refuse(exchange, error);
      return undefined;
    }
  }

  private refuse(exchange: Exchange, error: unknown): void {
    const answer = (refusal: ReturnType<typeof problemOf>): void => {
      try {
        exchange.refuse(refusal, error);
      } catch (fault) {
        this.services.host.log.error(
          { error: describe(fault) },
          'A problem could not be answered.',
        );
      }
    };
    const refusal = problemOf(error);
    const failureClass = failureClassOf(refusal.code, error);
    if (failureClass === undefined) answer(refusal);
    else countFailure(this.services.limiter, failureClass, exchange.client, refusal, answer);
  }
}

/** What the client holds already. Throws the problem of a request that asks for something else. */
function askedFor(exchange: Exchange): KillStream['since'] {
  if (!asksForSubprotocol(exchange.header('sec-websocket-protocol') ?? '')) {
    throw new HttpProblem('headers_invalid', {
      detail: `Sec-WebSocket-Protocol must ask for ${SUBPROTOCOL}.`,
    });
  }
  let since: KillStream['since'];
  for (const [name, value] of decodedQuery(exchange.query)) {
    if (name !== 'since') throw fieldProblem('query', '', 'takes `since` and nothing else');
    // What cannot be read is as what is not known: a snapshot puts either right.
    since = parseSince(value);
  }
  return since;
}
