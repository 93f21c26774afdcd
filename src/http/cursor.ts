/**
 * Opaque list cursors: base64url of `<epoch>.<n>` or `<epoch>.<n>.<id>`, so that one of another
 * history is noticed.
 */
import { HttpProblem } from './problem-details.js';

/** An epoch, the largest safe integer and an id take 73 characters, in base64url 98. */
export const CURSOR_LENGTH_MAX = 128;
const INSIDE = /^([0-9a-f]{16})\.([1-9]\d{0,15})(?:\.([\w-]{1,48}))?$/;

/** What a cursor says: which history, and where in it. */
export interface Cursor {
  readonly epoch: string;
  /** The number to go on after: an ordinal, or a time. */
  readonly after: number;
  /** Of those with that number the last one, where several may share it. */
  readonly id?: string;
}

/** The text that a client hands back unread. */
export function cursorText({ epoch, after, id }: Cursor): string {
  const inside = id === undefined ? `${epoch}.${after}` : `${epoch}.${after}.${id}`;
  return Buffer.from(inside, 'latin1').toString('base64url');
}

/** Throws `cursor_invalid` (400) for what `cursorText` did not make. */
export function parseCursor(text: string): Cursor {
  const inside = Buffer.from(text, 'base64url').toString('latin1');
  const [, epoch, digits, id] = INSIDE.exec(inside) ?? [];
  if (epoch === undefined || digits === undefined) throw new HttpProblem('cursor_invalid');
  const cursor = { epoch, after: Number(digits), ...(id === undefined ? {} : { id }) };
  if (!Number.isSafeInteger(cursor.after) || cursorText(cursor) !== text) {
    throw new HttpProblem('cursor_invalid');
  }
  return cursor;
}
