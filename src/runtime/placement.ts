/** Which actors run on which thread. Configuration, with a default made for the machine's cores. */

/** Threads beside the main one: `front` ones answer HTTP, `actors` ones host actors. */
export interface ThreadCounts {
  readonly front: number;
  readonly actors: number;
}

/**
 * Half of the cores for front threads, since parsing and answering take two thirds of a request,
 * a quarter for actors; at least one each. On two cores that is one of each beside the main thread.
 */
export function defaultThreadCounts(cores: number): ThreadCounts {
  return { front: Math.max(1, Math.floor(cores / 2)), actors: Math.max(1, Math.floor(cores / 4)) };
}

/** Deals the actors out in order, busiest first; no more threads than actors. */
export function placeActors(
  actors: readonly string[],
  threads: number,
): readonly (readonly string[])[] {
  const count = Math.max(1, Math.min(threads, actors.length));
  const places: string[][] = Array.from({ length: count }, () => []);
  for (const [index, actor] of actors.entries()) places[index % count]?.push(actor);
  return places;
}
