/**
 * How old knowledge may be when it lets somebody in; one rule for the server and the simulation.
 */

/**
 * An allow older than this, counted from the beginning of the catch-up behind it, is not given: a
 * process that was stopped and continued lets nobody in on old knowledge (DESIGN §2). A second is
 * far above a slow catch-up's time and far below that of a person who revokes and looks.
 */
export const FRESHNESS_MAX_MS = 1000;

/**
 * Whether an allow must not leave any more. Both times are on the monotonic clock, `nowMs` read at
 * the moment at which the answer leaves; `freshSinceMs` 0 is an answer that does not age.
 */
export function isStale(freshSinceMs: number, nowMs: number): boolean {
  return freshSinceMs !== 0 && nowMs - freshSinceMs > FRESHNESS_MAX_MS;
}
