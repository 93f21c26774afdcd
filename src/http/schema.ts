/**
 * The kinds of values that routes take and give, as superstruct structs. Each leaf carries its JSON
 * Schema and a phrase for people in `schema`, which `optional` keeps, so that validation, error
 * texts and OpenAPI have one source. Failures carry a phrase of ours: superstruct's own contains
 * the received value, and throws when that value cannot be printed.
 */
import { type object, Struct } from 'superstruct';
import { canonicalUser } from './user-name.js';

/** A JSON Schema (2020-12), as OpenAPI 3.1 uses it. */
export type JsonSchema = { readonly [keyword: string]: unknown };

/** What a leaf carries in `schema`. */
export interface Leaf {
  readonly json: JsonSchema;
  /** Completes "must be …". */
  readonly expected: string;
}

type Shape = Readonly<Record<string, Struct<unknown, unknown>>>;

export const UNKNOWN_FIELD = 'unknown_field';

function leaf<T>(
  type: string,
  json: JsonSchema,
  expected: string,
  test: (value: unknown) => boolean,
  coercer?: (value: unknown) => unknown,
): Struct<T, Leaf> {
  return new Struct<T, Leaf>({
    type,
    schema: { json, expected },
    validator: (value) => test(value) || { message: expected },
    ...(coercer === undefined ? {} : { coercer }),
  });
}

const unknownField = leaf<never>(
  UNKNOWN_FIELD,
  {},
  'left out: there is no such field',
  () => false,
);

/** An object with exactly these fields; superstruct's `object`, but with failures of ours. */
export const fields = strictObject as unknown as typeof object;

function strictObject(shape: Shape): Struct<unknown, unknown> {
  return new Struct<unknown, unknown>({
    type: 'object',
    schema: shape,
    validator: (value) => isPlainObject(value) || { message: 'an object' },
    coercer: (value) => (isPlainObject(value) ? { ...value } : value),
    *entries(value) {
      if (!isPlainObject(value)) return;
      for (const [key, struct] of Object.entries(shape)) {
        const held = Object.hasOwn(value, key) ? value[key] : undefined;
        yield [key, held, struct as unknown as Struct<never>];
      }
      for (const key of Object.keys(value)) {
        if (!Object.hasOwn(shape, key)) yield [key, value[key], unknownField];
      }
    },
  });
}

function isPlainObject(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

/** Names and ids are 1 to 256 characters (API.md); a character is a Unicode code point. */
export const NAME_LENGTH_MAX = 256;
const CONTROL = /\p{Cc}/u;

function isName(value: unknown): boolean {
  if (typeof value !== 'string' || value.length === 0) return false;
  // A code point is at most two units, so that long texts need not be walked.
  if (value.length > 2 * NAME_LENGTH_MAX || !value.isWellFormed() || CONTROL.test(value)) {
    return false;
  }
  return value.length <= NAME_LENGTH_MAX || [...value].length <= NAME_LENGTH_MAX;
}

const NAME_EXPECTED = `text of 1 to ${NAME_LENGTH_MAX} characters without control characters`;
const NAME_JSON: JsonSchema = { type: 'string', minLength: 1, maxLength: NAME_LENGTH_MAX };

/** A name, an id or a reason. */
export function name(description: string): Struct<string, Leaf> {
  return leaf('name', { ...NAME_JSON, description }, NAME_EXPECTED, isName);
}

/** A user's name; validation makes it canonical, so that handlers never see another form. */
export function userName(): Struct<string, Leaf> {
  return leaf(
    'user',
    {
      ...NAME_JSON,
      description: 'A user; made canonical (white space around it removed, NFC, lower case).',
    },
    NAME_EXPECTED,
    isName,
    (value) => (typeof value === 'string' ? canonicalUser(value) : value),
  );
}

/** Any JSON object: its members are the caller’s own. */
export function jsonObject(description: string): Struct<Record<string, unknown>, Leaf> {
  return leaf('JSON object', { type: 'object', description }, 'an object', isPlainObject);
}

/** An integer within bounds. In a query it is written in decimal digits. */
export function integerBetween(
  minimum: number,
  maximum: number,
  description: string,
  standard?: number,
): Struct<number, Leaf> {
  return leaf(
    'integer',
    {
      type: 'integer',
      minimum,
      maximum,
      ...(standard === undefined ? {} : { default: standard }),
      description,
    },
    `an integer from ${minimum} to ${maximum}`,
    (value) => Number.isInteger(value) && Number(value) >= minimum && Number(value) <= maximum,
  );
}

/** As `integerBetween`, or null. */
export function integerOrNull(minimum: number, description: string): Struct<number | null, Leaf> {
  return leaf(
    'integer or null',
    { type: ['integer', 'null'], minimum, description },
    `an integer from ${minimum} on, or null`,
    (value) => value === null || (Number.isSafeInteger(value) && Number(value) >= minimum),
  );
}

/** A safe integer's decimal digits, for `integerBetween` in a query; anything else stays text. */
export function integerFromText(text: string): number | string {
  return /^-?\d{1,15}$/.test(text) ? Number(text) : text;
}

/** Text of a fixed form; `expected` says the form in words. */
export function textLike(
  pattern: RegExp,
  expected: string,
  description: string,
): Struct<string, Leaf> {
  return leaf(
    'text',
    { type: 'string', pattern: pattern.source, description },
    expected,
    (value) => typeof value === 'string' && pattern.test(value),
  );
}

/** Exactly `bytes` bytes in base64url without padding, in their one canonical spelling. */
export function base64urlBytes(bytes: number, description: string): Struct<string, Leaf> {
  const length = Math.ceil((bytes * 4) / 3);
  return leaf(
    'base64url',
    { type: 'string', pattern: `^[0-9A-Za-z_-]{${length}}$`, description },
    `${bytes} bytes in base64url`,
    (value) =>
      typeof value === 'string' &&
      value.length === length &&
      Buffer.from(value, 'base64url').toString('base64url') === value,
  );
}

/** Any text at all that is well-formed Unicode, up to `lengthMax` units: secrets and cursors. */
export function opaque(lengthMax: number, description: string): Struct<string, Leaf> {
  return leaf(
    'opaque',
    { type: 'string', minLength: 1, maxLength: lengthMax, description },
    `text of 1 to ${lengthMax} characters`,
    (value) =>
      typeof value === 'string' &&
      value.length > 0 &&
      value.length <= lengthMax &&
      value.isWellFormed(),
  );
}

const TIME = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/;

/** RFC 3339 in UTC with milliseconds. */
export function time(description: string): Struct<string, Leaf> {
  return leaf(
    'time',
    { type: 'string', format: 'date-time', description },
    'a time such as 2026-01-31T12:00:00.000Z',
    (value) => typeof value === 'string' && TIME.test(value) && !Number.isNaN(Date.parse(value)),
  );
}

const DATE = /^(\d{4})-(\d\d)-(\d\d)$/;
const TIME_OF_DAY = /^([01]\d|2[0-3]):[0-5]\d:[0-5]\d(\.\d{1,9})?(Z|[+-]([01]\d|2[0-3]):[0-5]\d)$/i;

/** A time as callers may write it: RFC 3339 with any offset. */
export function instant(description: string): Struct<string, Leaf> {
  return leaf(
    'instant',
    { type: 'string', format: 'date-time', description },
    'a time such as 2026-01-31T12:00:00Z or 2026-01-31T13:00:00.5+01:00',
    (value) => typeof value === 'string' && isInstant(value),
  );
}

/**
 * Dates that no calendar has are refused: `Date.parse` takes 30 February for 2 March. So are times
 * that an offset moves out of the years 0 to 9999, since in UTC they could not be written.
 */
function isInstant(text: string): boolean {
  const [date = '', timeOfDay = '', ...rest] = text.split(/t/i);
  const day = DATE.exec(date)?.[3];
  if (day === undefined || rest.length > 0 || !TIME_OF_DAY.test(timeOfDay)) return false;
  const midnight = new Date(`${date}T00:00:00Z`);
  if (Number.isNaN(midnight.getTime()) || midnight.getUTCDate() !== Number(day)) return false;
  return TIME.test(timeText(instantMs(text)));
}

/** A checked `instant` in ms since the Unix epoch. */
export function instantMs(text: string): number {
  return Date.parse(text.toUpperCase());
}

/** How a time leaves the process: RFC 3339 in UTC with milliseconds. */
export function timeText(ms: number): string {
  return new Date(ms).toISOString();
}
