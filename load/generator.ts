/** What a load generator is asked and what it answers: plain data, since it runs elsewhere. */
import type { LatencySamples } from './statistics.js';

/** One credential and the one right answer to it, byte for byte. */
export interface ExpectedAnswer {
  readonly credential: string;
  /** The value of `x-halo-device`. */
  readonly device: string;
  /** The value of `x-halo-user`. */
  readonly user: string;
  readonly body: string;
}

export interface LoadJob {
  /** One for each replica; the connections are spread over them evenly. */
  readonly urls: readonly string[];
  readonly path: string;
  readonly connections: number;
  readonly durationMs: number;
  /** Requests/s over all connections; absent: each connection asks again at once when answered. */
  readonly ratePerSecond?: number;
  /** The connections share these out; each cycles through its own. Every answer is checked. */
  readonly answers: readonly ExpectedAnswer[];
}

export interface LoadResult {
  /** Answers that arrived, right or wrong. */
  readonly answered: number;
  /** From the first connection attempt to the end of the last answer. */
  readonly elapsedMs: number;
  /** Refused or broken connections, timeouts, and requests whose answer never came. */
  readonly errors: number;
  /** Answers with another status, header or body than expected. */
  readonly wrong: number;
  /** The first wrong answer, for people; '' when there was none. */
  readonly firstWrong: string;
  readonly latency: LatencySamples;
  /** CPU time that the generator itself used. */
  readonly generatorCpuMs: number;
}

export interface Generator {
  readonly name: GeneratorName;
  run(job: LoadJob): Promise<LoadResult>;
  /** Idempotent. */
  stop(): Promise<void>;
}

export const GENERATOR_NAMES = ['autocannon', 'wrk'] as const;
export type GeneratorName = (typeof GENERATOR_NAMES)[number];

/** An answer later than this counts as an error: the server's own deadlines are shorter. */
export const ANSWER_TIMEOUT_SECONDS = 10;

/** The part of `all` that connection `index` of `count` cycles through; never empty. */
export function shareOf<Item>(all: readonly Item[], index: number, count: number): Item[] {
  const own = all.filter((_, position) => position % count === index % count);
  return own.length > 0 ? own : all.slice(index % all.length, (index % all.length) + 1);
}
