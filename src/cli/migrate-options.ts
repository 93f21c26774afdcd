/** The options of `halo-server migrate`. Pure: the URL is read later. */
import { UsageError } from './exit-codes.js';
import type { GivenOptions, OptionSpec } from './option-table.js';
import { parsePath } from './option-values.js';

/** What `migrate` is to do. */
export type MigrateAction = 'migrate' | 'plan' | 'check' | 'finish';

/** Everything that `migrate` needs to know. */
export interface MigrateOptions {
  readonly action: MigrateAction;
  /** The database, or for `finish` alone the directory of a stopped server on files. */
  readonly target: { readonly urlFile: string } | { readonly dataDir: string };
  readonly insecureTls: boolean;
  readonly json: boolean;
}

/** The table behind help, command line and environment. */
export const MIGRATE_OPTIONS = [
  {
    name: 'database-url-file',
    value: 'FILE',
    help: 'a file with the URL of the database, of a role that may create tables',
  },
  {
    name: 'data-dir',
    value: 'DIR',
    help: 'with --finish alone: the directory of a stopped server on files',
  },
  { name: 'plan', help: 'say what would be done, and do nothing' },
  { name: 'check', help: 'say whether this version can serve the database as it is' },
  {
    name: 'finish',
    help: 'after a rolling upgrade: write the newest record format, once no older replica runs',
  },
  {
    name: 'database-insecure-tls',
    help: 'let a database on another host be reached without sslmode=verify-full',
  },
  { name: 'json', help: 'print JSON, for scripts' },
] as const satisfies ReadonlyArray<OptionSpec<string>>;

/** The name of an option of `migrate`. */
export type MigrateOptionName = (typeof MIGRATE_OPTIONS)[number]['name'];

const ACTIONS = ['plan', 'check', 'finish'] as const;

/** Reads and checks what was given. Throws `UsageError`. */
export function readMigrateOptions(given: GivenOptions<MigrateOptionName>): MigrateOptions {
  const chosen = ACTIONS.filter((action) => given.on(action));
  if (chosen.length > 1) {
    const names = chosen.map((action) => given.origin(action)).join(' and ');
    throw new UsageError(`${names} exclude each other`);
  }
  const action = chosen[0] ?? 'migrate';
  return {
    action,
    target: readTarget(given, action),
    insecureTls: given.on('database-insecure-tls'),
    json: given.on('json'),
  };
}

function readTarget(
  given: GivenOptions<MigrateOptionName>,
  action: MigrateAction,
): MigrateOptions['target'] {
  const urlFile = given.text('database-url-file');
  const dataDir = given.text('data-dir');
  if (urlFile !== undefined && dataDir !== undefined) {
    const names = `${given.origin('database-url-file')} and ${given.origin('data-dir')}`;
    throw new UsageError(`${names} exclude each other`);
  }
  if (urlFile !== undefined)
    return { urlFile: parsePath(given.origin('database-url-file'), urlFile) };
  if (dataDir === undefined) throw new UsageError('name the database with --database-url-file');
  if (action !== 'finish') throw new UsageError('files need no migration: only --finish applies');
  return { dataDir: parsePath(given.origin('data-dir'), dataDir) };
}
