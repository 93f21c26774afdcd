/**
 * What becomes of a refusal that says that a credential is not valid: it is counted first, and
 * answered as what it is only while its address has failures left. Nobody else ever waits for the
 * limiter: a valid credential passes from any address.
 */
import type { LimiterClient } from '../actors/limiter/client.js';
import type { FailureClass } from '../actors/limiter/messages.js';
import { isFailure } from '../runtime/failure.js';
import { addressCounted } from './client-address.js';
import { HttpProblem, type ProblemExtras } from './problem-details.js';
import { type ProblemCode, problemCodeOf } from './problems.js';

/**
 * A missing credential is not among them, since it is no guess, and neither is any 403: whoever
 * gets one has shown a credential that is real.
 */
const CLASSES: Partial<Record<ProblemCode, FailureClass>> = {
  device_unknown: 'device',
  enrollment_token_invalid: 'enrolment',
  token_unknown: 'admin',
};

/** A problem that is about to be answered. */
export interface Refusal {
  readonly code: ProblemCode;
  readonly extras: ProblemExtras;
}

/**
 * The class that a problem counts under; undefined when it is no failed attempt. `error` is what
 * the problem was made of.
 */
export function failureClassOf(code: ProblemCode, error?: unknown): FailureClass | undefined {
  return error instanceof GatewayUnknown ? 'gateway' : CLASSES[code];
}

/**
 * A gateway's token that is not known: the same problem as an administrator's, and a budget of its
 * own, so that a gateway that was forgotten somewhere does not lock its administrator out.
 */
export class GatewayUnknown extends HttpProblem {
  constructor() {
    super('token_unknown');
  }
}

/**
 * Counts the failure and calls `answer` once, in a later turn, with what to answer instead: the
 * refusal itself, `too_many_failures`, or why the limiter could not be asked. The last is a 503
 * where nobody knows whether the address may still guess.
 */
export function countFailure(
  limiter: LimiterClient,
  failureClass: FailureClass,
  client: string,
  refusal: Refusal,
  answer: (refusal: Refusal) => void,
): void {
  const attempt = { class: failureClass, address: addressCounted(client) };
  limiter.failed(attempt, {
    answered: (counted) => {
      if (!isFailure(counted)) return answer(refusal);
      const { retryAfterSeconds } = counted;
      const extras = retryAfterSeconds === undefined ? {} : { retryAfterSeconds };
      answer({ code: problemCodeOf(counted.failure), extras });
    },
  });
}
