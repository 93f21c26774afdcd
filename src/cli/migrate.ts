/** `halo-server migrate`: what the typed functions of the PostgreSQL backend found, in words. */
import { CodedError } from '../runtime/failure.js';
import { FORMAT_NEWEST } from '../storage/envelope.js';
import { finishUpgrade } from '../storage/file/finish-upgrade.js';
import { check, finish, type MigrationPlan, migrate, plan } from '../storage/postgres/migrate.js';
import type { Console } from './console.js';
import { EXIT_DONE, exitCodeOf } from './exit-codes.js';
import type { MigrateOptions } from './migrate-options.js';
import { readDatabaseUrl } from './private-file.js';

/** What one action found: the value for `--json`, and the text for people. */
interface Found {
  readonly value: object;
  readonly text: string;
}

type Access = Parameters<typeof migrate>[0];

/** Runs the action and prints what it found; resolves with the exit code. */
export async function runMigrate(options: MigrateOptions, console: Console): Promise<number> {
  try {
    const { value, text } = await run(options);
    console.out(options.json ? `${JSON.stringify({ ok: true, ...value })}\n` : text);
    return EXIT_DONE;
  } catch (error) {
    if (!(error instanceof CodedError)) throw error;
    const { code, message } = error;
    if (options.json) console.out(`${JSON.stringify({ ok: false, code, message })}\n`);
    else console.err(`halo-server: ${message} (${code})\n`);
    return exitCodeOf(error);
  }
}

async function run({ action, target, insecureTls }: MigrateOptions): Promise<Found> {
  if ('dataDir' in target) {
    await finishUpgrade(target);
    const text = `Records are written in format ${FORMAT_NEWEST} from now on.\n`;
    return { value: { to: FORMAT_NEWEST }, text };
  }
  return ACTIONS[action]({ url: await readDatabaseUrl(target.urlFile), insecureTls });
}

const ACTIONS: Readonly<Record<MigrateOptions['action'], (access: Access) => Promise<Found>>> = {
  migrate: async (access) => {
    const done = await migrate(access);
    const text =
      done.applied.length === 0
        ? `Nothing to do: the database is at schema version ${done.to}.\n`
        : `Migrated from schema version ${done.from} to ${done.to}:\n${listed(done.applied)}`;
    return { value: done, text };
  },
  plan: async (access) => {
    const planned = await plan(access);
    return { value: planned, text: planText(planned) };
  },
  check: async (access) => {
    const checked = await check(access);
    const at = `schema version ${checked.version}`;
    const text = `The database is at ${at}: this version can serve it.\n`;
    return { value: checked, text: text + checked.hazards.map(hazardText).join('') };
  },
  finish: async (access) => {
    const done = await finish(access);
    const text =
      done.from === done.to
        ? `Nothing to do: records are written in format ${done.to} already.\n`
        : `Records are written in format ${done.to} from now on; it was ${done.from}.\n`;
    return { value: done, text };
  },
};

function hazardText(setting: string): string {
  return `Warning: ${setting} is off, so that a crash of its machine can lose data.\n`;
}

function planText(planned: MigrationPlan): string {
  const { version, target, pending } = planned;
  if (pending.length > 0) {
    return `The database is at schema version ${version}. To apply:\n${listed(pending)}`;
  }
  const newer = version > target ? ` That is newer than this version, which knows ${target}.` : '';
  return `Nothing to do: the database is at schema version ${version}.${newer}\n`;
}

function listed(migrations: MigrationPlan['pending']): string {
  return migrations
    .map(({ version, name }) => `  ${String(version).padStart(4, '0')} ${name}\n`)
    .join('');
}
