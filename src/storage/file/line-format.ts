/**
 * The lines of logs and snapshots: `<crc32 of the JSON, 8 hex digits> <JSON>\n`.
 *
 * The first line of a file is a header. A line of a log is one commit,
 * `[timeMs,"batch",operation,…]`; a line of a snapshot is `[operation,…]`, and its last line is a
 * trailer. Operations say what is, not what to add, so that applying one again changes nothing.
 */
import { crc32 } from 'node:zlib';
import { StoreError } from '../store-error.js';

export type JournalOperation = readonly [
  'j',
  stream: string,
  id: number,
  key: string | null,
  body: string,
  /** In a snapshot only, since a commit names the batch of all its records once. */
  batch?: string,
];
export type TableOperation =
  | readonly ['k', key: string, value: string, expiresAtMs: number | null]
  | readonly ['kd', key: string]
  | readonly [
      'd',
      kind: string,
      id: string,
      version: number,
      body: string,
      expiresAtMs: number | null,
    ]
  | readonly ['dd', kind: string, id: string]
  | readonly ['c', key: string, value: number, expiresAtMs: number | null]
  | readonly ['s', id: string, seenAtMs: number]
  | readonly ['store', epoch: string, writeFormat: number];
/** A finished record of the evidence chain, signature included. */
export type EvidenceOperation = readonly [
  'e',
  seq: number,
  ref: string,
  hash: string,
  text: string,
];
export type Operation = JournalOperation | TableOperation | EvidenceOperation;

export type CommitLine = readonly [timeMs: number, batch: string, ...operations: Operation[]];
export type SnapshotLine = readonly Operation[];

/** The version of the file layout itself; `incompatible` when a file says another. */
export const LAYOUT_VERSION = 1;

/** The first line, so that no file is taken for another. */
export interface FileHeader {
  readonly halos: 'commit-log' | 'snapshot';
  readonly version: number;
  readonly generation: number;
}

/** The last line of a snapshot: what is not in its rows, and the proof that it is whole. */
export interface SnapshotTrailer {
  readonly end: true;
  readonly newestId: number;
  readonly newestTimeMs: number;
  /** Newest id and batch of each stream. */
  readonly heads: Readonly<Record<string, readonly [id: number, batch: string]>>;
  /** The newest record of the evidence chain, and the hash of its record 0; absent before it. */
  readonly chain?: { readonly seq: number; readonly hash: string; readonly id: string };
}

/** Bytes before the JSON: eight digits and a space. */
export const LINE_PREFIX_BYTES = 9;
const LINE_FEED = 0x0a;
const SPACE = 0x20;

/** A value as a line, its line feed included. */
export function encodeLine(value: unknown): string {
  const json = JSON.stringify(value);
  return `${crc32(json).toString(16).padStart(8, '0')} ${json}\n`;
}

/** True when the bytes, without the line feed, are a line as it was written. */
export function isIntact(bytes: Buffer, start: number, end: number): boolean {
  if (end - start <= LINE_PREFIX_BYTES || bytes[start + 8] !== SPACE) return false;
  let expected = 0;
  for (let at = start; at < start + 8; at += 1) {
    const digit = hexDigit(bytes[at] ?? 0);
    if (digit < 0) return false;
    expected = expected * 16 + digit;
  }
  return crc32(bytes.subarray(start + LINE_PREFIX_BYTES, end)) === expected;
}

/** Only the form that is written: an upper-case digit is damage. */
function hexDigit(byte: number): number {
  if (byte >= 0x30 && byte <= 0x39) return byte - 0x30;
  return byte >= 0x61 && byte <= 0x66 ? byte - 0x57 : -1;
}

/** What an intact line says; it was this program that wrote it, so its shape is trusted. */
export function lineJson(bytes: Buffer, start: number, end: number): unknown {
  return JSON.parse(bytes.toString('utf8', start + LINE_PREFIX_BYTES, end));
}

/** File systems write whole sectors: where one is missing of what was written, it is zeros. */
const SECTOR_BYTES = 512;

/**
 * Whether the end of the last log, which is not an intact line, is what a crash leaves of a write
 * that was never answered, rather than a commit that was damaged afterwards: the line feed, written
 * last, is missing; or a whole sector of it never reached the disk. `bytes` is from the start of
 * the broken line, at `offset`, to the end of the file.
 */
export function isTorn(bytes: Buffer, offset: number): boolean {
  for (let start = 0; start < bytes.length; ) {
    const end = Math.min(start + SECTOR_BYTES - ((offset + start) % SECTOR_BYTES), bytes.length);
    if (bytes.subarray(start, end).every((byte) => byte === 0)) return true;
    start = end;
  }
  const whole = bytes.at(-1) === LINE_FEED || isIntact(bytes, 0, bytes.length - 1);
  return !whole;
}

/** `damaged`, saying where: what was stored is not what was written, or has gone. */
export function damaged(file: string, line: number, offset: number, what: string): StoreError {
  return new StoreError(
    'damaged',
    `${file}, line ${line}, byte offset ${offset}: ${what}. Restore the directory from a backup.`,
  );
}

/** Throws `damaged` or `incompatible` unless the line is the header of such a file. */
export function checkHeader(
  value: unknown,
  kind: FileHeader['halos'],
  generation: number,
  file: string,
): void {
  const header = (value ?? {}) as Partial<FileHeader>;
  if (header.halos !== kind || header.generation !== generation) {
    throw damaged(file, 1, 0, `the first line is not that of ${kind} ${generation}`);
  }
  if (header.version !== LAYOUT_VERSION) {
    throw new StoreError(
      'incompatible',
      `${file} has layout ${String(header.version)}; this binary reads layout ${LAYOUT_VERSION}.`,
    );
  }
}
