/** Part of the error catalogue: what decisions and approvals refuse. See `problems.ts`. */
import type { DecisionCode } from '../actors/decisions/messages.js';

/** Beside those that every actor answers with. */
export const DECISION_PROBLEMS = {
  principal_not_own: {
    status: 403,
    title: 'The principal is not the device’s own',
    retryable: false,
    meaning:
      'A device may ask for itself, its user, and the principals that `halos.yaml` gives to one ' +
      'of them. Nothing was decided.',
    usualCause: 'An agent that is not in `halos.yaml`, or that belongs to somebody else.',
  },
  approval_unknown: {
    status: 404,
    title: 'There is no such approval',
    retryable: false,
    meaning: 'No approval waits under this ref: none was needed, or it has expired.',
    usualCause: 'An approval that came too late; the decision has to be asked for again.',
  },
  approval_own: {
    status: 403,
    title: 'Whoever asked may not settle it',
    retryable: false,
    meaning: 'The approver is the one who asked for the decision.',
    usualCause: 'One token that is used both to ask and to approve.',
  },
} as const satisfies Record<Exclude<DecisionCode, 'idempotency_mismatch'>, object>;

/** What a front thread says of a ref that leads to nothing, or to something settled. */
export const LOOKED_UP_PROBLEMS = {
  evidence_unknown: {
    status: 404,
    title: 'There is no such evidence',
    retryable: false,
    meaning: 'The ref is neither in the chain nor waiting for its place in it.',
    usualCause: 'A ref cut while copying, or of another server.',
  },
  decision_unknown: {
    status: 404,
    title: 'There is no such decision',
    retryable: false,
    meaning: 'The ref is of no decision, or of one that somebody else asked for.',
    usualCause: 'A ref cut while copying, or another credential than the one that asked.',
  },
  already_decided: {
    status: 409,
    title: 'The approval was settled before',
    retryable: false,
    meaning: 'Somebody approved or denied it; `decision` says who, when and what. It stays so.',
    usualCause: 'Two approvers at once, or a second attempt after a lost answer.',
  },
} as const;
