/**
 * `halo-server serve`: the main thread of a server. Starts everything in order, answers for
 * readiness, and stops everything in order.
 */
import { clockOffsetMs, delay, systemClock } from '../runtime/clock.js';
import { CodedError, describe } from '../runtime/failure.js';
import type { Log } from '../runtime/log.js';
import { openLog } from '../runtime/pino-log.js';
import { Watchdog } from '../runtime/watchdog.js';
import { EXIT_DONE, EXIT_FAILED, EXIT_USAGE, exitCodeOf } from './exit-codes.js';
import type { ServeOptions } from './serve-options.js';
import { Server, STOP_RESERVE_MS } from './server.js';

/** A thread that does not end by itself keeps the process no longer than this. */
const EXIT_RESERVE_MS = 2_000;
/** What an orderly end may take over the grace, and a second more; then the process is killed. */
const KILL_RESERVE_MS = STOP_RESERVE_MS + EXIT_RESERVE_MS + 1_000;

/** Runs until a signal or a fatal fault; resolves with the process's exit code. */
export async function runServe(options: ServeOptions): Promise<number> {
  // Whatever is made from here on is for its owner only; threads inherit it.
  process.umask(0o077);
  const log = openLog('main', options.logLevel);
  if (Number.isNaN(clockOffsetMs)) {
    const form = 'a whole number of milliseconds, with HALO_TEST_CLOCK=true beside it';
    process.stderr.write(`HALO_CLOCK_OFFSET_MS is for tests: ${form}.\n`);
    return EXIT_USAGE;
  }
  if (clockOffsetMs !== 0) log.warn({ clockOffsetMs }, 'The clock of this process is set off.');
  const watchdog = new Watchdog(systemClock, options.logLevel);
  const boundEnd = (): void => watchdog.endWithin(options.shutdownGraceMs + KILL_RESERVE_MS);
  const told = signalled(log, boundEnd);
  const starting = Server.start(options, log);
  let server: Server | undefined;
  try {
    server = await Promise.race([starting, told]);
  } catch (error) {
    return startFailed(error, log);
  }
  if (server === undefined) return stopWhileStarting(starting, options);
  const fault = await Promise.race([told, server.fatal]);
  boundEnd();
  await server.stop();
  if (fault === undefined) return ending(EXIT_DONE, server, log);
  log.error({ reason: fault }, 'The server gives up; its orchestrator should start another.');
  return ending(EXIT_FAILED, server, log);
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
  systemClock.schedule(() => process.exit(EXIT_DONE), EXIT_RESERVE_MS);
  return EXIT_DONE;
}

/** The process ends by itself; if a thread keeps it, it is made to. */
function ending(exitCode: number, server: Server, log: Log): number {
  systemClock.schedule(() => {
    if (!server.endless) process.exit(exitCode);
    // An exit would abort the process, with a dump of its memory, secrets included.
    log.error({ reason: 'A front thread does not end.' }, 'The process is killed.');
    process.kill(process.pid, 'SIGKILL');
  }, EXIT_RESERVE_MS);
  return exitCode;
}

/** SIGHUP is what a terminal that closes sends; there is no configuration to be read again. */
const ENDING_SIGNALS = ['SIGTERM', 'SIGINT', 'SIGHUP'] as const;

/**
 * Resolves at the first signal; a second one ends the process at once. The end is bounded before
 * anything else is done, as the log could be what holds it.
 */
function signalled(log: Log, boundEnd: () => void): Promise<undefined> {
  return new Promise((resolve) => {
    let seen = false;
    const onSignal = (signal: NodeJS.Signals): void => {
      if (seen) process.exit(EXIT_FAILED);
      seen = true;
      boundEnd();
      log.info({ signal }, 'Shutting down.');
      resolve(undefined);
    };
    for (const signal of ENDING_SIGNALS) process.on(signal, onSignal);
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
