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

export function integerOrNull(row: Row, column: number): number | null {
  return row[column] === null ? null : integer(row, column);
}

export function text(row: Row, column: number): string {
  const value = row[column];
  if (typeof value === 'string') return value;
  throw new StoreError('incompatible', 'The database holds an empty column where none may be.');
}

export function flag(row: Row, column: number): boolean {
  return row[column] === 't';
}
