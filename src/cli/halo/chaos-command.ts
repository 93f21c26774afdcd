/** `halo chaos`: faults on replicas that it starts itself. Asks no server; runs in a checkout. */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync } from 'node:fs';
import { constants } from 'node:os';
import { fileURLToPath } from 'node:url';
import { CodedError } from '../../runtime/failure.js';
import { UsageError } from '../exit-codes.js';
import type { GivenOptions } from '../option-table.js';
import type { CommandSpec, Shown } from './command.js';

/** Beside the tests, whose PostgreSQL, network and clients it plays with. */
const PROGRAM = fileURLToPath(new URL('../../../test/chaos/run.js', import.meta.url));
const EXIT_USAGE = 2;

const OPTIONS = [
  { name: 'rounds', value: 'N', help: 'how often each scenario is played (default 1)' },
  { name: 'seed', value: 'S', help: 'what chance is drawn from (default: one at random, printed)' },
  { name: 'scenario', value: 'NAME', help: 'play this one only; --list names them' },
  { name: 'replicas', value: 'N', help: 'processes on one PostgreSQL (default 2)' },
  { name: 'list', help: 'name the scenarios and the guarantees, and play nothing' },
] as const;

/** Exit code 0 only when every guarantee held; an inconclusive one counts as not held. */
export const CHAOS_COMMAND: CommandSpec = {
  usage: 'chaos',
  description: 'kill, stop and cut off replicas started for it, and judge every guarantee',
  options: OPTIONS,
  prepare: () => () => Promise.reject(new Error('this command asks no server')),
  offline: ({ given }) => {
    const args = argumentsOf(given);
    return () => play(args);
  },
};

function argumentsOf(given: GivenOptions<string>): string[] {
  return OPTIONS.flatMap((option) => {
    if (!('value' in option)) return given.on(option.name) ? [`--${option.name}`] : [];
    const text = given.text(option.name);
    return text === undefined ? [] : [`--${option.name}=${text}`];
  });
}

async function play(args: readonly string[]): Promise<Shown> {
  if (!existsSync(PROGRAM)) {
    throw new CodedError(
      'chaos_unavailable',
      'This installation has no chaos: run it in a checkout, after npm ci.',
    );
  }
  const child = spawn(process.execPath, [PROGRAM, ...args], {
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  let said = '';
  child.stdout.on('data', (chunk: Buffer) => {
    said += chunk.toString();
  });
  const [exitCode, signal] = (await once(child, 'close')) as [number | null, NodeJS.Signals | null];
  if (exitCode === EXIT_USAGE) throw new UsageError('see above');
  if (said === '') {
    const how = signal === null ? exitCode : `${signal} (${constants.signals[signal]})`;
    throw new CodedError('chaos_failed', `It ended with ${how} before it had a verdict.`);
  }
  const { text, ...value } = JSON.parse(said) as { readonly text: string };
  return { value, text, hasFailed: exitCode !== 0 };
}
