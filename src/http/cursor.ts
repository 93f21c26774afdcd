/** Opaque list cursors: base64url of `<epoch>.<n>`, so that one of another history is noticed. */
import { HttpProblem } from './problem-details.js';

/** An epoch and the largest safe integer take 33 characters, in base64url 44. */
export const CURSOR_LENGTH_MAX = 64;
const INSIDE = /^([0-9a-f]{16})\.([1-9]\d{0,15})$/;

/** What a cursor says: which history, and where in it. */
export interface Cursor {
  readonly epoch: string;
  /** Ordinal to go on after. */
  readonly after: number;
}

/** The text that a client hands back unread. */
export function cursorText(cursor: Cursor): string {
  return Buffer.from(`${cursor.epoch}.${cursor.after}`, 'latin1').toString('base64url');
}

/** Throws `cursor_invalid` (400) for what `cursorText` did not make. */
export function parseCursor(text: string): Cursor {
  const inside = Buffer.from(text, 'base64url').toString('latin1');
  const match = INSIDE.exec(inside);
  const [, epoch, digits] = match ?? [];
  if (epoch === undefined || digits === undefined) throw new HttpProblem('cursor_invalid');
  const cursor = { epoch, after: Number(digits) };
  if (!Number.isSafeInteger(cursor.after) || cursorText(cursor) !== text) {
    throw new HttpProblem('cursor_invalid');
  }
  return cursor;
}
