/** Part of the error catalogue: what evidence refuses. See `problems.ts`. */
import type { AuditCode } from '../actors/audit-chainer/messages.js';
import type { EvidenceCode } from '../actors/evidence.js';

/** A change whose evidence cannot be written is not made. */
const RECORDING_PROBLEMS = {
  evidence_too_large: {
    status: 413,
    title: 'What would be recorded is too large',
    retryable: false,
    meaning: 'The evidence of the request would exceed 256 KiB. Nothing was done.',
    usualCause: 'A context or attributes that carry whole documents.',
  },
  evidence_invalid: {
    status: 422,
    title: 'What would be recorded cannot be',
    retryable: false,
    meaning: 'The evidence of the request has no canonical form. Nothing was done.',
    usualCause: 'An object that nests deeper than 32 levels.',
  },
} as const satisfies Record<EvidenceCode, object>;

/** What the chain cannot do as it is; all of these need a person. */
const CHAIN_PROBLEMS = {
  chain_rewound: {
    status: 409,
    title: 'The chain lacks what was published',
    retryable: false,
    meaning:
      'A checkpoint that was given out is not in the chain any more. Nothing is chained until ' +
      'the lost records are restored, or `halo audit accept-restore` names them.',
    usualCause: 'A restore to a moment before a published checkpoint.',
  },
  chain_not_rewound: {
    status: 409,
    title: 'The chain has all that was published',
    retryable: false,
    meaning: 'There is no loss to accept: every published checkpoint is in the chain.',
    usualCause: 'A second `halo audit accept-restore`, or one on the wrong server.',
  },
  signing_key_missing: {
    status: 409,
    title: 'A signing key is not there',
    retryable: false,
    meaning: 'The signing key file does not hold the key that the chain is to go on with.',
    usualCause: 'A rotation before the file has the next key on every replica.',
  },
} as const satisfies Record<AuditCode, object>;

/** All of them. */
export const EVIDENCE_PROBLEMS = { ...RECORDING_PROBLEMS, ...CHAIN_PROBLEMS };
/** Their codes. */
export type EvidenceProblemCode = keyof typeof EVIDENCE_PROBLEMS;
