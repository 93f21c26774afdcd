/** The text of a column as the value that it stands for. */
import { StoreError } from '../store-error.js';

/** A row as the server sent it: the text of each column. */
export type Row = readonly (string | null)[];

/** Integers of 64 bits become numbers or an error, never a rounded number. */
export function integer(row: Row, column: number): number {
  const number = Number(text(row, column));
  if (Number.isSafeInteger(number)) return number;
  throw new StoreError('incompatible', 'The database holds an integer beyond 2^53.');
}

/** For a column that may be empty, such as an expiry that never comes. */
export function integerOrNull(row: Row, column: number): number | null {
  return row[column] === null ? null : integer(row, column);
}

/** For a column that is never empty: an empty one means another schema. */
export function text(row: Row, column: number): string {
  const value = row[column];
  if (typeof value === 'string') return value;
  throw new StoreError('incompatible', 'The database holds an empty column where none may be.');
}

/** A boolean; an empty one is false. */
export function flag(row: Row, column: number): boolean {
  return row[column] === 't';
}
