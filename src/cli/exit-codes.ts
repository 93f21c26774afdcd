/** How a command ends, for scripts and orchestrators (API.md "Commands"). */
export const EXIT_DONE = 0;
/** It was tried and did not work; the message says why. */
export const EXIT_FAILED = 1;
/** The command line or the environment is wrong; nothing was tried. */
export const EXIT_USAGE = 2;
/** Refused to protect data: schema mismatch, data directory held, a chain that does not verify. */
export const EXIT_REFUSED = 3;

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
