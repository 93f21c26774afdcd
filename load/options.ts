/** The command line of `npm run load`, as data: no side effect but the text that help prints. */
import { Command, CommanderError, InvalidArgumentError, Option } from 'commander';
import { GENERATOR_NAMES, type GeneratorName } from './generator.js';

export const PROFILES = ['device-auth', 'device-scale', 'kill-fanout'] as const;
export type Profile = (typeof PROFILES)[number];

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
  readonly generator: GeneratorName;
  /** Also writes the report there, as JSON. */
  readonly jsonFile?: string;
  /** A missed target fails the run, beside what always does. */
  readonly enforce: boolean;
  /** Passed on to `halo-server serve`, for tuning. */
  readonly serverArgs: readonly string[];
}

export type ParsedOptions =
  | { readonly kind: 'run'; readonly options: LoadOptions }
  /** Help was asked for and printed. */
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
/** What very many devices are compared with. */
export const FEW_DEVICES = 1_000;
/** Far above what the generators can send. */
const RATE_MAX = 1_000_000;

interface RawOptions {
  readonly backend: 'file' | 'postgres';
  readonly replicas: number;
  readonly connections: number;
  readonly rate?: number;
  readonly duration: number;
  readonly rounds: number;
  readonly devices?: number;
  readonly generator: GeneratorName;
  readonly json?: string;
  readonly enforce?: boolean;
  readonly serverArgs?: string;
}

/** Parses `argv` without the program's own two entries. Prints help and usage errors itself. */
export function parseLoadOptions(argv: readonly string[]): ParsedOptions {
  let parsed: LoadOptions | undefined;
  const program = command((profile, raw) => {
    parsed = complete(profile, raw);
  });
  try {
    program.parse(argv, { from: 'user' });
  } catch (error) {
    if (!(error instanceof CommanderError)) throw error;
    return error.exitCode === 0 ? { kind: 'help' } : { kind: 'usage' };
  }
  return parsed === undefined ? { kind: 'usage' } : { kind: 'run', options: parsed };
}

function command(action: (profile: Profile, raw: RawOptions) => void): Command {
  const program = new Command('npm run load --')
    .description('Measures servers in turn under load, and checks every answer.')
    .exitOverride()
    .argument('<profile>', `one of: ${PROFILES.join(', ')}`, (value) => {
      if (!PROFILES.some((profile) => profile === value)) {
        throw new InvalidArgumentError(`Known profiles: ${PROFILES.join(', ')}.`);
      }
      return value;
    })
    .addOption(
      new Option('--backend <name>', 'where Halos keeps its data')
        .choices(['file', 'postgres'])
        .default('file'),
    )
    .option('--replicas <n>', 'server processes on one database', whole(1, REPLICAS_MAX), 1)
    .option('--connections <n>', 'open at the same time', whole(1, CONNECTIONS_MAX), 64)
    .option('--rate <n>', 'requests/s overall; default: as fast as possible', whole(1, RATE_MAX))
    .option('--duration <s>', 'seconds per server', whole(1, DURATION_SECONDS_MAX), 9)
    .option('--rounds <n>', 'times each server is measured', whole(1, ROUNDS_MAX), 3)
    .option('--devices <n>', 'devices in the store', whole(2, DEVICES_MAX))
    .addOption(
      new Option('--generator <name>', 'what sends the requests')
        .choices([...GENERATOR_NAMES])
        .default('autocannon'),
    )
    .option('--json <file>', 'also write the report as JSON')
    .option('--enforce', 'fail when a target is missed')
    .option('--server-args <text>', 'passed on to halo-server serve, separated by spaces');
  return program.action((profile: Profile, raw: RawOptions) => {
    const refusal = refuse(profile, raw);
    if (refusal !== undefined) program.error(`error: ${refusal}`);
    action(profile, raw);
  });
}

/** Why options that are valid one by one do not fit together. */
function refuse(profile: Profile, raw: RawOptions): string | undefined {
  if (raw.replicas > 1 && raw.backend !== 'postgres') {
    return 'several replicas need --backend postgres';
  }
  if (profile === 'device-scale' && raw.replicas > 1) return 'device-scale measures one replica';
  if (profile === 'device-scale' && raw.devices !== undefined && raw.devices <= FEW_DEVICES) {
    return `device-scale compares with ${FEW_DEVICES} devices: --devices must be more`;
  }
  if (raw.connections < raw.replicas) return 'each replica needs a connection';
  if (raw.rate !== undefined && raw.generator === 'wrk') return 'wrk cannot keep a --rate';
  if (raw.rate !== undefined && raw.rate < raw.connections) {
    return 'the --rate must give each connection a request per second';
  }
  return undefined;
}

function complete(profile: Profile, raw: RawOptions): LoadOptions {
  return {
    profile,
    backend: raw.backend,
    replicas: raw.replicas,
    connections: raw.connections,
    ...(raw.rate === undefined ? {} : { rate: raw.rate }),
    durationSeconds: raw.duration,
    rounds: raw.rounds,
    devices: raw.devices ?? (profile === 'device-scale' ? 1_000_000 : 1_000),
    generator: raw.generator,
    ...(raw.json === undefined ? {} : { jsonFile: raw.json }),
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
