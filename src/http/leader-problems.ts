/** Part of the error catalogue: what is refused about leases. See `problems.ts`. */
import type { LeaderCode } from '../actors/leader/messages.js';

/** Beside those that every actor answers with. */
export const LEADER_PROBLEMS = {
  lease_unknown: {
    status: 404,
    title: 'There is no such lease',
    retryable: false,
    meaning: 'No replica has ever had a lease of that name.',
    usualCause: 'A name that is misspelt; `halo leader list` names them all.',
  },
  lease_not_held: {
    status: 409,
    title: 'Nobody has the lease',
    retryable: true,
    retryAfterSeconds: 1,
    meaning: 'The lease has no holder at the moment, so that nobody can be asked to give it back.',
    usualCause: 'Its holder has just ended, and no other has taken it yet.',
  },
} as const satisfies Record<LeaderCode, object>;
