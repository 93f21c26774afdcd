/**
 * The hot path: any method on `/api/v1/auth/device` and below. It is written for the processor:
 * one pass over the headers, one digest, one ask, one cork with one header call and one end. No
 * promise, no closure but the abort handler; the clock is read once per turn, and once per allow.
 */
import type { HttpRequest, HttpResponse, TemplatedApp } from 'uWebSockets.js';
import type { DevicesClient } from '../actors/devices/client.js';
import { allowedId, allowedUser } from '../actors/devices/messages.js';
import type { LimiterClient } from '../actors/limiter/client.js';
import { digestOf, isWellFormedSecret } from '../actors/secrets.js';
import type { AnswerSink } from '../runtime/ask.js';
import { describe, type Failure, isFailure } from '../runtime/failure.js';
import { isStale } from '../runtime/freshness.js';
import type { Histogram } from '../runtime/histogram.js';
import { bearerCredential } from './authorization.js';
import type { ExchangeHost } from './exchange.js';
import { countFailure, failureClassOf, type Refusal } from './failed-attempts.js';
import { OTHER_METHOD, type RequestCounter } from './front-metrics.js';
import {
  PROBLEM_MEDIA_TYPE,
  type ProblemExtras,
  problemDetails,
  problemHeaders,
} from './problem-details.js';
import { type ProblemCode, problemCodeOf } from './problems.js';
import { isSaneRequestId } from './request-id.js';
import { writeResponse } from './response.js';
import { DEVICE_AUTHENTICATION_PATHS } from './routes/device-authentication.js';
import { parseTraceparent } from './trace-context.js';
import type { TurnClock } from './turn-clock.js';
import { headerEncoded } from './user-name.js';

const PREFIX = 'Bearer halo_device_';
/** Where the credential begins after `Bearer `. */
const CREDENTIAL_START = 7;
/** `halo_device_`, 43 random characters and 6 of the checksum. */
const CREDENTIAL_LENGTH = 61;
/** An id and a user that need no escaping, neither in a header nor in JSON. */
const PLAIN = /^[!#$&-[\]-~]+$/;
const VISIBLE_ASCII = /^[!-~]+$/;

/** What one request says that matters here, filled by `noteHeader`; valid only during a handler. */
const noted = {
  authorization: '',
  authorizations: 0,
  lengths: 0,
  requestId: '',
  traceparent: '',
  forwarded: '',
  xForwardedFor: '',
};

/** One pass costs less than three look-ups, and shows an `Authorization` that came twice. */
function noteHeader(name: string, value: string): void {
  switch (name.length) {
    case 13:
      if (name === 'authorization') {
        noted.authorization = value;
        noted.authorizations += 1;
      }
      break;
    case 14:
      if (name === 'content-length') noted.lengths += 1;
      break;
    case 12:
      if (name === 'x-request-id') noted.requestId = value;
      break;
    case 11:
      if (name === 'traceparent') noted.traceparent = value;
      break;
    case 15:
      if (name === 'x-forwarded-for') noted.xForwardedFor = joined(noted.xForwardedFor, value);
      break;
    case 9:
      if (name === 'forwarded') noted.forwarded = joined(noted.forwarded, value);
      break;
  }
}

/** Several headers of a name are one list. Without a comma at its end: an empty hop ends it. */
function joined(before: string, value: string): string {
  return before === '' ? value : `${before},${value}`;
}

function readHeaders(req: HttpRequest): void {
  noted.authorization = '';
  noted.authorizations = 0;
  noted.lengths = 0;
  noted.requestId = '';
  noted.traceparent = '';
  noted.forwarded = '';
  noted.xForwardedFor = '';
  req.forEach(noteHeader);
}

/** What is the same for every request with one path and one method. */
interface Entrance {
  readonly template: string;
  readonly method: string;
  readonly head: boolean;
  readonly allowed: RequestCounter;
  readonly shed: RequestCounter;
  readonly durationMs: Histogram;
}

/** The allow that is being written: `writeAllowed` reads it, so that corking takes no closure. */
let writing: { res: HttpResponse; headers: string; body: string; head: boolean; close: boolean };

function writeAllowed(): void {
  const { res, headers, body, head, close } = writing;
  if (head) {
    const length = String(Buffer.byteLength(body, 'utf8'));
    // See response.ts: with a length given to it, `endWithoutBody` would not end.
    const rest = close ? `\r\nconnection: close` : '';
    res.writeHeader('x-halo-device', `${headers}\r\ncontent-length: ${length}${rest}`);
    res.endWithoutBody();
    return;
  }
  res.writeHeader('x-halo-device', headers);
  if (close) res.end(body, true);
  else res.end(body);
}

/** One request between its arrival and its answer. */
class PendingAuthentication implements AnswerSink {
  /** Answered, or the client went away: nothing may be written any more. */
  over = false;

  constructor(
    private readonly door: DeviceAuthentication,
    readonly entrance: Entrance,
    readonly res: HttpResponse,
    readonly startedMs: number,
    readonly credential: string,
    readonly requestId: string,
    readonly traceparent: string,
    readonly forwarded: string,
    readonly xForwardedFor: string,
  ) {}

  answered(answer: unknown, freshSinceMs: number): void {
    this.door.answer(this, answer, freshSinceMs);
  }
}

/** The door for devices of one front server; holds no state beyond the requests in flight. */
export class DeviceAuthentication {
  constructor(
    private readonly devices: DevicesClient,
    private readonly limiter: LimiterClient,
    private readonly host: ExchangeHost,
    private readonly clock: TurnClock,
    private readonly logAllowed: boolean,
  ) {}

  /** Registers a handler for each method, which then need not be asked for. */
  register(app: TemplatedApp): void {
    for (const path of DEVICE_AUTHENTICATION_PATHS) {
      app.get(path, this.handler(path, 'GET'));
      app.head(path, this.handler(path, 'HEAD'));
      app.post(path, this.handler(path, 'POST'));
      app.put(path, this.handler(path, 'PUT'));
      app.patch(path, this.handler(path, 'PATCH'));
      app.del(path, this.handler(path, 'DELETE'));
      app.options(path, this.handler(path, 'OPTIONS'));
      app.any(path, this.handler(path, OTHER_METHOD));
    }
  }

  private handler(template: string, method: string): (res: HttpResponse, req: HttpRequest) => void {
    const { metrics } = this.host;
    const entrance: Entrance = {
      template,
      method,
      head: method === 'HEAD',
      allowed: metrics.counter(template, method, 200),
      shed: metrics.counter(template, method, 503),
      durationMs: metrics.duration(template),
    };
    return (res, req) => this.ask(entrance, res, req);
  }

  private ask(entrance: Entrance, res: HttpResponse, req: HttpRequest): void {
    try {
      const { shedding } = this.host;
      // A HEAD must not be answered with a body, and is too rare to have a short way of its own.
      if (!shedding.take(1) && !entrance.head) {
        entrance.shed.count += 1;
        shedding.refuse(res, req.getHeader('x-request-id'), this.host.draining);
        return;
      }
      readHeaders(req);
      const { authorization } = noted;
      const credential = authorization.startsWith(PREFIX)
        ? authorization.slice(CREDENTIAL_START)
        : bearerCredential(authorization);
      const pending = new PendingAuthentication(
        this,
        entrance,
        res,
        this.clock.nowMs(),
        credential ?? '',
        noted.requestId,
        noted.traceparent,
        noted.forwarded,
        noted.xForwardedFor,
      );
      res.onAborted(() => this.abort(pending));
      this.host.metrics.inFlight += 1;
      if (noted.lengths > 1) {
        // Whoever is in front may see the next request begin elsewhere (RFC 9112 §6.3).
        res.close();
      } else if (noted.authorizations > 1) {
        // No 400, which nginx's `auth_request` takes for a fault of this server.
        this.refuse(pending, 'credential_missing', { detail: 'Authorization must come once.' });
      } else if (credential === undefined) {
        this.refuse(pending, 'credential_missing');
      } else if (
        credential.length !== CREDENTIAL_LENGTH ||
        !credential.startsWith('halo_device_')
      ) {
        this.refuse(pending, 'device_unknown', { detail: 'This is not a device credential.' });
      } else {
        this.devices.authenticate(digestOf(credential), pending);
      }
    } catch (error) {
      this.fault(res, error);
    }
  }

  /** What the actor says, in whatever turn it says it. */
  answer(pending: PendingAuthentication, answer: unknown, freshSinceMs: number): void {
    if (pending.over) return;
    try {
      if (typeof answer === 'string') {
        if (isStale(freshSinceMs, this.clock.preciselyMs())) this.refuse(pending, 'stale');
        else this.allow(pending, answer);
      } else {
        const failure: Failure = isFailure(answer) ? answer : { failure: 'internal_error' };
        this.refuse(pending, problemCodeOf(failure.failure), extrasOf(failure, pending));
      }
    } catch (error) {
      this.fault(pending.res, error);
    }
  }

  private allow(pending: PendingAuthentication, packed: string): void {
    const { entrance } = pending;
    const id = allowedId(packed);
    const user = allowedUser(packed);
    const plain = PLAIN.test(packed);
    if (!plain && !VISIBLE_ASCII.test(id)) throw new Error('a device id is not visible ASCII');
    const requestId = this.requestIdOf(pending);
    writing = {
      res: pending.res,
      headers:
        `${id}\r\nx-halo-user: ${plain ? user : headerEncoded(user)}` +
        '\r\ncontent-type: application/json\r\ncache-control: no-store' +
        `\r\nx-request-id: ${requestId}`,
      body: plain
        ? `{"device":{"id":"${id}","user":"${user}"}}`
        : JSON.stringify({ device: { id, user } }),
      head: entrance.head,
      close: this.host.draining,
    };
    // The address is gone once the answer is written.
    const fields = this.logAllowed ? this.logFields(pending, 200, requestId) : undefined;
    this.settle(pending);
    pending.res.cork(writeAllowed);
    entrance.allowed.count += 1;
    entrance.durationMs.observe(this.clock.nowMs() - pending.startedMs);
    if (fields !== undefined) this.host.log.debug(fields, 'A device was let in.');
  }

  private refuse(
    pending: PendingAuthentication,
    code: ProblemCode,
    extras: ProblemExtras = {},
  ): void {
    const refusal = { code, extras };
    const failureClass = failureClassOf(code);
    if (failureClass === undefined) {
      this.writeRefusal(pending, refusal);
      return;
    }
    countFailure(this.limiter, failureClass, this.clientOf(pending), refusal, (counted) => {
      if (pending.over) return;
      try {
        this.writeRefusal(pending, counted);
      } catch (error) {
        this.fault(pending.res, error);
      }
    });
  }

  private writeRefusal(pending: PendingAuthentication, { code, extras }: Refusal): void {
    const { entrance, res } = pending;
    const requestId = this.requestIdOf(pending);
    const details = problemDetails(code, requestId, extras);
    const fields = { ...this.logFields(pending, details.status, requestId), code };
    const response = {
      status: details.status,
      headers: {
        'content-type': PROBLEM_MEDIA_TYPE,
        ...problemHeaders(code, extras),
        'x-request-id': requestId,
      },
      body: JSON.stringify(details),
      head: entrance.head,
      close: this.host.draining,
    };
    this.settle(pending);
    writeResponse(res, response, () => undefined);
    const { metrics, log } = this.host;
    metrics.failed(code);
    metrics.counter(entrance.template, entrance.method, details.status).count += 1;
    entrance.durationMs.observe(this.clock.nowMs() - pending.startedMs);
    log.info(fields, 'A request ended.');
  }

  private abort(pending: PendingAuthentication): void {
    if (pending.over) return;
    this.settle(pending);
    this.host.metrics.aborted += 1;
  }

  private settle(pending: PendingAuthentication): void {
    pending.over = true;
    this.host.metrics.inFlight -= 1;
  }

  /** A bug: the log has it, and the connection is closed, since nothing sure can be said. */
  private fault(res: HttpResponse, error: unknown): void {
    this.host.log.error({ error: describe(error) }, 'A device authentication failed unexpectedly.');
    this.host.metrics.failed('internal_error');
    try {
      res.close();
    } catch {
      // It was closed or answered before.
    }
  }

  private requestIdOf({ requestId }: PendingAuthentication): string {
    return requestId !== '' && isSaneRequestId(requestId) ? requestId : this.host.requestIds.next();
  }

  private logFields(
    pending: PendingAuthentication,
    status: number,
    requestId: string,
  ): Record<string, unknown> {
    const { entrance } = pending;
    const traceId = parseTraceparent(pending.traceparent)?.traceId;
    const durationMs = this.clock.nowMs() - pending.startedMs;
    return {
      route: entrance.template,
      method: entrance.method,
      status,
      durationMs: Math.round(durationMs * 1000) / 1000,
      requestId,
      ...(traceId === undefined ? {} : { traceId }),
      client: this.clientOf(pending),
    };
  }

  /** Only while nothing is answered: after that the library no longer knows the address. */
  private clientOf({ res, forwarded, xForwardedFor }: PendingAuthentication): string {
    return this.host.addresses.of(res.getRemoteAddress(), { forwarded, xForwardedFor });
  }
}

/** A typing error is told apart from a guess only here, where it costs nothing to the allowed. */
function extrasOf(failure: Failure, pending: PendingAuthentication): ProblemExtras {
  const mistyped =
    failure.failure === 'device_unknown' && !isWellFormedSecret(pending.credential, 'device');
  return {
    ...(mistyped
      ? { detail: 'The checksum does not fit: the credential was mistyped or cut.' }
      : {}),
    ...(failure.retryAfterSeconds === undefined
      ? {}
      : { retryAfterSeconds: failure.retryAfterSeconds }),
  };
}
