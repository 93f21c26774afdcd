/** The commands of `halo-server`, their options and exit codes. */
import { Command, CommanderError } from 'commander';
import { applyConsole, type Console, withoutCredentials } from './console.js';
import { EXIT_DONE, EXIT_USAGE, exitCodeOf } from './exit-codes.js';
import { MIGRATE_OPTIONS, readMigrateOptions } from './migrate-options.js';
import { declareOptions, gatherOptions } from './option-table.js';
import { readServeOptions, SERVE_OPTIONS } from './serve-options.js';
import { packageVersion } from './version.js';

const EPILOGUE = `
Every option can also come from the environment: HALO_LISTEN for --listen. URLs and secrets come
from files only. A DURATION has its unit: 500ms, 15s, 2m, 1h.
Exit codes: 0 done, 1 failed, 2 wrong usage, 3 refused (schema mismatch, data directory held).
`;

/** Runs one command line; returns the exit code. Never throws. */
export async function runHaloServer(args: readonly string[], console: Console): Promise<number> {
  let exitCode = EXIT_DONE;
  const program = buildProgram(console, (code) => {
    exitCode = code;
  });
  try {
    await program.parseAsync([...args], { from: 'user' });
    return exitCode;
  } catch (error) {
    if (error instanceof CommanderError) return error.exitCode === 0 ? EXIT_DONE : EXIT_USAGE;
    const message = error instanceof Error ? error.message : 'failed';
    console.err(`halo-server: ${withoutCredentials(message)}\n`);
    return exitCodeOf(error);
  }
}

function buildProgram(console: Console, ended: (exitCode: number) => void): Command {
  const program = applyConsole(new Command('halo-server'), console)
    .description('The control plane of a fleet of AI agents.')
    .version(packageVersion())
    .addHelpText('afterAll', EPILOGUE);

  const serve = program
    .command('serve')
    .description('run a server: on files, or as one of several replicas on PostgreSQL')
    .copyInheritedSettings(program);
  declareOptions(serve, SERVE_OPTIONS);
  serve.action(async () => {
    const options = readServeOptions(gatherOptions(serve, SERVE_OPTIONS, console.environment));
    // Loaded when needed: help and migrations do without the HTTP server's native part.
    const { runServe } = await import('./serve.js');
    ended(await runServe(options));
  });

  const migrate = program
    .command('migrate')
    .description('bring the database to the schema of this version')
    .copyInheritedSettings(program);
  declareOptions(migrate, MIGRATE_OPTIONS);
  migrate.action(async () => {
    const given = gatherOptions(migrate, MIGRATE_OPTIONS, console.environment);
    const options = readMigrateOptions(given);
    const { runMigrate } = await import('./migrate.js');
    ended(await runMigrate(options, console));
  });
  return program;
}
