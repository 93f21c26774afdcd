/**
 * Structured logging as the runtime sees it; pino implements it where a process or a thread starts.
 * Nothing filters the fields, so whoever logs leaves secrets and received bodies out.
 */

/** Plain data by name; one JSON property each. */
export type LogFields = Readonly<Record<string, unknown>>;

/** Where lines go. The message is a full sentence that stays the same; what varies is a field. */
export interface Log {
  debug(fields: LogFields, message: string): void;
  info(fields: LogFields, message: string): void;
  warn(fields: LogFields, message: string): void;
  error(fields: LogFields, message: string): void;
}

/** Drops every line: for tests, simulations and callers that have no log. */
export const silentLog: Log = {
  debug: () => undefined,
  info: () => undefined,
  warn: () => undefined,
  error: () => undefined,
};
