/** The commands of `halo`, their options and exit codes. */
import { Command, CommanderError } from 'commander';
import { keepProcessAlive } from '../../runtime/keep-alive.js';
import { applyConsole, type Console, printable } from '../console.js';
import { EXIT_DONE, EXIT_FAILED, EXIT_USAGE, exitCodeOf, UsageError } from '../exit-codes.js';
import { declareVerify } from '../halo-verify/program.js';
import {
  declareOptions,
  type GivenOptions,
  gatherOptions,
  type OptionSpec,
} from '../option-table.js';
import { parseDurationMs, parsePath, parseWholeNumber } from '../option-values.js';
import { othersCanRead } from '../private-file.js';
import { packageVersion } from '../version.js';
import { Api, ApiError, type ApiOptions } from './api.js';
import { AUDIT_COMMANDS } from './audit-commands.js';
import { CHAOS_COMMAND } from './chaos-command.js';
import type { CommandSpec, Output, Shown } from './command.js';
import { DECISION_COMMANDS } from './decision-commands.js';
import {
  listDevices,
  mintEnrollmentToken,
  revokeDevice,
  rotateDevice,
  showDevice,
} from './devices.js';
import { GATEWAY_COMMANDS } from './gateway-commands.js';
import { KILL_LIST_COMMANDS } from './kill-list-commands.js';
import { LEADER_COMMANDS } from './leader-commands.js';
import { POLICY_COMMANDS } from './policy-commands.js';
import { showStatus } from './status.js';

/** Where `halo-server serve --dev` listens and keeps its token. */
const DEFAULT_URL = 'http://127.0.0.1:8080';
const DEFAULT_TOKEN_FILE = './.halos/admin-token';

const COMMON_OPTIONS = [
  { name: 'url', value: 'URL', help: `the server (default ${DEFAULT_URL})` },
  { name: 'token-file', value: 'FILE', help: `an admin token (default ${DEFAULT_TOKEN_FILE})` },
  { name: 'json', help: 'print JSON, for scripts' },
] as const satisfies ReadonlyArray<OptionSpec<string>>;

const EPILOGUE = `
--url, --token-file and --json can also come from the environment: HALO_URL, HALO_TOKEN_FILE,
HALO_JSON. Exit codes: 0 done, 1 failed, 2 wrong usage.
`;

/** API.md: the old credential may go on working for an hour at most. */
const OVERLAP_BOUNDS = { minMs: 0, maxMs: 3_600_000 };
/** API.md: an enrolment token lives for a day at most. */
const TOKEN_TTL_BOUNDS = { minMs: 1_000, maxMs: 86_400_000 };
/** A person reads a page; a script asks for as many as a fleet has. */
const LIST_LIMIT = { min: 1, max: 1_000_000 };
const LIST_LIMIT_DEFAULT = '100';

/** Runs one command line; returns the exit code. Never throws. */
export async function runHalo(args: readonly string[], console: Console): Promise<number> {
  try {
    const end = { exitCode: EXIT_DONE };
    await buildProgram(console, end).parseAsync([...args], { from: 'user' });
    return end.exitCode;
  } catch (error) {
    return exitCodeFor(error, console);
  }
}

function exitCodeFor(error: unknown, console: Console): number {
  if (error instanceof CommanderError) return error.exitCode === 0 ? EXIT_DONE : EXIT_USAGE;
  const message = error instanceof Error ? error.message : 'failed';
  console.err(`halo: ${printable(message)}${error instanceof ApiError ? facts(error) : ''}\n`);
  return exitCodeOf(error);
}

/** Code and request id, which an operator needs to find the request in the server's log. */
function facts({ problem }: ApiError): string {
  const known = [
    problem.code,
    problem.requestId === undefined ? undefined : `request ${problem.requestId}`,
  ].filter((fact) => fact !== undefined);
  const hint = problem.retryable === true ? '; trying again can help' : '';
  return known.length === 0 ? '' : ` (${printable(known.join(', '))})${hint}`;
}

const STATUS: CommandSpec = {
  usage: 'status',
  description: 'what the server says of itself',
  prepare: () => showStatus,
};

const ENROLL_TOKEN: CommandSpec = {
  usage: 'enroll-token <user>',
  description: 'make a token that lets one device of a user in, once',
  options: [
    { name: 'ttl', value: 'DURATION', help: 'how long it can be spent, up to 24h (default 1h)' },
  ],
  prepare: ({ words: [user = ''], given }) => {
    const text = given.text('ttl');
    const ttlMs = text === undefined ? undefined : parseDurationMs('--ttl', text, TOKEN_TTL_BOUNDS);
    return (api) => mintEnrollmentToken(api, user, ttlMs === undefined ? undefined : ttlMs / 1000);
  },
};

const DEVICES: readonly CommandSpec[] = [
  {
    usage: 'list',
    description: 'devices, in the order of their enrolment (what `halo devices` alone does)',
    isDefault: true,
    options: [
      { name: 'user', value: 'USER', help: 'of this user only' },
      { name: 'limit', value: 'N', help: `at most so many (default ${LIST_LIMIT_DEFAULT})` },
    ],
    prepare: ({ given }) => {
      const user = given.text('user');
      const text = given.text('limit') ?? LIST_LIMIT_DEFAULT;
      const limit = parseWholeNumber('--limit', text, LIST_LIMIT);
      return (api) => listDevices(api, { limit, ...(user === undefined ? {} : { user }) });
    },
  },
  {
    usage: 'show <id>',
    description: 'one device',
    prepare:
      ({ words: [id = ''] }) =>
      (api) =>
        showDevice(api, id),
  },
  {
    usage: 'revoke <id>',
    description: 'refuse a device for good, on every replica',
    options: [
      { name: 'reason', value: 'TEXT', help: 'why; it is kept with the device (required)' },
    ],
    prepare: ({ words: [id = ''], given }) => {
      const reason = given.text('reason');
      if (reason === undefined) throw new UsageError('say why with --reason');
      return (api) => revokeDevice(api, id, reason);
    },
  },
  {
    usage: 'rotate <id>',
    description: 'make a new credential for a device, and print it',
    options: [
      { name: 'overlap', value: 'DURATION', help: 'how long the old one still works, 0s to 1h' },
    ],
    prepare: ({ words: [id = ''], given }) => {
      const text = given.text('overlap');
      const overlapMs =
        text === undefined ? undefined : parseDurationMs('--overlap', text, OVERLAP_BOUNDS);
      return (api) => rotateDevice(api, id, overlapMs === undefined ? undefined : overlapMs / 1000);
    },
  },
];

/** How the command that ran ended, unless it threw. */
interface End {
  exitCode: number;
}

function buildProgram(console: Console, end: End): Command {
  const program = applyConsole(new Command('halo'), console)
    .description('Asks and steers a running Halos server.')
    .version(packageVersion())
    .addHelpText('after', EPILOGUE);
  addCommand(program, STATUS, console, end);
  const devices = program
    .command('devices')
    .description('list, show, revoke and rotate devices')
    .copyInheritedSettings(program);
  for (const spec of DEVICES) addCommand(devices, spec, console, end);
  addCommand(program, ENROLL_TOKEN, console, end);
  for (const spec of KILL_LIST_COMMANDS) addCommand(program, spec, console, end);
  const gateway = program
    .command('gateway')
    .description('list, create, rotate, remove and watch gateways')
    .copyInheritedSettings(program);
  for (const spec of GATEWAY_COMMANDS) addCommand(gateway, spec, console, end);
  for (const spec of DECISION_COMMANDS) addCommand(program, spec, console, end);
  const policy = program
    .command('policy')
    .description('check policies before a server sees them')
    .copyInheritedSettings(program);
  for (const spec of POLICY_COMMANDS) addCommand(policy, spec, console, end);
  const leader = program
    .command('leader')
    .description('who leads, who has led, and the word that ends a term')
    .copyInheritedSettings(program);
  for (const spec of LEADER_COMMANDS) addCommand(leader, spec, console, end);
  addAudit(program, console, end);
  addCommand(program, CHAOS_COMMAND, console, end);
  return program;
}

function addAudit(program: Command, console: Console, end: End): void {
  const audit = program
    .command('audit')
    .description('read, export and verify the chain of evidence; checkpoints and keys of it')
    .copyInheritedSettings(program);
  for (const spec of AUDIT_COMMANDS) addCommand(audit, spec, console, end);
  const verify = audit.command('verify').copyInheritedSettings(audit);
  declareVerify(verify, console, { isTerminal: console.isTerminal === true }, (exitCode) => {
    end.exitCode = exitCode;
  });
}

function addCommand(parent: Command, spec: CommandSpec, console: Console, end: End): void {
  const command = parent
    .command(spec.usage, { isDefault: spec.isDefault ?? false })
    .description(spec.description)
    .copyInheritedSettings(parent);
  declareOptions(command, spec.options ?? []);
  declareOptions(command, optionsOfAll(spec));
  command.action(async () => {
    const common = gatherOptions(command, COMMON_OPTIONS, console.environment);
    const given = gatherOptions(command, spec.options ?? [], {});
    const isJson = common.on('json');
    const show = ({ value, text }: Shown): void =>
      console.out(isJson ? `${JSON.stringify(value)}\n` : text);
    const offline = spec.offline?.({ words: command.args, given });
    if (offline !== undefined) {
      const shown = await whileAlive(offline);
      show(shown);
      if (shown.hasFailed === true) end.exitCode = EXIT_FAILED;
      return;
    }
    const ask = spec.prepare({ words: command.args, given });
    const options = readApiOptions(common);
    const api = await Api.open(options);
    if (await othersCanRead(options.tokenFile)) {
      console.err(`halo: others can read ${options.tokenFile}: chmod 600 it\n`);
    }
    const shown = await ask(api, outputTo(console, isJson, show));
    if (shown) show(shown);
    if (shown?.hasFailed === true) end.exitCode = EXIT_FAILED;
  });
}

/** Timers and ports of the parts that it starts keep no process alive. */
async function whileAlive<T>(work: () => Promise<T>): Promise<T> {
  const letGo = keepProcessAlive();
  try {
    return await work();
  } finally {
    letGo();
  }
}

function outputTo(console: Console, isJson: boolean, show: Output['show']): Output {
  return {
    isJson,
    show,
    isTerminal: console.isTerminal === true,
    err: (text) => console.err(text),
    write: async (text) => {
      console.out(text);
      await console.taken?.();
    },
  };
}

/** `COMMON_OPTIONS` as the help of this command tells of them. */
function optionsOfAll({ tokenHelp }: CommandSpec): ReadonlyArray<OptionSpec<string>> {
  if (tokenHelp === undefined) return COMMON_OPTIONS;
  return COMMON_OPTIONS.map((option) =>
    option.name === 'token-file' ? { ...option, help: tokenHelp } : option,
  );
}

function readApiOptions(given: GivenOptions<'url' | 'token-file' | 'json'>): ApiOptions {
  const url = given.text('url') ?? DEFAULT_URL;
  if (!/^https?:\/\/[^\s/@?#]+\/?$/.test(url)) {
    throw new UsageError(`${given.origin('url')} takes an address such as ${DEFAULT_URL}`);
  }
  const tokenFile = given.text('token-file') ?? DEFAULT_TOKEN_FILE;
  return { url, tokenFile: parsePath(given.origin('token-file'), tokenFile) };
}
