/** What is wanted of the device-auth profile, beside what every run must hold. */
import type { LoadOptions } from './options.js';
import { HALOS, mandatoryVerdicts, type Verdict, verdict } from './report.js';
import { cpuRatio, type Measured } from './rounds.js';

/** The number of connections that most targets are set for. */
const CONNECTIONS = 64;
/** The number with which batches are large. */
const CONNECTIONS_MANY = 256;

/** How Halos compares with each baseline, round by round. */
export interface DeviceAuthRatios {
  /** Server CPU per request, in units of bare uWebSockets.js. */
  readonly cpuOfBare: number;
  /** In units of the same with a digest, a look-up and all headers in one thread. */
  readonly cpuOfLookUp: number;
  /** µs per request beyond that: the hop to the actor's thread and its catch-up. */
  readonly hopAndCatchUpUs: number;
  /** Server CPU per request of Fastify and pg, in units of Halos. */
  readonly fastifyCpuOfHalos: number;
  /** The same with what each makes PostgreSQL use. */
  readonly fastifyCpuOfHalosWithDatabase: number;
}

export function deviceAuthRatios(measured: readonly Measured[]): DeviceAuthRatios {
  const halos = byName(measured, HALOS);
  const fastify = byName(measured, 'fastify-pg');
  const lookUp = byName(measured, 'bare-look-up');
  const withDatabase = ({ serverCpuUs, databaseCpuUs }: Measured): number =>
    serverCpuUs + databaseCpuUs;
  return {
    cpuOfBare: cpuRatio(halos, byName(measured, 'bare-uws')),
    cpuOfLookUp: cpuRatio(halos, lookUp),
    hopAndCatchUpUs: halos.serverCpuUs - lookUp.serverCpuUs,
    fastifyCpuOfHalos: cpuRatio(fastify, halos),
    fastifyCpuOfHalosWithDatabase: withDatabase(fastify) / withDatabase(halos),
  };
}

/** The mandatory verdicts, and the targets of docs/performance.md that these options are for. */
export function deviceAuthVerdicts(measured: readonly Measured[], options: LoadOptions): Verdict[] {
  const { backend, connections, rate, replicas } = options;
  const { cpuOfBare, fastifyCpuOfHalos } = deviceAuthRatios(measured);
  const verdicts = mandatoryVerdicts(measured);
  // The targets hold for one server at saturation; below it batches are small and dear.
  if (rate !== undefined || replicas > 1) return verdicts;
  const bare = (limit: number): Verdict =>
    verdict('CPU of bare uWebSockets.js', cpuOfBare, ['at most', limit, ' times']);
  if (connections === CONNECTIONS) {
    verdicts.push(
      bare(backend === 'file' ? 2.1 : 2.5),
      verdict('cheaper than Fastify and pg', fastifyCpuOfHalos, ['at least', 5, ' times']),
      verdict('halos p99', byName(measured, HALOS).p99Ms, ['below', 10, ' ms']),
    );
  } else if (connections === CONNECTIONS_MANY && backend === 'postgres') {
    verdicts.push(bare(2.0));
  }
  return verdicts;
}

function byName(measured: readonly Measured[], name: string): Measured {
  const found = measured.find((one) => one.name === name);
  if (found === undefined) throw new Error(`Nothing was measured of ${name}.`);
  return found;
}
