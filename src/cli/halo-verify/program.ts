/** The command line of `halo-verify` and its exit codes (API.md "Commands"). */
import { Command, CommanderError } from 'commander';
import { systemClock } from '../../runtime/clock.js';
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
import { codeOf, readPinnedCheckpoint, readPinnedKey } from './pins.js';
import { type Progress, verifyPath } from './verify-path.js';

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
  { name: 'json', help: 'print JSON, for scripts' },
] as const satisfies ReadonlyArray<OptionSpec<string>>;
type Name = (typeof OPTIONS)[number]['name'];

const EPILOGUE = `
FILE is an export (JSON lines, ending in a checkpoint), DIR a directory of its segments. Without
--key or --checkpoint the chain only vouches for itself. Exit codes: 0 verified, 10 tampered,
11 incomplete, 12 unreadable, 2 wrong usage.
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
  const command = applyConsole(new Command('halo-verify'), console)
    .description('Proves that a chain of evidence was not changed, cut or reordered.')
    .argument('<FILE|DIR>', 'what to verify')
    .addHelpText('after', EPILOGUE);
  declareOptions(command, OPTIONS);
  command.action(async (path: string) => {
    const given = gatherOptions(command, OPTIONS, console.environment);
    end.exitCode = await verify(path, given, console, surroundings);
  });
  try {
    await command.parseAsync([...args], { from: 'user' });
    return end.exitCode;
  } catch (error) {
    if (error instanceof CommanderError) return error.exitCode === 0 ? 0 : EXIT_USAGE;
    const isUsage = error instanceof UsageError;
    const text = isUsage ? error.message : `it cannot be read: ${reasonOf(error)}`;
    console.err(`halo-verify: ${printable(text)}\n`);
    return isUsage ? EXIT_USAGE : EXIT_UNREADABLE;
  }
}

function reasonOf(error: unknown): string {
  const code = codeOf(error);
  return code === 'unknown error' && error instanceof Error ? error.message : code;
}

async function verify(
  path: string,
  given: GivenOptions<Name>,
  console: Console,
  { isTerminal }: Surroundings,
): Promise<number> {
  const pins = await readPins(given);
  const bar = isTerminal && !given.on('json') ? new ProgressLine(console) : undefined;
  let result: VerificationResult;
  try {
    result = await verifyPath(path, pins, bar && ((progress) => bar.show(progress)));
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

function jsonOf({ status, isPinned, records, chain, head, finding }: VerificationResult): object {
  const { seq, check, expected, found } = finding ?? {};
  return {
    ok: status === 'verified',
    status,
    pinned: isPinned,
    records,
    ...(chain === undefined ? {} : { chain }),
    ...(head === undefined ? {} : { head }),
    ...(finding === undefined ? {} : { firstBad: { seq, check, expected, found } }),
  };
}

const VERDICTS: Readonly<Record<Status, string>> = {
  verified: 'verified',
  tampered: 'NOT VERIFIED: tampered with',
  incomplete: 'NOT VERIFIED: incomplete',
  unreadable: 'NOT VERIFIED: of a newer version than this program reads',
};

function textOf({ status, isPinned, records, chain, head, finding }: VerificationResult): string {
  const lines = [`${VERDICTS[status]}`, `records   ${numberText(records)}`];
  if (chain !== undefined) lines.push(`chain     ${chain}`);
  if (head !== undefined) lines.push(`head      ${head.seq} ${head.hash}`);
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

function numberText(number: number): string {
  return number.toLocaleString('en-US');
}

/** Often enough for people. */
const PROGRESS_INTERVAL_MS = 250;

/** One line of a terminal, written over and over. */
class ProgressLine {
  private shownAtMs = -Infinity;

  constructor(private readonly console: Console) {}

  show({ records, bytesRead, bytes }: Progress): void {
    const nowMs = systemClock.monotonicMs();
    if (nowMs - this.shownAtMs < PROGRESS_INTERVAL_MS) return;
    this.shownAtMs = nowMs;
    const percent = bytes === 0 ? 100 : Math.floor((100 * bytesRead) / bytes);
    this.console.err(`\r${numberText(records)} records, ${percent} %`);
  }

  clear(): void {
    if (this.shownAtMs !== -Infinity) this.console.err('\r\u001B[K');
  }
}
