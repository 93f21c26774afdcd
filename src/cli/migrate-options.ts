/** The options of `halo-server migrate`. Pure: the URL is read later. */
import { UsageError } from './exit-codes.js';
import type { GivenOptions, OptionSpec } from './option-table.js';
import { parsePath } from './option-values.js';

/** What `migrate` is to do. */
export type MigrateAction = 'migrate' | 'plan' | 'check' | 'finish';

/** Everything that `migrate` needs to know. */
export interface MigrateOptions {
  readonly action: MigrateAction;
  readonly urlFile: string;
  readonly insecureTls: boolean;
  readonly json: boolean;
}

/** The table behind help, command line and environment. */
export const MIGRATE_OPTIONS = [
  {
    name: 'database-url-file',
    value: 'FILE',
    help: 'a file with the URL of the database, of a role that may create tables (required)',
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
  const urlFile = given.text('database-url-file');
  if (urlFile === undefined) throw new UsageError('name the database with --database-url-file');
  const chosen = ACTIONS.filter((action) => given.on(action));
  if (chosen.length > 1) {
    const names = chosen.map((action) => given.origin(action)).join(' and ');
    throw new UsageError(`${names} exclude each other`);
  }
  return {
    action: chosen[0] ?? 'migrate',
    urlFile: parsePath(given.origin('database-url-file'), urlFile),
    insecureTls: given.on('database-insecure-tls'),
    json: given.on('json'),
  };
}
