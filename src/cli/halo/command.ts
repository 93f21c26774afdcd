/** What a command of `halo` is, as data. */
import type { GivenOptions, OptionSpec } from '../option-table.js';
import type { Api } from './api.js';

/** What a command found: the value for `--json`, and the text for people. */
export interface Shown {
  readonly value: unknown;
  readonly text: string;
  /** It was asked, and the answer is not what was hoped for: the command ends with 1. */
  readonly hasFailed?: boolean;
}

/** One use of a command, with its words and its own options. */
export interface Call {
  readonly words: readonly string[];
  readonly given: GivenOptions<string>;
}

/** Where a command writes that tells more than one thing. */
export interface Output {
  readonly isJson: boolean;
  /** Writes the value as a line of JSON, or the text, as `isJson` says. */
  show(shown: Shown): void;
  err(text: string): void;
  /** Writes a result as it is; resolves when more may be written. */
  write(text: string): Promise<void>;
  /** Whether progress may be shown. */
  readonly isTerminal: boolean;
}

/** A command: what to write, what it says of itself, and what it does. */
export interface CommandSpec {
  readonly usage: string;
  readonly description: string;
  readonly options?: ReadonlyArray<OptionSpec<string>>;
  readonly isDefault?: boolean;
  /** What --token-file is, where it is no admin token. */
  readonly tokenHelp?: string;
  /** Checks the words and options first; what it returns then asks the server. */
  readonly prepare: (call: Call) => (api: Api, output: Output) => Promise<Shown | undefined>;
  /** What it does instead where no server is to be asked; undefined: one is. */
  readonly offline?: (call: Call) => (() => Promise<Shown>) | undefined;
}
