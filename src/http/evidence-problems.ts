/** Part of the error catalogue: what evidence refuses. See `problems.ts`. */
import type { EvidenceCode } from '../actors/evidence.js';

/** A change whose evidence cannot be written is not made. */
export const EVIDENCE_PROBLEMS = {
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
