/** The runtime's log on pino: JSON lines on standard output, from every thread of the process. */
import { getEnvironmentData, isMainThread, setEnvironmentData } from 'node:worker_threads';
import { pino } from 'pino';
import { systemClock } from './clock.js';
import type { Log } from './log.js';
import { LogLines } from './log-lines.js';

/** Under which the threads of a process find the counter that they share. */
const DROPPED_KEY = 'log-lines-dropped';

/** Lines that were dropped, in one cell for all threads: the first makes it, the rest inherit. */
function droppedCounter(): Int32Array {
  const found = getEnvironmentData(DROPPED_KEY);
  if (found instanceof SharedArrayBuffer) return new Int32Array(found);
  const made = new SharedArrayBuffer(Int32Array.BYTES_PER_ELEMENT);
  setEnvironmentData(DROPPED_KEY, made as never);
  return new Int32Array(made);
}

const dropped = droppedCounter();

/** Log lines that the whole process has dropped because nobody read them. */
export function droppedLogLines(): number {
  return Atomics.load(dropped, 0);
}

/**
 * `name` tells threads apart; `level` is pino's. Lines are written at once and in order as long as
 * somebody reads them; whoever stops reading loses lines and stops nobody (`LogLines`). The main
 * thread opens its log first: that makes standard output non-blocking for all threads.
 */
export function openLog(name: string, level: string): Log {
  if (isMainThread) makeOutputNonBlocking();
  const lines = new LogLines(
    systemClock,
    () => Atomics.add(dropped, 0, 1),
    (count) => logger.warn({ lines: count }, 'Log lines were dropped: nobody read them.'),
  );
  process.on('exit', () => lines.flush());
  const options = {
    level,
    base: { thread: name },
    timestamp: pino.stdTimeFunctions.isoTime,
    formatters: { level: (label: string) => ({ level: label }) },
  };
  const logger = pino(options, lines);
  return {
    debug: (fields, message) => logger.debug(fields, message),
    info: (fields, message) => logger.info(fields, message),
    warn: (fields, message) => logger.warn(fields, message),
    error: (fields, message) => logger.error(fields, message),
  };
}

/**
 * Node makes a pipe or a socket non-blocking when it makes the stream of it, and puts the flags
 * back when the process ends. A file never waits for a reader. A terminal stays as it is: who
 * holds one with Ctrl-S wants it held.
 */
function makeOutputNonBlocking(): void {
  void process.stdout;
}
