/** The migration files of this binary: `migrations/NNNN_name.sql`, 1..n without gaps. */
import { readdirSync, readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { DatabaseError } from './database-error.js';

/** One file of `migrations/`, which is never edited after it landed. */
export interface Migration {
  readonly version: number;
  /** What the file's name says it does. */
  readonly name: string;
  /** A binary whose own newest migration is older than this cannot run on the result. */
  readonly minBinary: number;
  readonly sql: string;
}

/** Four levels up from dist/src/storage/postgres: beside dist, in the package. */
const FOLDER = fileURLToPath(new URL('../../../../migrations/', import.meta.url));

const FILE_NAME = /^(\d{4})_([a-z0-9_]+)\.sql$/;
const HEADER = /^-- min-binary-schema: (\d+)$/;

/** Throws `migration_invalid` for a missing, misnamed or headless file. */
export function readMigrations(folder: string = FOLDER): readonly Migration[] {
  const names = readdirSync(folder).sort();
  const migrations = names.map((name, index) => {
    const text = readFileSync(`${folder}/${name}`, 'utf8');
    return parseMigration(name, index + 1, text);
  });
  if (migrations.length === 0) throw invalid('There are no migration files.');
  return migrations;
}

function parseMigration(fileName: string, version: number, sql: string): Migration {
  const [, digits, name] = FILE_NAME.exec(fileName) ?? [];
  if (digits === undefined || name === undefined) {
    throw invalid(`${fileName} is not named like 0001_what_it_does.sql.`);
  }
  if (Number(digits) !== version) {
    throw invalid(`${fileName} stands where migration ${version} should.`);
  }
  const [, header] = HEADER.exec(sql.split('\n', 1)[0] ?? '') ?? [];
  const minBinary = Number(header ?? 0);
  if (minBinary < 1 || minBinary > version) {
    throw invalid(`${fileName} must begin with "-- min-binary-schema: N", N from 1 to ${version}.`);
  }
  return { version, name, minBinary, sql };
}

function invalid(message: string): DatabaseError {
  return new DatabaseError('migration_invalid', message);
}
