/** How a command ends, for scripts and orchestrators (API.md "Commands"). */
import { CodedError } from '../runtime/failure.js';

/** It was done. */
export const EXIT_DONE = 0;
/** It was tried and did not work; the message says why. */
export const EXIT_FAILED = 1;
/** The command line or the environment is wrong; nothing was tried. */
export const EXIT_USAGE = 2;
/** Refused to protect data: schema mismatch, data directory held, a chain that does not verify. */
export const EXIT_REFUSED = 3;

/** Codes that mean "refused to protect data", not "did not work". */
const REFUSALS = new Set([
  'directory_held',
  'damaged',
  'incompatible',
  'schema_behind',
  'schema_ahead',
  'replica_too_old',
  'database_tls_required',
  'database_unsuitable',
]);

/** How a process ends whose work was ended by this error. */
export function exitCodeOf(error: unknown): number {
  if (error instanceof UsageError) return EXIT_USAGE;
  if (!(error instanceof CodedError)) return EXIT_FAILED;
  // Options that contradict each other only together with what was found, such as the cores.
  if (error.code === 'usage') return EXIT_USAGE;
  return REFUSALS.has(error.code) ? EXIT_REFUSED : EXIT_FAILED;
}

/**
 * Thrown for a wrong command line; ends the process with `EXIT_USAGE`. The message never repeats a
 * received value that could be a secret (a URL with a password where a file name belongs).
 */
export class UsageError extends Error {
  constructor(message: string) {
    super(message);
    this.name = 'UsageError';
  }
}
