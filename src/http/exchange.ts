/**
 * One request and its answer, for every route but the hot path. Copies everything out of the
 * request before anything asynchronous, knows when the client went away, answers exactly once.
 */
import type { HttpRequest, HttpResponse } from 'uWebSockets.js';
import { AUDIT_CODES } from '../actors/audit-chainer/messages.js';
import { DEVICE_CODES } from '../actors/devices/messages.js';
import { GATEWAY_CODES } from '../actors/gateways/messages.js';
import { KILL_LIST_CODES } from '../actors/kill-list/messages.js';
import type { Clock } from '../runtime/clock.js';
import { CodedError, describe } from '../runtime/failure.js';
import type { Log } from '../runtime/log.js';
import type { ClientAddresses } from './client-address.js';
import type { Refusal } from './failed-attempts.js';
import type { FrontMetrics } from './front-metrics.js';
import type { LoadShedding } from './load-shedding.js';
import {
  HttpProblem,
  PROBLEM_MEDIA_TYPE,
  problemDetails,
  problemHeaders,
} from './problem-details.js';
import { type ProblemCode, problemCodeOf } from './problems.js';
import type { RequestIds } from './request-id.js';
import { writeHead, writeResponse } from './response.js';
import { ResponseStream } from './response-stream.js';
import type { AnswerStream } from './route.js';
import { parseTraceparent } from './trace-context.js';

/** What exchanges share. */
export interface ExchangeHost {
  readonly metrics: FrontMetrics;
  readonly log: Log;
  readonly clock: Clock;
  readonly requestIds: RequestIds;
  readonly addresses: ClientAddresses;
  readonly shedding: LoadShedding;
  /** While draining, every answer closes its connection. */
  readonly draining: boolean;
}

/** The label of paths that no route has. */
const NO_ROUTE = '(unknown)';
/** What an upgrade is counted as (RFC 9110 §15.2.2). */
const SWITCHING_PROTOCOLS = 101;

/** Created for each request; whoever creates it sees that `answer` or `fail` is called. */
export class Exchange {
  readonly method: string;
  /** As received, still percent-encoded, without the query. */
  readonly path: string;
  readonly query: string;
  /** In order; names in lower case. */
  readonly headers: readonly (readonly [string, string])[];
  readonly requestId: string;
  /**
   * Whoever is in front may take the other length for where the next request begins (RFC 9112 §6.3)
   * and what follows for an answer to somebody else. To be refused in a later turn: what has come
   * with it then closes the connection, where an answer in the same turn would let it be answered.
   */
  readonly hasTwoLengths: boolean;
  /** The route's template, once it is known. */
  template = NO_ROUTE;
  private readonly startedMs: number;
  private readonly traceId: string | undefined;
  /** The client's address, as far as the proxies in front can be believed. */
  readonly client: string;
  private ended = false;
  private settled = false;
  /** The connection cannot be kept: the body is not going to be read, or its end is not known. */
  private closing: boolean;
  private bodyRead = false;
  /** One of too many: its line in the log would cost as much as serving it. */
  private shed = false;
  private sending: ResponseStream | undefined;

  constructor(
    private readonly host: ExchangeHost,
    private readonly res: HttpResponse,
    req: HttpRequest,
  ) {
    host.metrics.inFlight += 1;
    this.startedMs = host.clock.monotonicMs();
    this.method = req.getMethod().toUpperCase();
    this.path = req.getUrl();
    this.query = req.getQuery() ?? '';
    const headers: [string, string][] = [];
    req.forEach((name, value) => {
      headers.push([name, value]);
    });
    this.headers = headers;
    this.hasTwoLengths = headers.filter(([name]) => name === 'content-length').length > 1;
    this.closing = this.hasTwoLengths;
    this.requestId = host.requestIds.for(this.header('x-request-id') ?? '');
    this.traceId = parseTraceparent(this.header('traceparent') ?? '')?.traceId;
    this.client = host.addresses.of(res.getRemoteAddress(), {
      forwarded: this.joinedHeader('forwarded'),
      xForwardedFor: this.joinedHeader('x-forwarded-for'),
    });
  }

  /** The first value of a header; undefined when it is absent. */
  header(name: string): string | undefined {
    return this.headers.find(([candidate]) => candidate === name)?.[1];
  }

  /** The client went away: nothing can be answered any more. */
  abort(): void {
    if (this.settled) return;
    this.ended = true;
    this.sending?.abort();
    this.host.metrics.aborted += 1;
    this.settle(0, 'aborted');
  }

  get isOver(): boolean {
    return this.ended;
  }

  get isBodyRead(): boolean {
    return this.bodyRead;
  }

  /** Refused for want of time in this turn: counted as any other, but not logged on its own. */
  refuseShed(): void {
    this.shed = true;
    this.host.shedding.refused();
    this.refuse({ code: 'overloaded', extras: {} });
  }

  /** After this, the answer closes the connection instead of waiting for the rest of the body. */
  closeAfterAnswer(): void {
    this.closing = true;
  }

  /**
   * The body; must be called before the request's handler returns. Rejects with `body_too_large`;
   * never settles when the client goes away.
   */
  body(bytesMax: number): Promise<Buffer> {
    return new Promise((resolve, reject) => {
      const chunks: Buffer[] = [];
      let length = 0;
      this.res.onData((chunk, isLast) => {
        if (this.ended) return;
        length += chunk.byteLength;
        this.host.metrics.bodyBytes += chunk.byteLength;
        if (length > bytesMax) {
          this.closing = true;
          reject(new HttpProblem('body_too_large', { detail: `The limit is ${bytesMax} bytes.` }));
          return;
        }
        // The chunk's memory is taken away when this returns.
        chunks.push(Buffer.from(new Uint8Array(chunk)));
        if (isLast) {
          this.bodyRead = true;
          resolve(Buffer.concat(chunks, length));
        }
      });
    });
  }

  /** The connection becomes a WebSocket: this exchange is over without an answer. */
  switched(): void {
    if (this.ended) return;
    this.ended = true;
    // The library does not tell of these when they end.
    this.host.metrics.connectionsChanged(-1);
    this.settle(SWITCHING_PROTOCOLS, undefined);
  }

  /** Answers with JSON (or nothing for 304). At most one answer is ever written. */
  answer(status: number, headers: Readonly<Record<string, string>>, body: string | Buffer): void {
    this.write(status, { 'content-type': 'application/json', ...headers }, body, undefined);
  }

  /**
   * Answers with pieces as they come. Rejects with what the first one rejects with: nothing was
   * written then. Whatever goes wrong later cuts the connection, as the end of this server does.
   */
  async stream(status: number, { headers, pieces }: AnswerStream): Promise<void> {
    if (this.method === 'HEAD') {
      this.write(status, { ...headers, 'cache-control': 'no-store' }, undefined, undefined);
      return;
    }
    try {
      const first = await pieces.next();
      if (this.ended) return;
      const sending = new ResponseStream(this.res, this.host.clock, () => this.host.draining);
      this.sending = sending;
      this.ended = true;
      const named = { ...headers, 'cache-control': 'no-store', 'x-request-id': this.requestId };
      this.res.cork(() => writeHead(this.res, { status, headers: named }));
      const isWhole = await this.sendAll(sending, first, pieces);
      this.settle(status, isWhole ? undefined : 'aborted');
      if (isWhole) sending.end();
      else sending.cut();
    } finally {
      await pieces.return(undefined);
    }
  }

  /** Whether everything was sent. */
  private async sendAll(
    sending: ResponseStream,
    first: IteratorResult<Buffer, unknown>,
    pieces: AsyncGenerator<Buffer>,
  ): Promise<boolean> {
    try {
      for (let piece = first; piece.done !== true; piece = await pieces.next()) {
        if (!(await sending.write(piece.value))) return false;
      }
      return true;
    } catch (error) {
      const fields = { requestId: this.requestId, route: this.template, error: describe(error) };
      this.host.log.error(fields, 'An answer was cut off.');
      return false;
    }
  }

  /** Answers with the problem that an error stands for; an unexpected one is logged. */
  fail(error: unknown): void {
    this.refuse(problemOf(error), error);
  }

  /** Answers with a problem; `error` is what it was made of, for the log. */
  refuse({ code, extras }: Refusal, error?: unknown): void {
    if (code === 'internal_error') {
      this.host.log.error(
        { requestId: this.requestId, route: this.template, error: describe(error) },
        'A request failed unexpectedly.',
      );
    }
    if (this.ended) return;
    this.host.metrics.failed(code);
    const details = problemDetails(code, this.requestId, extras);
    const headers = { 'content-type': PROBLEM_MEDIA_TYPE, ...problemHeaders(code, extras) };
    this.write(details.status, headers, JSON.stringify(details), code);
  }

  private write(
    status: number,
    headers: Readonly<Record<string, string>>,
    body: string | Buffer | undefined,
    code: ProblemCode | undefined,
  ): void {
    if (this.ended) return;
    const response = {
      status,
      headers: { ...headers, 'x-request-id': this.requestId },
      body,
      head: this.method === 'HEAD',
      close: this.closing || this.host.draining,
    };
    writeResponse(this.res, response, () => this.settle(status, code));
    this.ended = true;
  }

  private settle(status: number, code: ProblemCode | 'aborted' | undefined): void {
    if (this.settled) return;
    this.settled = true;
    const { metrics, log, clock } = this.host;
    metrics.inFlight -= 1;
    const durationMs = clock.monotonicMs() - this.startedMs;
    metrics.counter(this.template, this.method, status).count += 1;
    metrics.duration(this.template).observe(durationMs);
    if (this.shed) return;
    log.info(
      {
        route: this.template,
        method: this.method,
        status,
        ...(code === undefined ? {} : { code }),
        durationMs: Math.round(durationMs * 1000) / 1000,
        requestId: this.requestId,
        ...(this.traceId === undefined ? {} : { traceId: this.traceId }),
        client: this.client,
      },
      'A request ended.',
    );
  }

  private joinedHeader(name: string): string {
    if (!this.host.addresses.believesHeaders) return '';
    return this.headers
      .filter(([candidate]) => candidate === name)
      .map(([, value]) => value)
      .join(', ');
  }
}

const CODES_WITH_DETAIL: ReadonlySet<string> = new Set([
  ...DEVICE_CODES,
  ...KILL_LIST_CODES,
  ...GATEWAY_CODES,
  ...AUDIT_CODES,
]);

/**
 * The problem that an error stands for. Only what these actors say is passed on in words:
 * the text of a store's error may name hosts and files.
 */
export function problemOf(error: unknown): Refusal {
  if (error instanceof HttpProblem) return { code: error.code, extras: error.extras };
  if (!(error instanceof CodedError)) return { code: 'internal_error', extras: {} };
  const detailed = CODES_WITH_DETAIL.has(error.code) && error.message !== error.code;
  return {
    code: problemCodeOf(error.code),
    extras: {
      ...(detailed ? { detail: error.message } : {}),
      ...(error.retryAfterSeconds === undefined
        ? {}
        : { retryAfterSeconds: error.retryAfterSeconds }),
    },
  };
}
