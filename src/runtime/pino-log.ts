/** The runtime's log on pino: JSON lines on standard output, from every thread of the process. */
import { pino } from 'pino';
import type { Log } from './log.js';

/** `name` tells threads apart; `level` is pino's. Lines are written at once and in order. */
export function openLog(name: string, level: string): Log {
  const destination = pino.destination({ fd: 1, sync: true });
  const options = {
    level,
    base: { thread: name },
    timestamp: pino.stdTimeFunctions.isoTime,
    formatters: { level: (label: string) => ({ level: label }) },
  };
  const logger = pino(options, destination);
  return {
    debug: (fields, message) => logger.debug(fields, message),
    info: (fields, message) => logger.info(fields, message),
    warn: (fields, message) => logger.warn(fields, message),
    error: (fields, message) => logger.error(fields, message),
  };
}
