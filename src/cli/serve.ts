/**
 * `halo-server serve`: the main thread of a server. Starts everything in order, answers for
 * readiness, and stops everything in order.
 */
import { delay, systemClock } from '../runtime/clock.js';
import { CodedError, describe } from '../runtime/failure.js';
import type { Log } from '../runtime/log.js';
import { openLog } from '../runtime/pino-log.js';
import { EXIT_DONE, EXIT_FAILED, exitCodeOf } from './exit-codes.js';
import type { ServeOptions } from './serve-options.js';
import { Server } from './server.js';

/** A thread that does not end by itself keeps the process no longer than this. */
const EXIT_RESERVE_MS = 2_000;

/** Runs until a signal or a fatal fault; resolves with the process's exit code. */
export async function runServe(options: ServeOptions): Promise<number> {
  // Whatever is made from here on is for its owner only; threads inherit it.
  process.umask(0o077);
  const log = openLog('main', options.logLevel);
  const told = signalled(log);
  const starting = Server.start(options, log);
  let server: Server | undefined;
  try {
    server = await Promise.race([starting, told]);
  } catch (error) {
    return startFailed(error, log);
  }
  if (server === undefined) return stopWhileStarting(starting, options);
  const fault = await Promise.race([told, server.fatal]);
  await server.stop();
  if (fault === undefined) return ending(EXIT_DONE);
  log.error({ reason: fault }, 'The server gives up; its orchestrator should start another.');
  return ending(EXIT_FAILED);
}

/** Told to stop before it was there, as when a migration waits: nothing was served yet. */
async function stopWhileStarting(
  starting: Promise<Server>,
  { shutdownGraceMs }: ServeOptions,
): Promise<number> {
  const stopped = starting.then(
    (server) => server.stop(),
    () => undefined,
  );
  await Promise.race([stopped, delay(systemClock, shutdownGraceMs)]);
  return ending(EXIT_DONE);
}

function ending(exitCode: number): number {
  systemClock.schedule(() => process.exit(exitCode), EXIT_RESERVE_MS);
  return exitCode;
}

/** Resolves at the first signal; a second one ends the process at once. */
function signalled(log: Log): Promise<undefined> {
  return new Promise((resolve) => {
    let seen = false;
    const onSignal = (signal: NodeJS.Signals): void => {
      if (seen) process.exit(EXIT_FAILED);
      seen = true;
      log.info({ signal }, 'Shutting down.');
      resolve(undefined);
    };
    process.on('SIGTERM', onSignal);
    process.on('SIGINT', onSignal);
  });
}

/** What a person can do about a start that failed, where the message does not say it, or ''. */
function startAdvice(code: string): string {
  switch (code) {
    case 'port_taken':
      return ' Is another server running? Choose other ports with --listen and --metrics-listen.';
    case 'directory_held':
      return ' Stop it first, or choose another directory with --data-dir.';
    default:
      return '';
  }
}

function startFailed(error: unknown, log: Log): number {
  if (!(error instanceof CodedError)) {
    log.error({ error: describe(error) }, 'The server cannot start.');
    process.stderr.write('The server cannot start: an unexpected error; the log has it.\n');
    return EXIT_FAILED;
  }
  log.error({ code: error.code, error: describe(error) }, 'The server cannot start.');
  process.stderr.write(`${error.message}${startAdvice(error.code)}\n`);
  return exitCodeOf(error);
}
