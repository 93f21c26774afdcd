/** Problem details (RFC 9457) out of the catalogue: what every refusal looks like on the wire. */
import { PROBLEMS, type ProblemCode } from './problems.js';

export const PROBLEM_MEDIA_TYPE = 'application/problem+json';
/** Where `type` points: an anchor for each code. A relative reference, since no host is ours. */
const TYPE_PREFIX = '/docs/errors#';

/** One field that is not as it should be. The received value is never part of it. */
export interface FieldError {
  readonly in: 'body' | 'path' | 'query' | 'header';
  /** JSON pointer (RFC 6901) into it; '' is the whole. */
  readonly pointer: string;
  readonly detail: string;
}

/** What may be said beyond the catalogue. */
export interface ProblemExtras {
  readonly detail?: string;
  readonly retryAfterSeconds?: number;
  readonly errors?: readonly FieldError[];
  /** Why a replica is not ready. */
  readonly reasons?: readonly string[];
  /** What was decided before. */
  readonly decision?: object;
  /** Methods of the route, for 405. */
  readonly allow?: string;
}

/** Thrown by anything in this folder to answer with a problem. */
export class HttpProblem extends Error {
  constructor(
    readonly code: ProblemCode,
    readonly extras: ProblemExtras = {},
  ) {
    super(code);
    this.name = 'HttpProblem';
  }
}

/** The object on the wire, in the order in which it is written. */
export interface ProblemDetails {
  readonly type: string;
  readonly title: string;
  readonly status: number;
  readonly detail?: string;
  readonly code: ProblemCode;
  readonly requestId: string;
  readonly retryable: boolean;
  readonly retryAfterSeconds?: number;
  readonly errors?: readonly FieldError[];
  readonly reasons?: readonly string[];
  readonly decision?: object;
}

/** What a code is to the caller; only `extras` differ from one occasion to the next. */
export function problemDetails(
  code: ProblemCode,
  requestId: string,
  extras: ProblemExtras = {},
): ProblemDetails {
  const problem = PROBLEMS[code];
  const retryAfterSeconds = extras.retryAfterSeconds ?? problem.retryAfterSeconds;
  return {
    type: TYPE_PREFIX + code,
    title: problem.title,
    status: problem.status,
    ...(extras.detail === undefined ? {} : { detail: extras.detail }),
    code,
    requestId,
    retryable: problem.retryable,
    ...(retryAfterSeconds === undefined ? {} : { retryAfterSeconds }),
    ...(extras.errors === undefined ? {} : { errors: extras.errors }),
    ...(extras.reasons === undefined ? {} : { reasons: extras.reasons }),
    ...(extras.decision === undefined ? {} : { decision: extras.decision }),
  };
}

/** Headers that go with a problem, beside `content-type` and the request id. */
export function problemHeaders(
  code: ProblemCode,
  extras: ProblemExtras = {},
): Record<string, string> {
  const problem = PROBLEMS[code];
  const retryAfterSeconds = extras.retryAfterSeconds ?? problem.retryAfterSeconds;
  return {
    'cache-control': 'no-store',
    ...(problem.status === 401 ? { 'www-authenticate': 'Bearer' } : {}),
    // RFC 9110 §15.5.22 and §7.8: what to upgrade to, for this connection.
    ...(problem.status === 426 ? { upgrade: 'websocket', connection: 'upgrade' } : {}),
    ...(retryAfterSeconds === undefined
      ? {}
      : { 'retry-after': String(Math.max(1, Math.ceil(retryAfterSeconds))) }),
    ...(extras.allow === undefined ? {} : { allow: extras.allow }),
  };
}

const REASON_PHRASES: Readonly<Record<number, string>> = {
  200: 'OK',
  201: 'Created',
  304: 'Not Modified',
  400: 'Bad Request',
  401: 'Unauthorized',
  403: 'Forbidden',
  404: 'Not Found',
  405: 'Method Not Allowed',
  409: 'Conflict',
  413: 'Content Too Large',
  415: 'Unsupported Media Type',
  422: 'Unprocessable Content',
  426: 'Upgrade Required',
  429: 'Too Many Requests',
  500: 'Internal Server Error',
  503: 'Service Unavailable',
};

/** The status line's text, such as `404 Not Found`. */
export function statusLine(status: number): string {
  const phrase = REASON_PHRASES[status];
  return phrase === undefined ? String(status) : `${status} ${phrase}`;
}
