/**
 * Options as data: one table per command is the source of its help, of what the command line
 * accepts and of the environment variables that stand in for it.
 */
import { type Command, Option } from 'commander';
import { UsageError } from './exit-codes.js';

/** One option of a command. Without `value` it is a switch. */
export interface OptionSpec<Name extends string> {
  /** As on the command line, without the dashes. */
  readonly name: Name;
  /** One letter that stands for it too. */
  readonly letter?: string;
  /** What stands for the value in the help, such as `HOST:PORT`. */
  readonly value?: string;
  readonly help: string;
  /** Heading in the help under which it stands. */
  readonly group?: string;
}

/** What a command was given: the command line first, the environment where that is silent. */
export interface GivenOptions<Name extends string> {
  /** The value of an option, or undefined when it was not given. */
  text(name: Name): string | undefined;
  /** Whether a switch is on. */
  on(name: Name): boolean;
  /** How the user named it, for messages: `--listen` or `HALO_LISTEN`. */
  origin(name: Name): string;
}

/** The environment variable that stands in for an option. */
export function environmentName(name: string): string {
  return `HALO_${name.replaceAll('-', '_').toUpperCase()}`;
}

/** Declares the options on a command, in the order of the table. */
export function declareOptions<Name extends string>(
  command: Command,
  specs: ReadonlyArray<OptionSpec<Name>>,
): void {
  for (const spec of specs) {
    const option = new Option(flagsOf(spec), spec.help);
    command.addOption(spec.group === undefined ? option : option.helpGroup(spec.group));
  }
}

/**
 * Gathers what was given from a parsed command and the environment. Throws `UsageError` for a
 * switch in the environment that is neither true nor false. An empty variable counts as not set.
 */
export function gatherOptions<Name extends string>(
  command: Command,
  specs: ReadonlyArray<OptionSpec<Name>>,
  environment: Readonly<Record<string, string | undefined>>,
): GivenOptions<Name> {
  const values = new Map<Name, { value: string | boolean; origin: string }>();
  for (const spec of specs) {
    const parsed: unknown = command.getOptionValue(new Option(flagsOf(spec)).attributeName());
    const variable = environmentName(spec.name);
    const fallback = environment[variable];
    if (typeof parsed === 'string' || typeof parsed === 'boolean') {
      values.set(spec.name, { value: parsed, origin: `--${spec.name}` });
    } else if (fallback !== undefined && fallback !== '') {
      const value = spec.value === undefined ? parseSwitch(variable, fallback) : fallback;
      values.set(spec.name, { value, origin: variable });
    }
  }
  return {
    text: (name) => {
      const given = values.get(name)?.value;
      return typeof given === 'string' ? given : undefined;
    },
    on: (name) => values.get(name)?.value === true,
    origin: (name) => values.get(name)?.origin ?? `--${name}`,
  };
}

function flagsOf(spec: OptionSpec<string>): string {
  const letter = spec.letter === undefined ? '' : `-${spec.letter}, `;
  const value = spec.value === undefined ? '' : ` <${spec.value}>`;
  return `${letter}--${spec.name}${value}`;
}

function parseSwitch(variable: string, text: string): boolean {
  if (text === 'true' || text === '1') return true;
  if (text === 'false' || text === '0') return false;
  throw new UsageError(`${variable} is a switch: set it to true or false`);
}
