/** The command line of `halo-verify` and its exit codes (API.md "Commands"). */
import { Command, CommanderError } from 'commander';
import { CodedError } from '../../runtime/failure.js';
import type { Pins } from '../../verify/chain-verifier.js';
import type { Status, VerificationResult } from '../../verify/findings.js';
import { applyConsole, type Console, printable } from '../console.js';
import { EXIT_USAGE, UsageError } from '../exit-codes.js';
import {
  declareOptions,
  type GivenOptions,
  gatherOptions,
  type OptionSpec,
} from '../option-table.js';
import { parsePath } from '../option-values.js';
import { readDatabaseUrl } from '../private-file.js';
import { numberText, ProgressLine } from '../progress-line.js';
import { codeOf, readPinnedCheckpoint, readPinnedKey } from './pins.js';
import { type ChainPlace, verifyChain } from './verify-chain.js';

/** The chain is as it says it is. */
export const EXIT_VERIFIED = 0;
/** Something in it was changed, dropped, added or reordered. */
export const EXIT_TAMPERED = 10;
/** What is there is right, but a beginning or an end is missing. */
export const EXIT_INCOMPLETE = 11;
/** It could not be read or is of a newer version: nothing is said about it. */
export const EXIT_UNREADABLE = 12;

const EXIT_CODES: Readonly<Record<Status, number>> = {
  verified: EXIT_VERIFIED,
  tampered: EXIT_TAMPERED,
  incomplete: EXIT_INCOMPLETE,
  unreadable: EXIT_UNREADABLE,
};

const OPTIONS = [
  { name: 'key', value: 'FILE', help: 'the public key that must have signed it' },
  { name: 'checkpoint', value: 'FILE', help: 'a published checkpoint that it must contain' },
  { name: 'data-dir', value: 'DIR', help: 'verify the chain in a server’s data directory' },
  { name: 'database-url-file', value: 'FILE', help: 'verify the chain in a database' },
  { name: 'database-insecure-tls', help: 'let the database’s URL do without sslmode=verify-full' },
  { name: 'json', help: 'print JSON, for scripts' },
] as const satisfies ReadonlyArray<OptionSpec<string>>;
type Name = (typeof OPTIONS)[number]['name'];

const EPILOGUE = `
FILE is an export (JSON lines, ending in a checkpoint), DIR a directory of its segments. A server
may go on writing into its data directory or its database meanwhile. Without --key or --checkpoint
the chain only vouches for itself. Exit codes: 0 verified, 10 tampered, 11 incomplete,
12 unreadable, 2 wrong usage.
`;

/** Whether progress may be shown: on a terminal. */
export interface Surroundings {
  readonly isTerminal: boolean;
}

/** Runs one command line; returns the exit code. Never throws. */
export async function runHaloVerify(
  args: readonly string[],
  console: Console,
  surroundings: Surroundings,
): Promise<number> {
  const end = { exitCode: EXIT_VERIFIED };
  const command = applyConsole(new Command('halo-verify'), console);
  declareVerify(command, console, surroundings, (exitCode) => {
    end.exitCode = exitCode;
  });
  try {
    await command.parseAsync([...args], { from: 'user' });
    return end.exitCode;
  } catch (error) {
    if (!(error instanceof CommanderError)) throw error;
    return error.exitCode === 0 ? 0 : EXIT_USAGE;
  }
}

/** Makes a command one that verifies: `halo-verify` itself, and `halo audit verify`. */
export function declareVerify(
  command: Command,
  console: Console,
  surroundings: Surroundings,
  onEnd: (exitCode: number) => void,
): void {
  command
    .description('Proves that a chain of evidence was not changed, cut or reordered.')
    .argument('[FILE|DIR]', 'what to verify: an export, or a directory of segments')
    .addHelpText('after', EPILOGUE);
  declareOptions(command, OPTIONS);
  command.action(async (path: string | undefined) => {
    try {
      const given = gatherOptions(command, OPTIONS, console.environment);
      const place = await placeOf(path, given);
      onEnd(await verify(place, given, console, surroundings));
    } catch (error) {
      const isUsage = error instanceof UsageError;
      const text = isUsage ? error.message : `it cannot be read: ${reasonOf(error)}`;
      console.err(`halo-verify: ${printable(text)}\n`);
      onEnd(isUsage ? EXIT_USAGE : EXIT_UNREADABLE);
    }
  });
}

/** What the command line says counts more than what the environment says. */
async function placeOf(path: string | undefined, given: GivenOptions<Name>): Promise<ChainPlace> {
  const named = (['data-dir', 'database-url-file'] as const).filter(
    (name) => given.text(name) !== undefined,
  );
  const onCommandLine = named.filter((name) => given.origin(name) === `--${name}`);
  const count = onCommandLine.length + (path === undefined ? 0 : 1);
  const inEnvironment = count === 0 ? named : [];
  if (count > 1 || inEnvironment.length > 1) {
    throw new UsageError('name one: FILE, DIR, --data-dir or --database-url-file');
  }
  if (path !== undefined) return { kind: 'path', path };
  const [name] = count === 1 ? onCommandLine : inEnvironment;
  if (name === undefined) {
    throw new UsageError('missing what to verify: FILE, DIR, --data-dir or --database-url-file');
  }
  const file = parsePath(given.origin(name), given.text(name) ?? '');
  if (name === 'data-dir') return { kind: 'data-dir', dataDir: file };
  const url = await readDatabaseUrl(file);
  return { kind: 'database', url, insecureTls: given.on('database-insecure-tls') };
}

function reasonOf(error: unknown): string {
  // In words of ours, without a host, a file or a value in them.
  if (error instanceof CodedError) return error.message;
  const code = codeOf(error);
  return code === 'unknown error' && error instanceof Error ? error.message : code;
}

async function verify(
  place: ChainPlace,
  given: GivenOptions<Name>,
  console: Console,
  { isTerminal }: Surroundings,
): Promise<number> {
  const pins = await readPins(given);
  const bar = isTerminal && !given.on('json') ? new ProgressLine(console) : undefined;
  let result: VerificationResult;
  try {
    result = await verifyChain(place, pins, bar && ((progress) => bar.show(progress)));
  } finally {
    bar?.clear();
  }
  console.out(given.on('json') ? `${JSON.stringify(jsonOf(result))}\n` : textOf(result));
  return EXIT_CODES[result.status];
}

async function readPins(given: GivenOptions<Name>): Promise<Pins> {
  const [keyPath, checkpointPath] = [given.text('key'), given.text('checkpoint')];
  return {
    ...(keyPath === undefined ? {} : { key: await readPinnedKey(given.origin('key'), keyPath) }),
    ...(checkpointPath === undefined
      ? {}
      : { checkpoint: await readPinnedCheckpoint(given.origin('checkpoint'), checkpointPath) }),
  };
}

function jsonOf(result: VerificationResult): object {
  const { status, isPinned, records, chain, head, pending, finding } = result;
  const { seq, check, expected, found } = finding ?? {};
  return {
    ok: status === 'verified',
    status,
    pinned: isPinned,
    records,
    ...(chain === undefined ? {} : { chain }),
    ...(head === undefined ? {} : { head }),
    ...(pending === undefined ? {} : { pending }),
    ...(finding === undefined ? {} : { firstBad: { seq, check, expected, found } }),
  };
}

const VERDICTS: Readonly<Record<Status, string>> = {
  verified: 'verified',
  tampered: 'NOT VERIFIED: tampered with',
  incomplete: 'NOT VERIFIED: incomplete',
  unreadable: 'NOT VERIFIED: of a newer version than this program reads',
};

function textOf(result: VerificationResult): string {
  const { status, isPinned, records, chain, head, pending, finding } = result;
  const lines = [`${VERDICTS[status]}`, `records   ${numberText(records)}`];
  if (chain !== undefined) lines.push(`chain     ${chain}`);
  if (head !== undefined) lines.push(`head      ${head.seq} ${head.hash}`);
  if (pending !== undefined && pending > 0) {
    lines.push(`pending   ${numberText(pending)}: not verified, they have no place yet`);
  }
  if (finding !== undefined) {
    lines.push(`record    ${finding.seq}`, `check     ${finding.check}`);
    lines.push(`expected  ${finding.expected}`, `found     ${finding.found}`);
  }
  if (status === 'verified') {
    lines.push(
      isPinned
        ? 'pinned    yes'
        : 'pinned    no: self-asserted. Whoever has any key can make such a chain: use --key.',
    );
  }
  return lines.map((line) => `${printable(line)}\n`).join('');
}
