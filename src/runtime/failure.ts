/**
 * How things go wrong between actors, threads and callers. Codes cross threads, classes do not:
 * a failure on the wire is a plain object, and becomes a `CodedError` only inside one thread.
 */

/** Codes that the runtime itself answers with. Other layers add their own. */
export const RUNTIME_CODES = [
  /** A lane of the mailbox is full. Usual cause: more load than the actor serves. */
  'overloaded',
  /** The ask waited longer than its deadline and was never run. */
  'deadline_exceeded',
  /** The actor or its thread died while the ask was pending and nothing of it was committed. */
  'actor_restarted',
  /** A commit was sent and its answer was lost: it may have happened. */
  'outcome_unknown',
  /** The answer left too long after its knowledge was read; see `FRESHNESS_MAX_MS`. */
  'stale',
  /** A bug: the handler threw something without a code. The log has the cause. */
  'internal_error',
] as const;
/** The same codes as a type, so that the HTTP catalogue cannot leave one of them out. */
export type RuntimeCode = (typeof RUNTIME_CODES)[number];

/** A failure as it crosses a thread. */
export interface Failure {
  /** The stable code; the HTTP catalogue maps it to a status. */
  readonly failure: string;
  /** A sentence for the caller. Never contains a secret or a received value. */
  readonly detail?: string;
  readonly retryAfterSeconds?: number;
}

/** An error with a stable code. Thrown inside a thread, sent as a `Failure` between threads. */
export class CodedError extends Error {
  constructor(
    readonly code: string,
    message: string,
    options: { cause?: unknown; retryAfterSeconds?: number } = {},
  ) {
    super(message, options.cause === undefined ? {} : { cause: options.cause });
    this.name = 'CodedError';
    this.retryAfterSeconds = options.retryAfterSeconds;
  }
  readonly retryAfterSeconds: number | undefined;
}

/**
 * Makes a failure. What is not given is left out rather than `undefined`, so that it is the same as
 * JSON, as a clone and in a comparison.
 */
export function failure(code: string, detail?: string, retryAfterSeconds?: number): Failure {
  return {
    failure: code,
    ...(detail === undefined ? {} : { detail }),
    ...(retryAfterSeconds === undefined ? {} : { retryAfterSeconds }),
  };
}

/** Told by its one obligatory field, so no answer of an actor may have a field named `failure`. */
export function isFailure(value: unknown): value is Failure {
  return typeof value === 'object' && value !== null && 'failure' in value;
}

/** What a coded or unexpected error is to whoever asked. The text of a bug stays in the log. */
export function toFailure(error: unknown): Failure {
  if (error instanceof CodedError)
    return failure(error.code, error.message, error.retryAfterSeconds);
  return failure('internal_error');
}

/** An error's own text and those of its causes, for the log. */
export function describe(error: unknown): string {
  if (!(error instanceof Error)) return 'a value that is not an Error was thrown';
  const own = error.stack ?? `${error.name}: ${error.message}`;
  return error.cause === undefined ? own : `${own}\ncaused by ${describe(error.cause)}`;
}
