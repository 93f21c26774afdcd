/**
 * The error catalogue: every code that this server can answer with, its HTTP status and whether a
 * retry can help. `docs/errors.md` says the same in prose and is tested equal to it. Codes are
 * stable; titles and details are for people and may change.
 */
import type { DecisionCode } from '../actors/decisions/messages.js';
import type { DeviceCode } from '../actors/devices/messages.js';
import type { GatewayCode } from '../actors/gateways/messages.js';
import type { KillListCode } from '../actors/kill-list/messages.js';
import type { LeaderCode } from '../actors/leader/messages.js';
import type { LimiterCode } from '../actors/limiter/messages.js';
import type { RuntimeCode } from '../runtime/failure.js';
import type { StoreCode } from '../storage/store-error.js';
import { DECISION_PROBLEMS, LOOKED_UP_PROBLEMS } from './decision-problems.js';
import { EVIDENCE_PROBLEMS, type EvidenceProblemCode } from './evidence-problems.js';
import { LEADER_PROBLEMS } from './leader-problems.js';

/** Codes that the HTTP front end itself answers with. */
export const HTTP_CODES = [
  'route_unknown',
  'method_not_allowed',
  'url_invalid',
  'headers_invalid',
  'body_too_large',
  'media_type_unsupported',
  'body_invalid_json',
  'validation_failed',
  'cursor_invalid',
  'credential_missing',
  'token_unknown',
  'upgrade_required',
  'too_many_streams',
  'not_ready',
  'evidence_unknown',
  'decision_unknown',
  'already_decided',
] as const;
export type HttpCode = (typeof HTTP_CODES)[number];

/** Codes between store and actor that no caller should have to know. */
export const INTERNAL_CODES = {
  /** The actor replays and is unready meanwhile: to the caller the store is away for a moment. */
  history_changed: 'store_unavailable',
  /** This replica must be replaced by a newer binary; another one may answer. */
  incompatible: 'store_unavailable',
  /** Refused at start, with its own exit code; a caller who sees it sees a replica going down. */
  damaged: 'store_unavailable',
  directory_held: 'store_unavailable',
  /** A statement that should never fail did: a bug, whose cause is in the log. */
  write_refused: 'internal_error',
  fenced: 'internal_error',
} as const satisfies Partial<Record<StoreCode, RuntimeCode | StoreCode>>;
type InternalCode = keyof typeof INTERNAL_CODES;

type ActorCode =
  | DeviceCode
  | KillListCode
  | GatewayCode
  | LimiterCode
  | EvidenceProblemCode
  | LeaderCode
  | DecisionCode;
export type ProblemCode = Exclude<RuntimeCode | StoreCode | ActorCode | HttpCode, InternalCode>;

/** What the catalogue says of a code. */
export interface Problem {
  readonly status: number;
  readonly title: string;
  /** Whether the same request, sent again later, can succeed. */
  readonly retryable: boolean;
  /** What `Retry-After` says unless the failure brings its own. Always there with a 503. */
  readonly retryAfterSeconds?: number;
  readonly meaning: string;
  readonly usualCause: string;
}

/**
 * One second: longer than a lost connection's re-dial or an actor's restart usually takes, short
 * enough that a device does not notice. Clients add their own jitter.
 */
const RETRY_AFTER_SECONDS = 1;

const HTTP_PROBLEMS: Record<Exclude<HttpCode, keyof typeof LOOKED_UP_PROBLEMS>, Problem> = {
  route_unknown: {
    status: 404,
    title: 'There is no such route',
    retryable: false,
    meaning: 'No route has this path. Nothing was done.',
    usualCause: 'A typing error in the path, or a server older than the client.',
  },
  method_not_allowed: {
    status: 405,
    title: 'The route does not have this method',
    retryable: false,
    meaning: 'The path exists with other methods; the `Allow` header names them.',
    usualCause: 'A GET where a POST was meant, or the reverse.',
  },
  url_invalid: {
    status: 400,
    title: 'The address is not well formed',
    retryable: false,
    meaning: 'The path or the query has a percent sequence that is not UTF-8.',
    usualCause: 'A client that encodes in another character set, or forgets to encode `%`.',
  },
  headers_invalid: {
    status: 400,
    title: 'A header is not well formed',
    retryable: false,
    meaning:
      'A header that may come once came twice, has control characters, or is not of its form ' +
      '(`Idempotency-Key`: 1 to 255 visible ASCII characters).',
    usualCause: 'A proxy that adds `Authorization` to a request that already has one.',
  },
  body_too_large: {
    status: 413,
    title: 'The body is too large',
    retryable: false,
    meaning: 'The body exceeds the limit of the route. The connection is closed.',
    usualCause: 'A file sent where an object with a few fields is expected.',
  },
  media_type_unsupported: {
    status: 415,
    title: 'The body must be application/json',
    retryable: false,
    meaning: 'The `Content-Type` is missing or not `application/json` in UTF-8.',
    usualCause: 'curl without `-H "content-type: application/json"`.',
  },
  body_invalid_json: {
    status: 400,
    title: 'The body is not valid JSON',
    retryable: false,
    meaning: 'The body is empty, not UTF-8, not JSON, or names a key twice or `__proto__`.',
    usualCause: 'A shell that ate the quotes.',
  },
  validation_failed: {
    status: 422,
    title: 'A field is not as it should be',
    retryable: false,
    meaning:
      '`errors` names each field (JSON pointer) and what it should be; never the value received. ' +
      'Unknown fields are refused too.',
    usualCause: 'A missing or misspelt field, or a value out of its bounds.',
  },
  cursor_invalid: {
    status: 400,
    title: 'The cursor is not valid',
    retryable: false,
    meaning: 'The cursor is not one of this list, or the store was restored since. Start over.',
    usualCause: 'A cursor kept across a restore, or cut while copying.',
  },
  credential_missing: {
    status: 401,
    title: 'A credential is needed',
    retryable: false,
    meaning:
      'The request has no `Authorization: Bearer …`, or a question about a device has several.',
    usualCause: 'A proxy that does not pass the header on.',
  },
  token_unknown: {
    status: 401,
    title: 'The token is not known',
    retryable: false,
    meaning: 'The bearer token is none that this route accepts.',
    usualCause: 'A token of another kind or another server, or one that was replaced.',
  },
  upgrade_required: {
    status: 426,
    title: 'The connection has to become a WebSocket',
    retryable: false,
    meaning: 'The path is a stream: it is opened by an upgrade, as `Upgrade` says.',
    usualCause: 'A proxy that does not pass `Upgrade` and `Connection` on, or a plain HTTP client.',
  },
  too_many_streams: {
    status: 429,
    title: 'The token has too many streams',
    retryable: true,
    retryAfterSeconds: RETRY_AFTER_SECONDS,
    meaning: 'As many streams as one token may have on a front thread are open. None was opened.',
    usualCause: 'A client that connects again without closing, or a token shared too widely.',
  },
  not_ready: {
    status: 503,
    title: 'This replica is not ready',
    retryable: true,
    retryAfterSeconds: RETRY_AFTER_SECONDS,
    meaning: '`reasons` lists why. Answered by `/readyz` only.',
    usualCause: 'A start, a shutdown, or a store that cannot be written.',
  },
};

const RUNTIME_PROBLEMS: Record<RuntimeCode, Problem> = {
  overloaded: {
    status: 503,
    title: 'Too much to do at the moment',
    retryable: true,
    retryAfterSeconds: RETRY_AFTER_SECONDS,
    meaning: 'A queue is full. Nothing was done.',
    usualCause: 'More load than this replica serves.',
  },
  deadline_exceeded: {
    status: 503,
    title: 'The request waited too long',
    retryable: true,
    retryAfterSeconds: RETRY_AFTER_SECONDS,
    meaning: 'The deadline passed while the request was queued. Nothing was done.',
    usualCause: 'A slow store, or more load than this replica serves.',
  },
  actor_restarted: {
    status: 503,
    title: 'The part that answers was restarted',
    retryable: true,
    retryAfterSeconds: RETRY_AFTER_SECONDS,
    meaning: 'The actor died while the request was pending. Nothing of it was committed.',
    usualCause: 'A bug, or memory that ran out; the log has the cause.',
  },
  outcome_unknown: {
    status: 503,
    title: 'It is not known whether it was done',
    retryable: true,
    retryAfterSeconds: RETRY_AFTER_SECONDS,
    meaning:
      'The commit was sent and its answer lost. With the same `Idempotency-Key` a retry is safe.',
    usualCause: 'A connection to the store that broke during a commit.',
  },
  stale: {
    status: 503,
    title: 'The answer would be too old',
    retryable: true,
    retryAfterSeconds: RETRY_AFTER_SECONDS,
    meaning: 'What the answer rests on was read more than a second ago, so nobody is let in on it.',
    usualCause: 'A process that was stopped and continued, or a machine out of processor time.',
  },
  internal_error: {
    status: 500,
    title: 'A fault of the server',
    retryable: false,
    meaning: 'Something failed that should not. The log has the cause under `requestId`.',
    usualCause: 'A bug. Please report it with the log line.',
  },
};

const STORE_PROBLEMS: Record<Exclude<StoreCode, InternalCode | RuntimeCode>, Problem> = {
  store_unavailable: {
    status: 503,
    title: 'The store is not available',
    retryable: true,
    retryAfterSeconds: RETRY_AFTER_SECONDS,
    meaning: 'The store cannot be reached, read or written. Nothing was done.',
    usualCause: 'A database that restarts or is cut off, or a full disk.',
  },
};

const DEVICE_PROBLEMS: Record<DeviceCode, Problem> = {
  device_unknown: {
    status: 401,
    title: 'The device credential is not known',
    retryable: false,
    meaning: 'The bearer credential belongs to no device.',
    usualCause: 'A credential that was rotated, cut while copying, or is of another server.',
  },
  device_revoked: {
    status: 403,
    title: 'The device is revoked',
    retryable: false,
    meaning: 'An operator revoked the device. This is for good: enrol it again.',
    usualCause: 'A lost or replaced device.',
  },
  device_killed: {
    status: 403,
    title: 'The device or its user is on the kill list',
    retryable: false,
    meaning: 'An operator put the device or its user on the kill list. A lift lets it in again.',
    usualCause: 'An incident; the kill list says who did it and why.',
  },
  device_not_found: {
    status: 404,
    title: 'There is no such device',
    retryable: false,
    meaning: 'No device has this id.',
    usualCause: 'An id cut while copying, or of another server.',
  },
  enrollment_token_invalid: {
    status: 401,
    title: 'The enrolment token cannot be used',
    retryable: false,
    meaning: 'The token is spent, expired, voided or unknown, or was used with another key.',
    usualCause: 'A second use of a token; ask for a new one.',
  },
  rotation_refused: {
    status: 409,
    title: 'The credential cannot be rotated now',
    retryable: false,
    meaning: 'A credential that is being replaced cannot start another rotation.',
    usualCause: 'A rotation with the old credential; use the new one, or ask an administrator.',
  },
  not_own_device: {
    status: 403,
    title: 'A device may only rotate its own credential',
    retryable: false,
    meaning: 'The credential is valid, and belongs to another device than the path names.',
    usualCause: 'A wrong id in the path.',
  },
  idempotency_mismatch: {
    status: 422,
    title: 'The Idempotency-Key was used with another body',
    retryable: false,
    meaning: 'Within 24 hours a key stands for one request. Nothing was done.',
    usualCause: 'A key that is made once and not per request.',
  },
  idempotency_in_progress: {
    status: 409,
    title: 'The same request is in progress',
    retryable: true,
    retryAfterSeconds: RETRY_AFTER_SECONDS,
    meaning: 'Another request with this `Idempotency-Key` has not been answered yet.',
    usualCause: 'A retry sent before the first attempt was given up.',
  },
  replay_superseded: {
    status: 409,
    title: 'What this request made has been replaced since',
    retryable: false,
    meaning:
      'The request was carried out before, and the secret it answered with was replaced or ' +
      'revoked later, so it is not handed out again.',
    usualCause: 'A very late retry.',
  },
};

const KILL_LIST_PROBLEMS: Record<Exclude<KillListCode, DeviceCode>, Problem> = {
  kill_list_full: {
    status: 409,
    title: 'The kill list is full',
    retryable: false,
    meaning: 'The list holds as many entries as it may. Nothing was killed: lift some first.',
    usualCause: 'A script that kills and never lifts; kills without `expiresAt` stay for ever.',
  },
  kill_already_expired: {
    status: 422,
    title: 'The kill would be over already',
    retryable: false,
    meaning: '`expiresAt` is not in the future on the store’s clock. Nothing was killed.',
    usualCause: 'A clock that is behind, or a time without its offset from UTC.',
  },
};

const GATEWAY_PROBLEMS: Record<Exclude<GatewayCode, HttpCode>, Problem> = {
  gateway_not_found: {
    status: 404,
    title: 'There is no such gateway',
    retryable: false,
    meaning: 'No gateway has this id, or it was removed.',
    usualCause: 'An id cut while copying, or of another server.',
  },
  gateways_full: {
    status: 409,
    title: 'There are too many gateways',
    retryable: false,
    meaning: 'There are as many gateways as there may be. None was made: remove some first.',
    usualCause: 'A deployment that makes a gateway at every start and never removes one.',
  },
};

/** The limiter says how long; this is a whole block, for whoever reads the catalogue. */
const BLOCK_SECONDS = 60;

const LIMITER_PROBLEMS: Record<LimiterCode, Problem> = {
  too_many_failures: {
    status: 429,
    title: 'Too many attempts have failed',
    retryable: true,
    retryAfterSeconds: BLOCK_SECONDS,
    meaning:
      'The credential is not valid, and neither were ten others from the same address (the same ' +
      '/64 of IPv6) in the last minute, on all replicas together. A valid one still passes.',
    usualCause: 'A script that goes on with an old credential, or somebody who guesses.',
  },
};

export const PROBLEMS: Readonly<Record<ProblemCode, Problem>> = {
  ...HTTP_PROBLEMS,
  ...RUNTIME_PROBLEMS,
  ...STORE_PROBLEMS,
  ...DEVICE_PROBLEMS,
  ...KILL_LIST_PROBLEMS,
  ...GATEWAY_PROBLEMS,
  ...LIMITER_PROBLEMS,
  ...EVIDENCE_PROBLEMS,
  ...LEADER_PROBLEMS,
  ...DECISION_PROBLEMS,
  ...LOOKED_UP_PROBLEMS,
};

/** The catalogue's code for whatever a `Failure` carries; what nobody foresaw is internal_error. */
export function problemCodeOf(code: string): ProblemCode {
  if (Object.hasOwn(PROBLEMS, code)) return code as ProblemCode;
  if (Object.hasOwn(INTERNAL_CODES, code)) return INTERNAL_CODES[code as InternalCode];
  return 'internal_error';
}
