/**
 * What a route is. The route table is the one source of the router, of validation and of OpenAPI;
 * handlers see checked values and never a socket.
 */
import type { Struct } from 'superstruct';
import type { Idempotency } from '../actors/devices/messages.js';
import type { ProblemCode } from './problems.js';
import type { KillListAnswer } from './push/kill-list-document.js';
import type { FrontServices, Readiness } from './services.js';

export type Method = 'GET' | 'POST' | 'PUT' | 'PATCH' | 'DELETE';

/**
 * Who may call: nobody in particular, an administrator, whoever may look, read the evidence or
 * approve (today administrators), a device or an administrator, a gateway or whoever may look, any
 * of these three who asks for decisions, a gateway that what serves its upgrade judges, or whoever
 * has an enrolment token in the body.
 */
export type Access =
  | 'none'
  | 'admin'
  | 'viewer'
  | 'auditor'
  | 'device-or-admin'
  | 'gateway-or-viewer'
  | 'decision-asker'
  | 'approver'
  | 'upgrading-gateway'
  | 'enrollment-token';

/**
 * Who called. A device's credential is judged by the actor that is asked; a gateway's was judged
 * before the handler is called.
 */
export type RouteCaller =
  | { readonly kind: 'none' }
  | { readonly kind: 'admin'; readonly name: string }
  | { readonly kind: 'device'; readonly credentialDigest: string }
  | { readonly kind: 'gateway'; readonly id: string };

/** A request with everything checked that can be checked without asking an actor. */
export interface Call<Path, Query, Body> {
  readonly path: Path;
  readonly query: Query;
  readonly body: Body;
  readonly caller: RouteCaller;
  /** The request's `Idempotency-Key` as the actor takes it; undefined without one. */
  idempotency(principal: string): Idempotency | undefined;
  /** Whether `If-None-Match` names this entity tag: the body of the answer will not be sent. */
  matches(entityTag: string): boolean;
}

/**
 * What a handler answers. Times and ids are already text; `body` is written as JSON, and a Buffer
 * is JSON already.
 */
export interface Answer {
  readonly status: number;
  readonly body: unknown;
  /** Of routes with `entity-tag`: the tag, quotes included; default: made of the body. */
  readonly entityTag?: string;
  /** Instead of a body. */
  readonly stream?: AnswerStream;
}

/**
 * An answer that is made while it is sent. What its first piece throws is answered as a problem;
 * after that nobody could be told, and the connection is cut.
 */
export interface AnswerStream {
  readonly headers: Readonly<Record<string, string>>;
  /** Asked for one after another, as the client takes them; told when no more is wanted. */
  readonly pieces: AsyncGenerator<Buffer>;
}

/** What handlers may use. */
export interface RouteContext extends Omit<FrontServices, 'sendAsks'> {
  readonly readiness: () => Readiness;
  readonly openApi: () => unknown;
  /** The kill list after a catch-up that began after this call. */
  readonly killList: () => Promise<KillListAnswer>;
}

/** One success a route can answer with; `body` is what tests hold answers against. */
export interface AnswerShape {
  readonly status: number;
  readonly description: string;
  /** Default: JSON. Anything else is a stream of text. */
  readonly mediaType?: string;
  readonly body: Struct<unknown, unknown>;
}

/** An entry of the route table; `defineRoute` ties its handler to its structs. */
export interface Route {
  readonly operationId: string;
  readonly summary: string;
  readonly method: Method;
  /** Literal segments and `{parameters}`. */
  readonly path: string;
  readonly access: Access;
  readonly pathParameters?: Struct<unknown, unknown>;
  readonly query?: Struct<unknown, unknown>;
  readonly body?: {
    readonly struct: Struct<unknown, unknown>;
    /** An absent body is as `{}`. */
    readonly optional: boolean;
    /** Default: `BODY_BYTES_MAX`. */
    readonly bytesMax?: number;
  };
  readonly answers: readonly AnswerShape[];
  /** Beside those that follow from access, parameters and body; see `problemsOf`. */
  readonly problems: readonly ProblemCode[];
  /** `entity-tag`: strong ETag and 304. `no-store`: a secret or a decision. */
  readonly caching: 'entity-tag' | 'no-store';
  handle(call: Call<never, never, never>, context: RouteContext): Answer | Promise<Answer>;
}

/** Far above any body here (a few fields of 256 characters), far below what hurts. */
export const BODY_BYTES_MAX = 64 * 1024;

interface TypedRoute<Path, Query, Body>
  extends Omit<Route, 'pathParameters' | 'query' | 'body' | 'answers' | 'handle'> {
  readonly pathParameters?: Struct<Path, unknown> | Struct<Path, never>;
  readonly query?: Struct<Query, unknown> | Struct<Query, never>;
  readonly body?: {
    readonly struct: Struct<Body, unknown> | Struct<Body, never>;
    readonly optional: boolean;
    readonly bytesMax?: number;
  };
  readonly answers: readonly (Omit<AnswerShape, 'body'> & { readonly body: object })[];
  handle(call: Call<Path, Query, Body>, context: RouteContext): Answer | Promise<Answer>;
}

/** Ties the handler's types to the structs; the table holds the routes without their types. */
export function defineRoute<Path = undefined, Query = undefined, Body = undefined>(
  route: TypedRoute<Path, Query, Body>,
): Route {
  return route as unknown as Route;
}

/** The name of an administrator; such routes are not reached by anyone else. */
export function adminName(caller: RouteCaller): string {
  if (caller.kind !== 'admin') throw new Error('the route admits more than administrators');
  return caller.name;
}

const ALWAYS: readonly ProblemCode[] = ['headers_invalid', 'url_invalid', 'internal_error'];
const ASKING: readonly ProblemCode[] = [
  'overloaded',
  'deadline_exceeded',
  'actor_restarted',
  'store_unavailable',
];

/** Whether the bearer credential is judged before the handler is called. */
export function isJudgedAtTheDoor(access: Access): boolean {
  return access !== 'none' && access !== 'enrollment-token' && access !== 'upgrading-gateway';
}

/** Every code that a route can answer: its own and those that follow from what it takes. */
export function problemsOf(route: Route): ProblemCode[] {
  const codes = new Set<ProblemCode>([...ALWAYS, ...route.problems]);
  if (isJudgedAtTheDoor(route.access)) {
    codes.add('credential_missing').add('token_unknown').add('too_many_failures');
    codes.add('overloaded');
  }
  if (route.access === 'gateway-or-viewer' || route.access === 'decision-asker') codes.add('stale');
  if (route.pathParameters !== undefined || route.query !== undefined) {
    codes.add('validation_failed');
  }
  if (route.body !== undefined) {
    codes.add('validation_failed').add('body_invalid_json');
    codes.add('media_type_unsupported').add('body_too_large');
  }
  return [...codes].sort();
}

/** Codes of whatever asks an actor; a mutation's outcome may also be unknown. */
export function askingProblems(kind: 'read' | 'mutation'): ProblemCode[] {
  if (kind === 'read') return [...ASKING];
  return [...ASKING, 'outcome_unknown', 'idempotency_mismatch', 'idempotency_in_progress'];
}
