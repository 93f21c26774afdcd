/** One line of a chain, read strictly: is it a record, and what does it hash to? */
import { hash } from 'node:crypto';
import {
  DEPTH_MAX,
  EVIDENCE_VERSION,
  HASH_PATTERN,
  HASH_PREFIX,
  KEY_ID_PATTERN,
  KIND_CHARACTERS_MAX,
  KIND_PATTERN,
  RECORD_FIELDS,
  REF_PATTERN,
  SIGNATURE_PATTERN,
  TIME_PATTERN,
} from '../evidence/format.js';
import { canonicalForm, type JsonMembers, type JsonValue } from './canonical-form.js';
import { type Check, type Status, shown } from './findings.js';

/** What the verifier looks at in a record, and what its bytes hash to. */
export interface ReadRecord {
  readonly seq: number;
  readonly ref: string;
  readonly kind: string;
  readonly prevHash: string;
  readonly hash: string;
  readonly keyId: string;
  readonly signature: string;
  readonly data: JsonMembers;
  /** What `hash` should be. */
  readonly computedHash: string;
}

/** Why a line is no record. */
export interface LineFault {
  readonly status: Exclude<Status, 'verified'>;
  readonly check: Check;
  readonly expected: string;
  readonly found: string;
}

/** Reads one line without its line end; undefined stands for one that is no text or too long. */
export function readRecordLine(line: string | undefined): ReadRecord | LineFault {
  const value = line === undefined ? undefined : parse(line);
  if (line === undefined || value === undefined) {
    return fault('line', 'a JSON object in UTF-8', line ?? 'too long or not UTF-8');
  }
  const { v } = value;
  if (typeof v === 'number' && Number.isSafeInteger(v) && v > EVIDENCE_VERSION) {
    return { ...fault('version', String(EVIDENCE_VERSION), v), status: 'unreadable' };
  }
  const bad = firstBadField(value);
  if (bad !== undefined) return fault('fields', `a valid ${bad}`, value[bad]);
  const forms = formsOf(value);
  if (forms === undefined) return fault('canonical', 'a canonical form', 'none');
  const form = join(RECORD_FIELDS, forms);
  if (form !== line) return fault('canonical', ...differences(form, line));
  const unsigned = RECORD_FIELDS.filter((name) => name !== 'hash' && name !== 'sig');
  return {
    seq: value['seq'] as number,
    ref: value['ref'] as string,
    kind: value['kind'] as string,
    prevHash: value['prev_hash'] as string,
    hash: value['hash'] as string,
    keyId: value['key_id'] as string,
    signature: value['sig'] as string,
    data: value['data'] as JsonMembers,
    computedHash: hash('sha256', HASH_PREFIX + join(unsigned, forms), 'hex'),
  };
}

/** Whether it is a fault. */
export function isFault(read: ReadRecord | LineFault): read is LineFault {
  return 'check' in read;
}

function fault(check: Check, expected: string, found: unknown): LineFault {
  return { status: 'tampered', check, expected: shown(expected), found: shown(found) };
}

function parse(line: string): JsonMembers | undefined {
  try {
    const value = JSON.parse(line) as JsonValue;
    return isMembers(value) ? value : undefined;
  } catch {
    return undefined;
  }
}

/** A few characters before the first difference of two texts, so that people find the place. */
const CONTEXT_CHARACTERS = 16;

function differences(form: string, line: string): [expected: string, found: string] {
  let index = 0;
  while (index < form.length && form[index] === line[index]) index += 1;
  const start = Math.max(0, index - CONTEXT_CHARACTERS);
  return [form.slice(start), line.slice(start)];
}

type FieldTest = (value: JsonValue) => boolean;

const matching =
  (pattern: RegExp): FieldTest =>
  (value) =>
    typeof value === 'string' && pattern.test(value);

const isFilledText: FieldTest = (value) => typeof value === 'string' && value !== '';

const FIELD_TESTS: Readonly<Record<(typeof RECORD_FIELDS)[number], FieldTest>> = {
  at: matching(TIME_PATTERN),
  by: (value) =>
    isMembers(value) &&
    Object.keys(value).length === 2 &&
    isFilledText(value['type'] ?? null) &&
    isFilledText(value['id'] ?? null),
  chained_at: matching(TIME_PATTERN),
  data: isMembers,
  hash: matching(HASH_PATTERN),
  key_id: matching(KEY_ID_PATTERN),
  kind: (value) =>
    typeof value === 'string' && value.length <= KIND_CHARACTERS_MAX && KIND_PATTERN.test(value),
  masked: (value) => Array.isArray(value) && value.every((item) => typeof item === 'string'),
  prev_hash: matching(HASH_PATTERN),
  ref: matching(REF_PATTERN),
  seq: (value) => typeof value === 'number' && Number.isSafeInteger(value) && value >= 0,
  sig: matching(SIGNATURE_PATTERN),
  v: (value) => value === EVIDENCE_VERSION,
};

/** The first field, in canonical order, that is missing or wrong; or one that is not known. */
function firstBadField(value: JsonMembers): string | undefined {
  for (const name of RECORD_FIELDS) {
    const field = Object.hasOwn(value, name) ? value[name] : undefined;
    if (field === undefined || !FIELD_TESTS[name](field)) return name;
  }
  const known: readonly string[] = RECORD_FIELDS;
  const names = Object.keys(value);
  return names.length === known.length ? undefined : names.find((name) => !known.includes(name));
}

function isMembers(value: JsonValue): value is JsonMembers {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

type Forms = Readonly<Record<string, string>>;

function formsOf(value: JsonMembers): Forms | undefined {
  const forms: Record<string, string> = {};
  for (const name of RECORD_FIELDS) {
    const form = canonicalForm(value[name] ?? null, DEPTH_MAX - 1);
    if (form === undefined) return undefined;
    forms[name] = form;
  }
  return forms;
}

function join(names: readonly string[], forms: Forms): string {
  let text = '{';
  for (const name of names) text += `${text.length === 1 ? '' : ','}"${name}":${forms[name]}`;
  return `${text}}`;
}
