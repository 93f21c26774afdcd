/**
 * Serves the route table: everything that holds for every route (matching, headers, credentials,
 * validation, caching, errors) happens here, in this order, once.
 */

import type { HttpRequest, HttpResponse } from 'uWebSockets.js';
import { digestOf, isWellFormedSecret } from '../actors/secrets.js';
import { CodedError, describe, isFailure } from '../runtime/failure.js';
import { isStale } from '../runtime/freshness.js';
import { type AdminTokens, bearerCredential } from './authorization.js';
import { entityTag, matchesEntityTag } from './entity-tag.js';
import { Exchange, type ExchangeHost, problemOf } from './exchange.js';
import { countFailure, failureClassOf, GatewayUnknown, type Refusal } from './failed-attempts.js';
import type { RequestCounter } from './front-metrics.js';
import { checkedIdempotencyKey, idempotencyOf } from './idempotency.js';
import { parseJsonBody } from './json-body.js';
import { ROUTE_WEIGHT } from './load-shedding.js';
import { HttpProblem } from './problem-details.js';
import type { RouteCaller, RouteContext } from './route.js';
import { type Answer, BODY_BYTES_MAX, type Call, isJudgedAtTheDoor, type Route } from './route.js';
import { type Matched, parameterOf, Router } from './router.js';
import { decodedQuery, decodedSegment } from './url.js';
import { queryValues, validated } from './validation.js';

/** What the front server tells the routes; the tokens may be replaced at any time. */
export interface RouteServerOptions {
  readonly routes: readonly Route[];
  readonly host: ExchangeHost;
  readonly context: RouteContext;
  readonly adminTokens: () => AdminTokens;
  readonly hmacKey: Buffer;
}

/** Headers that must not come twice: each decides something, and a proxy may pick the other one. */
const SINGLE_HEADERS = new Set([
  'authorization',
  'content-type',
  'content-length',
  'host',
  'idempotency-key',
  'if-none-match',
]);
/** The label of what was refused before its route was looked for. */
const SHED = '(refused unread)';
/** Tab is the one control character that RFC 9110 §5.5 allows in a value. */
const CONTROL = /\p{Cc}/u;
const JSON_MEDIA_TYPE = /^application\/json *(?:; *charset="?utf-8"? *)?$/i;

/** A request that may be handled as soon as its body is there. */
interface Admitted {
  readonly route: Route;
  readonly path: unknown;
  readonly canonicalPath: string;
  readonly query: unknown;
  /** Undefined: a gateway's token has to be judged first. */
  readonly caller: RouteCaller | undefined;
  readonly key: string | undefined;
}

/** A caller, and since when what is known of it is known; 0 when that does not age. */
interface Judged {
  readonly caller: RouteCaller;
  readonly freshSinceMs: number;
}

/** Serves every route of a table; one for each front server. */
export class RouteServer {
  private readonly router: Router;
  private readonly shed: RequestCounter;

  constructor(private readonly options: RouteServerOptions) {
    this.router = new Router(options.routes);
    this.shed = options.host.metrics.counter(SHED, 'GET', 503);
  }

  /**
   * The handler for GET below `/api/`, which merely looks: with too many of them, one is refused
   * before anything is taken out of it, since refusing has to cost a part of serving. Never throws.
   */
  serveLook(res: HttpResponse, req: HttpRequest): void {
    const { host } = this.options;
    if (host.shedding.take(ROUTE_WEIGHT)) {
      this.exchange(res, req, true);
      return;
    }
    this.shed.count += 1;
    host.shedding.refuse(res, req.getHeader('x-request-id'), host.draining);
  }

  /** The handler for every other path that no handler takes. Never throws. */
  serve(res: HttpResponse, req: HttpRequest): void {
    this.exchange(res, req, this.options.host.shedding.take(ROUTE_WEIGHT));
  }

  private exchange(res: HttpResponse, req: HttpRequest, taken: boolean): void {
    let exchange: Exchange | undefined;
    res.onAborted(() => exchange?.abort());
    try {
      exchange = new Exchange(this.options.host, res, req);
      void this.begin(exchange, taken);
    } catch (error) {
      this.options.host.log.error({ error: describe(error) }, 'A request could not be read.');
      res.close();
    }
  }

  /** Never rejects. */
  private async begin(exchange: Exchange, taken: boolean): Promise<void> {
    try {
      if (exchange.hasTwoLengths) {
        await new Promise<void>((resolve) => this.options.host.clock.afterTurn(resolve));
        throw new HttpProblem('headers_invalid', { detail: 'content-length must come once.' });
      }
      const admitted = this.admit(exchange);
      if (!taken && !mayStopOverload(admitted)) {
        if (leavesLongBody(exchange)) exchange.closeAfterAnswer();
        exchange.refuseShed();
        return;
      }
      // Asked for before the first await, while the library still takes the handler.
      const bytes = admitted.route.body === undefined ? undefined : this.body(exchange, admitted);
      await this.handle(exchange, admitted, await bytes);
    } catch (error) {
      this.refuse(exchange, error);
    }
  }

  private admit(exchange: Exchange): Admitted {
    const matched = this.router.match(exchange.method, exchange.path);
    if (matched === undefined) throw new HttpProblem('route_unknown');
    exchange.template = matched.template;
    const { route, allow } = matched;
    if (route === undefined) throw new HttpProblem('method_not_allowed', { allow });
    checkHeaders(exchange);
    const caller = this.authenticate(exchange, route);
    const decoded = decodedParameters(matched);
    const path = route.pathParameters && validated('path', decoded, route.pathParameters);
    const query =
      route.query &&
      validated('query', queryValues(decodedQuery(exchange.query), route.query), route.query);
    return {
      route,
      path,
      canonicalPath: canonicalPath(route.path, path),
      query,
      caller,
      key:
        route.method === 'GET'
          ? undefined
          : checkedIdempotencyKey(exchange.header('idempotency-key')),
    };
  }

  private authenticate(exchange: Exchange, route: Route): RouteCaller | undefined {
    if (!isJudgedAtTheDoor(route.access)) return { kind: 'none' };
    const credential = bearerCredential(exchange.header('authorization') ?? '');
    if (credential === undefined) throw new HttpProblem('credential_missing');
    const name = this.options.adminTokens().nameOf(credential);
    if (name !== undefined) return { kind: 'admin', name };
    const { access } = route;
    const admitsDevices = access === 'device-or-admin' || access === 'decision-asker';
    if (admitsDevices && credential.startsWith('halo_device_')) {
      if (!isWellFormedSecret(credential, 'device')) throw new HttpProblem('device_unknown');
      return { kind: 'device', credentialDigest: digestOf(credential) };
    }
    const admitsGateways = access === 'gateway-or-viewer' || access === 'decision-asker';
    if (admitsGateways && credential.startsWith('halo_gateway_')) {
      if (!isWellFormedSecret(credential, 'gateway')) throw new GatewayUnknown();
      return undefined;
    }
    throw new HttpProblem('token_unknown');
  }

  /** Asks the gateways actor for the gateway behind the bearer token. */
  private gateway(exchange: Exchange): Promise<Judged> {
    const credential = bearerCredential(exchange.header('authorization') ?? '') ?? '';
    return new Promise((resolve, reject) => {
      this.options.context.gateways.authenticate(digestOf(credential), {
        answered: (answer, freshSinceMs) => {
          if (!isFailure(answer)) {
            resolve({ caller: { kind: 'gateway', id: answer as string }, freshSinceMs });
          } else if (answer.failure === 'token_unknown') reject(new GatewayUnknown());
          else reject(new CodedError(answer.failure, answer.detail ?? answer.failure));
        },
      });
    });
  }

  private body(exchange: Exchange, { route }: Admitted): Promise<Buffer> {
    const bytesMax = route.body?.bytesMax ?? BODY_BYTES_MAX;
    if (declaredLength(exchange) > bytesMax) {
      throw new HttpProblem('body_too_large', { detail: `The limit is ${bytesMax} bytes.` });
    }
    return exchange.body(bytesMax);
  }

  private async handle(
    exchange: Exchange,
    admitted: Admitted,
    bytes: Buffer | undefined,
  ): Promise<void> {
    const { route, key } = admitted;
    const received = bytes === undefined ? undefined : parsedBody(exchange, route, bytes);
    const body =
      route.body && validated('body', received === undefined ? {} : received, route.body.struct);
    const { caller, freshSinceMs } = admitted.caller
      ? { caller: admitted.caller, freshSinceMs: 0 }
      : await this.gateway(exchange);
    const condition = exchange.header('if-none-match');
    const call: Call<unknown, unknown, unknown> = {
      path: admitted.path,
      query: admitted.query,
      body,
      caller,
      matches: (tag) => condition !== undefined && matchesEntityTag(condition, tag),
      idempotency: (principal) => {
        if (key === undefined) return undefined;
        const keyed = { method: route.method, path: admitted.canonicalPath, key, body: received };
        return idempotencyOf(keyed, principal, this.options.hmacKey);
      },
    };
    const answer = await route.handle(call as Call<never, never, never>, this.options.context);
    if (exchange.isOver) return;
    if (isStale(freshSinceMs, this.options.host.clock.monotonicMs())) {
      throw new HttpProblem('stale');
    }
    if (answer.stream === undefined) respond(exchange, route, answer);
    else await exchange.stream(answer.status, answer.stream);
  }

  private refuse(exchange: Exchange, error: unknown): void {
    try {
      if (leavesLongBody(exchange)) exchange.closeAfterAnswer();
      const refusal = problemOf(error);
      const failureClass = failureClassOf(refusal.code, error);
      if (failureClass === undefined) {
        exchange.refuse(refusal, error);
        return;
      }
      const { limiter } = this.options.context;
      countFailure(limiter, failureClass, exchange.client, refusal, (counted) => {
        this.answerCounted(exchange, counted);
      });
    } catch (fault) {
      this.unanswered(fault);
    }
  }

  private answerCounted(exchange: Exchange, refusal: Refusal): void {
    try {
      exchange.refuse(refusal);
    } catch (fault) {
      this.unanswered(fault);
    }
  }

  private unanswered(fault: unknown): void {
    this.options.host.log.error({ error: describe(fault) }, 'A problem could not be answered.');
  }
}

/** Whoever revokes or kills may end the overload, and whoever asks for health must hear of it. */
function mayStopOverload({ route, caller }: Admitted): boolean {
  return route.access === 'none' || (caller?.kind === 'admin' && route.method !== 'GET');
}

function checkHeaders(exchange: Exchange): void {
  const seen = new Set<string>();
  for (const [name, value] of exchange.headers) {
    if (CONTROL.test(value.replaceAll('\t', ' '))) {
      throw new HttpProblem('headers_invalid', { detail: 'A header has control characters.' });
    }
    if (!SINGLE_HEADERS.has(name)) continue;
    if (seen.has(name)) {
      throw new HttpProblem('headers_invalid', { detail: `${name} must come once.` });
    }
    seen.add(name);
  }
}

function decodedParameters(matched: Matched): Record<string, string> {
  return Object.fromEntries(
    Object.entries(matched.parameters).map(([key, value]) => [key, decodedSegment(value)]),
  );
}

/** One spelling for one resource, however its parameters were encoded. */
function canonicalPath(template: string, path: unknown): string {
  const values = (path ?? {}) as Readonly<Record<string, string>>;
  return template
    .split('/')
    .map((segment) => {
      const parameter = parameterOf(segment);
      return parameter === undefined ? segment : encodeURIComponent(values[parameter] ?? '');
    })
    .join('/');
}

/** What the client says; 0 when it does not say. */
function declaredLength(exchange: Exchange): number {
  return Number(exchange.header('content-length') ?? 0);
}

/** Whether more of a body may come than is worth reading only to keep the connection. */
function leavesLongBody(exchange: Exchange): boolean {
  if (exchange.isBodyRead) return false;
  return (
    exchange.header('transfer-encoding') !== undefined || declaredLength(exchange) > BODY_BYTES_MAX
  );
}

/** Undefined for an absent body where that is allowed. */
function parsedBody(exchange: Exchange, route: Route, bytes: Buffer): unknown {
  if (bytes.length === 0 && route.body?.optional === true) return undefined;
  const mediaType = exchange.header('content-type') ?? '';
  if (bytes.length > 0 && !JSON_MEDIA_TYPE.test(mediaType.trim())) {
    throw new HttpProblem('media_type_unsupported');
  }
  return parseJsonBody(bytes);
}

function respond(exchange: Exchange, route: Route, answer: Answer): void {
  const { status, body } = answer;
  const text = body === undefined ? '' : Buffer.isBuffer(body) ? body : JSON.stringify(body);
  if (route.caching === 'no-store') {
    exchange.answer(status, { 'cache-control': 'no-store' }, text);
    return;
  }
  const etag = answer.entityTag ?? entityTag(text);
  const headers = { etag, 'cache-control': 'private, no-cache' };
  const condition = exchange.header('if-none-match');
  if (condition !== undefined && matchesEntityTag(condition, etag)) {
    exchange.answer(304, headers, '');
  } else {
    exchange.answer(status, headers, text);
  }
}
