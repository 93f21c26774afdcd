/** The command line of `npm run load`, as data: no side effect but the text that help prints. */
import { Command, CommanderError, InvalidArgumentError, Option } from 'commander';
import { GENERATOR_NAMES, type GeneratorName } from './generator.js';
import { PROFILES, type Profile, profileList, profileNamed } from './profile-list.js';

export interface LoadOptions {
  readonly profile: Profile;
  readonly backend: 'file' | 'postgres';
  /** Server processes on one database; more than one only with `postgres`. */
  readonly replicas: number;
  readonly connections: number;
  /** Requests/s over all connections; absent: as fast as answers come. */
  readonly rate?: number;
  /** Measured time per server, over all rounds. */
  readonly durationSeconds: number;
  /** The servers are measured in turn this often; medians of the rounds are reported. */
  readonly rounds: number;
  readonly devices: number;
  /** Open streams of the kill list, where the profile is about them. */
  readonly streams?: number;
  readonly generator: GeneratorName;
  /** Also writes the report there, as JSON. */
  readonly jsonFile?: string;
  /** Also appends the result to `docs/performance.md`. */
  readonly record: boolean;
  /** A missed target fails the run, beside what always does. */
  readonly enforce: boolean;
  /** Passed on to `halo-server serve`, for tuning. */
  readonly serverArgs: readonly string[];
}

export type ParsedOptions =
  | { readonly kind: 'run'; readonly options: LoadOptions }
  /** Help, or the list of profiles, was asked for and printed. */
  | { readonly kind: 'help' }
  /** The message was printed. */
  | { readonly kind: 'usage' };

/** More sockets than this meet the usual limit of 1,024 open files of a generator. */
const CONNECTIONS_MAX = 1000;
/** An hour: a run must end by itself. */
const DURATION_SECONDS_MAX = 3600;
/** More rounds than this say nothing more about the noise. */
const ROUNDS_MAX = 100;
/** More processes than this on one machine measure its scheduler. */
const REPLICAS_MAX = 8;
/** Ten times what the design promises for one process. */
const DEVICES_MAX = 10_000_000;
/** A client's process has a port of the loopback address for each, of which there are 28,000. */
const STREAMS_MAX = 20_000;
/** What very many devices are compared with. */
export const FEW_DEVICES = 1_000;
/** Far above what the generators can send. */
const RATE_MAX = 1_000_000;

interface RawOptions {
  readonly backend?: 'file' | 'postgres';
  readonly replicas?: number;
  readonly connections?: number;
  readonly rate?: number;
  readonly duration?: number;
  readonly rounds?: number;
  readonly devices?: number;
  readonly streams?: number;
  readonly generator: GeneratorName;
  readonly json?: string;
  readonly record?: boolean;
  readonly enforce?: boolean;
  readonly serverArgs?: string;
}

/** Parses `argv` without the program's own two entries. Prints help and usage errors itself. */
export function parseLoadOptions(argv: readonly string[]): ParsedOptions {
  if (argv.includes('--list')) {
    process.stdout.write(`${profileList()}\n`);
    return { kind: 'help' };
  }
  let parsed: LoadOptions | undefined;
  const program = command((options) => {
    parsed = options;
  });
  try {
    program.parse(argv, { from: 'user' });
  } catch (error) {
    if (!(error instanceof CommanderError)) throw error;
    return error.exitCode === 0 ? { kind: 'help' } : { kind: 'usage' };
  }
  return parsed === undefined ? { kind: 'usage' } : { kind: 'run', options: parsed };
}

function command(action: (options: LoadOptions) => void): Command {
  const names = PROFILES.map(({ name }) => name).join(', ');
  const program = new Command('npm run load --')
    .description('Measures servers under load, and checks every answer.')
    .exitOverride()
    .argument('<profile>', `one of: ${names}`, (value) => {
      if (profileNamed(value) === undefined) {
        throw new InvalidArgumentError(`Known profiles: ${names}.`);
      }
      return value;
    })
    .option('--list', 'print the profiles, a line each, and end')
    .addOption(
      new Option('--backend <name>', 'where Halos keeps its data').choices(['file', 'postgres']),
    )
    .option('--replicas <n>', 'server processes on one database', whole(1, REPLICAS_MAX))
    .option('--connections <n>', 'open at the same time', whole(1, CONNECTIONS_MAX))
    .option('--rate <n>', 'requests/s overall; default: as fast as possible', whole(1, RATE_MAX))
    .option('--duration <s>', 'seconds per server', whole(1, DURATION_SECONDS_MAX))
    .option('--rounds <n>', 'times each server is measured', whole(1, ROUNDS_MAX))
    .option('--devices <n>', 'devices in the store', whole(2, DEVICES_MAX))
    .option('--streams <n>', 'open streams of the kill list', whole(1, STREAMS_MAX))
    .addOption(
      new Option('--generator <name>', 'what sends the requests')
        .choices([...GENERATOR_NAMES])
        .default('autocannon'),
    )
    .option('--json <file>', 'also write the report as JSON')
    .option('--record', 'also append the result to docs/performance.md')
    .option('--enforce', 'fail when a target is missed')
    .option('--server-args <text>', 'passed on to halo-server serve, separated by spaces')
    .addHelpText('after', `\nProfiles, each with defaults of its own:\n${profileList()}`);
  return program.action((name: Profile, raw: RawOptions) => {
    const options = complete(name, raw);
    const refusal = refuse(options, raw);
    if (refusal !== undefined) program.error(`error: ${refusal}`);
    action(options);
  });
}

/** Why options that are valid one by one do not fit together. */
function refuse(options: LoadOptions, raw: RawOptions): string | undefined {
  const { profile, backend, replicas, connections, rate, generator } = options;
  const entry = profileNamed(profile);
  const chosen = [raw.backend, raw.replicas, raw.connections, raw.rounds];
  if (entry?.fixed && chosen.some((value) => value !== undefined)) {
    return `${profile} says itself with what it runs: leave out backend, replicas, connections`;
  }
  if (entry?.streams === undefined && raw.streams !== undefined) return `${profile} has no streams`;
  if (entry?.fixed && entry.rate === undefined && rate !== undefined) {
    return `${profile} finds its rate itself`;
  }
  if (replicas > 1 && backend !== 'postgres') return 'several replicas need --backend postgres';
  if (profile === 'device-scale' && replicas > 1) return 'device-scale measures one replica';
  if (profile === 'device-scale' && options.devices <= FEW_DEVICES) {
    return `device-scale compares with ${FEW_DEVICES} devices: --devices must be more`;
  }
  if (connections < replicas) return 'each replica needs a connection';
  if (rate !== undefined && generator === 'wrk') return 'wrk cannot keep a --rate';
  if (rate !== undefined && rate < connections) {
    return 'the --rate must give each connection a request per second';
  }
  return undefined;
}

function complete(profile: Profile, raw: RawOptions): LoadOptions {
  const entry = profileNamed(profile);
  if (entry === undefined) throw new RangeError(`There is no profile ${profile}.`);
  const rate = raw.rate ?? entry.rate;
  const streams = raw.streams ?? entry.streams;
  return {
    profile,
    backend: raw.backend ?? entry.backend,
    replicas: raw.replicas ?? entry.replicas,
    connections: raw.connections ?? entry.connections,
    ...(rate === undefined ? {} : { rate }),
    durationSeconds: raw.duration ?? entry.durationSeconds,
    rounds: raw.rounds ?? entry.rounds,
    devices: raw.devices ?? entry.devices,
    ...(streams === undefined ? {} : { streams }),
    generator: raw.generator,
    ...(raw.json === undefined ? {} : { jsonFile: raw.json }),
    record: raw.record ?? false,
    enforce: raw.enforce ?? false,
    serverArgs: (raw.serverArgs ?? '').split(' ').filter((argument) => argument !== ''),
  };
}

function whole(min: number, max: number): (text: string) => number {
  return (text) => {
    const value = Number(text);
    if (!/^\d+$/.test(text) || value < min || value > max) {
      throw new InvalidArgumentError(`A whole number from ${min} to ${max} is needed.`);
    }
    return value;
  };
}
