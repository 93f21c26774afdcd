/**
 * The few messages of PostgreSQL's protocol (version 3, "Message Formats") that the catch-up reader
 * speaks itself, since it resends one prepared message all day.
 */
import type { Row } from './row.js';

const SYNC = Buffer.from([0x53, 0, 0, 0, 4]);
const EXECUTE = Buffer.from([0x45, 0, 0, 0, 9, 0, 0, 0, 0, 0]);

/** Says goodbye, so that the server's log tells a close from a lost connection. */
export const TERMINATE = Buffer.from([0x58, 0, 0, 0, 4]);

/** Prepares `text` under `name` for the life of the connection; answered with the next Sync. */
export function encodeParse(name: string, text: string): Buffer {
  return message('P', Buffer.concat([cstring(name), cstring(text), int16(0)]));
}

/** Bind, Execute and Sync in one piece, all parameters and results as text. */
export function encodeBindExecute(name: string, values: readonly string[]): Buffer {
  const parameters = values.flatMap((value) => {
    const bytes = Buffer.from(value);
    return [int32(bytes.length), bytes];
  });
  const head = [cstring(''), cstring(name), int16(0), int16(values.length)];
  return Buffer.concat([
    message('B', Buffer.concat([...head, ...parameters, int16(0)])),
    EXECUTE,
    SYNC,
  ]);
}

/** An array as PostgreSQL reads it from text. */
export function encodeArray(items: readonly (string | number)[]): string {
  const quoted = items.map((item) => `"${String(item).replace(/["\\]/g, '\\$&')}"`);
  return `{${quoted.join(',')}}`;
}

/** One answer, up to and with ReadyForQuery. */
export interface Answer {
  readonly rows: Row[];
  /** SQLSTATE and severity, as `serverError` reads them. */
  readonly error: { readonly code: string; readonly severity: string } | undefined;
  /** Where the first column of each row begins, counted from the begin of the answer. */
  readonly firstColumns: number[];
  /** Where it ends in the bytes that were read. */
  readonly end: number;
}

const HEADER_BYTES = 5;
const [DATA_ROW, ERROR, READY] = [0x44, 0x45, 0x5a];
/** Before the first column of a row: how many there are, and the length of the first. */
const ROW_HEAD_BYTES = 2 + 4;

/** Reads one answer that begins at `begin`; undefined while some of it is missing. */
export function readAnswer(bytes: Buffer, begin: number): Answer | undefined {
  const end = endOfAnswer(bytes, begin);
  if (end === undefined) return undefined;
  const rows: Row[] = [];
  const firstColumns: number[] = [];
  let error: Answer['error'];
  for (let at = begin; at < end; at += lengthAt(bytes, at)) {
    const type = bytes[at];
    if (type === ERROR) error ??= readError(bytes, at);
    if (type !== DATA_ROW) continue;
    rows.push(readRow(bytes, at + HEADER_BYTES));
    firstColumns.push(at + HEADER_BYTES + ROW_HEAD_BYTES - begin);
  }
  return { rows, error, firstColumns, end };
}

/** What a server says before it closes a connection is an error without a ReadyForQuery. */
export function readLastWords(bytes: Buffer): Answer['error'] {
  let at = 0;
  while (at + HEADER_BYTES <= bytes.length && at + lengthAt(bytes, at) <= bytes.length) {
    if (bytes[at] === ERROR) return readError(bytes, at);
    at += lengthAt(bytes, at);
  }
  return undefined;
}

function endOfAnswer(bytes: Buffer, begin: number): number | undefined {
  let at = begin;
  while (at + HEADER_BYTES <= bytes.length) {
    const next = at + lengthAt(bytes, at);
    if (next > bytes.length) return undefined;
    if (bytes[at] === READY) return next;
    at = next;
  }
  return undefined;
}

/** Of a whole message: its length counts itself but not the type before it. */
function lengthAt(bytes: Buffer, at: number): number {
  return 1 + bytes.readUInt32BE(at + 1);
}

function readRow(bytes: Buffer, begin: number): Row {
  const row = new Array<string | null>(bytes.readUInt16BE(begin));
  let at = begin + 2;
  for (let column = 0; column < row.length; column += 1) {
    const length = bytes.readInt32BE(at);
    at += 4;
    row[column] = length < 0 ? null : bytes.toString('utf8', at, at + length);
    at += Math.max(0, length);
  }
  return row;
}

/** Fields are a letter and a zero-terminated text each, ended by a zero. */
function readError(bytes: Buffer, begin: number): { code: string; severity: string } {
  const fields = new Map<string, string>();
  const text = bytes.toString('utf8', begin + HEADER_BYTES, begin + lengthAt(bytes, begin));
  for (const field of text.split('\0')) fields.set(field.charAt(0), field.slice(1));
  return { code: fields.get('C') ?? 'XX000', severity: fields.get('S') ?? 'FATAL' };
}

function message(type: string, body: Buffer): Buffer {
  return Buffer.concat([Buffer.from(type), int32(body.length + 4), body]);
}

function cstring(text: string): Buffer {
  return Buffer.from(`${text}\0`);
}

function int16(value: number): Buffer {
  const bytes = Buffer.alloc(2);
  bytes.writeInt16BE(value);
  return bytes;
}

function int32(value: number): Buffer {
  const bytes = Buffer.alloc(4);
  bytes.writeInt32BE(value);
  return bytes;
}
