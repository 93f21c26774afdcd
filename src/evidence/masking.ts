/**
 * Masking: what must never be stored is replaced before anything is stored, hashed or logged
 * (ADR-0009 "Masking happens at enqueue time"). A profile names fields and patterns. Place and form
 * decide what is masked, never a value that the caller chose: otherwise a request could hide its
 * own action by repeating it as a “password”.
 */
import { createHmac } from 'node:crypto';
import { CodedError } from '../runtime/failure.js';
import { canonicalJson, type Json, type JsonObject } from './canonical-json.js';
import { DEPTH_MAX, MASK_PREFIX } from './format.js';

/**
 * What takes the place of a masked value. `remove` leaves nothing of it; `recognise` leaves an HMAC
 * by which the same value can be recognised, since a plain hash of something guessable can be
 * reversed.
 */
export type Treatment = 'remove' | 'recognise';

/** A field whose value is masked whole, whatever its type (null stays: nothing was there). */
export interface FieldRule {
  /**
   * A name at any depth (`password`), the end of a name (`*password`), or a path from `data`
   * (`/context/user/email`, a `*` for any one name or index). Names are compared without case,
   * `-`, `_` and `.`.
   */
  readonly field: string;
  readonly treatment: Treatment;
}

/** A pattern whose matches are masked inside every string and every name. */
export interface PatternRule {
  /** What it finds, for people. */
  readonly name: string;
  /** Source of a regular expression, with the flags `gu`. Must be linear: callers choose texts. */
  readonly pattern: string;
  readonly treatment: Treatment;
}

/** A named set of rules. */
export interface MaskingProfile {
  readonly name: string;
  readonly fields: readonly FieldRule[];
  readonly patterns: readonly PatternRule[];
}

/** The key of the HMACs that recognise: derived from the signing key, so each replica has it. */
export interface MaskingKey {
  readonly keyId: string;
  readonly secret: Uint8Array;
}

/** Data without what the profile masks. */
export interface Masked {
  readonly value: Json;
  /** Where it is not as it was given: JSON pointers (RFC 6901), in document order. */
  readonly pointers: readonly string[];
}

/** A profile made ready. */
export interface Masking {
  readonly profile: string;
  /**
   * Masks a value that will stand at `/<name>` of an event. Lone surrogates become U+FFFD: no text
   * that a caller can send makes evidence impossible. Throws `CodedError` `evidence_invalid` for
   * what is not JSON or nests too deep.
   */
  mask(value: unknown, name: string): Masked;
}

/** The label under which a signing key gives the key of the HMACs: `Keyring.derive`. */
export const MASKING_LABEL = 'evidence-masking';
/** Rules that an operator can read through; and each of them is tried on every name or string. */
const FIELDS_MAX = 256;
const PATTERNS_MAX = 64;
const PATTERN_CHARACTERS_MAX = 1024;
/** 128 bits of an HMAC recognise a value and keep a record short. */
const MAC_DIGITS = 32;
/** Stands for a value of which nothing is left. */
const REMOVED = '[masked]';

/**
 * Makes a profile ready. Throws `CodedError` `masking_profile_invalid`, which names the rule.
 * `key` is `Keyring.derive(MASKING_LABEL)` or as good.
 */
export function prepareMasking(profile: MaskingProfile, key: MaskingKey): Masking {
  if (profile.fields.length > FIELDS_MAX) throw refused(`more than ${FIELDS_MAX} fields`);
  if (profile.patterns.length > PATTERNS_MAX) throw refused(`more than ${PATTERNS_MAX} patterns`);
  const fields = prepareFields(profile.fields);
  const patterns = profile.patterns.map((rule) => ({
    expression: compile(rule),
    treatment: rule.treatment,
  }));
  const stand = (treatment: Treatment, text: string): string =>
    treatment === 'remove' ? REMOVED : `[hmac-sha256:${key.keyId}:${macOf(key.secret, text)}]`;
  const any = combine(profile.patterns);
  const maskText = (text: string): string => {
    let masked = text.toWellFormed();
    if (any !== undefined && !any.test(masked)) return masked;
    for (const { expression, treatment } of patterns) {
      masked = masked.replace(expression, (match) => stand(treatment, match));
    }
    return masked;
  };
  return {
    profile: profile.name,
    mask: (value, name) => {
      const walk = new Walk(fields, maskText, stand);
      const masked = walk.maskValue(value, new Place(undefined, name));
      return { value: masked, pointers: [...walk.pointers] };
    },
  };
}

function macOf(secret: Uint8Array, text: string): string {
  const mac = createHmac('sha256', secret).update(MASK_PREFIX).update(text).digest('hex');
  return mac.slice(0, MAC_DIGITS);
}

function compile(rule: PatternRule): RegExp {
  if (rule.pattern.length > PATTERN_CHARACTERS_MAX) throw refused(`${rule.name} is too long`);
  let expression: RegExp;
  try {
    expression = new RegExp(rule.pattern, 'gu');
  } catch (cause) {
    throw refused(`the pattern of ${rule.name} is no regular expression`, cause);
  }
  if (expression.test('')) throw refused(`the pattern of ${rule.name} matches nothing at all`);
  return expression;
}

/** What means something else beside other patterns: a reference back, a name of a group. */
const NOT_COMBINABLE = /\\[1-9k]|\(\?<[^=!]/;

/**
 * One expression that matches where any of the patterns does, so that a text without secrets, as
 * nearly all are, is looked through once: half the time of an event. Undefined if they cannot be
 * combined.
 */
function combine(rules: readonly PatternRule[]): RegExp | undefined {
  if (rules.some(({ pattern }) => NOT_COMBINABLE.test(pattern))) return undefined;
  if (rules.length === 0) return undefined;
  return new RegExp(rules.map(({ pattern }) => `(?:${pattern})`).join('|'), 'u');
}

function refused(why: string, cause?: unknown): CodedError {
  return new CodedError('masking_profile_invalid', `the masking profile cannot be used: ${why}`, {
    cause,
  });
}

/** Field rules by how they are found. */
interface Fields {
  readonly names: ReadonlyMap<string, Treatment>;
  readonly endings: ReadonlyArray<readonly [ending: string, treatment: Treatment]>;
  readonly paths: ReadonlyArray<readonly [path: readonly string[], treatment: Treatment]>;
  /** What `names` and `endings` say of a name as it is given: the same ones come all the time. */
  readonly known: Map<string, Treatment | undefined>;
}

/** Events use some dozen names; callers may invent more, so it is emptied when it is full. */
const KNOWN_NAMES_MAX = 1024;
/** A longer name is no name that comes again, and would stay in memory. */
const KNOWN_NAME_CHARACTERS_MAX = 64;

function prepareFields(rules: readonly FieldRule[]): Fields {
  const names = new Map<string, Treatment>();
  const endings: Array<readonly [string, Treatment]> = [];
  const paths: Array<readonly [readonly string[], Treatment]> = [];
  for (const { field, treatment } of rules) {
    if (field.startsWith('/')) {
      const path = field.slice(1).split('/').map(readPathName);
      if (path.some((name) => name === '')) throw refused(`the path ${field} has an empty name`);
      paths.push([path, treatment]);
      continue;
    }
    const name = plainName(field.replace(/^\*/, ''));
    if (name === '') throw refused('a field has no name');
    if (field.startsWith('*')) endings.push([name, treatment]);
    else names.set(name, treatment);
  }
  return { names, endings, paths, known: new Map() };
}

function readPathName(name: string): string {
  return name === '*' ? name : plainName(name.replaceAll('~1', '/').replaceAll('~0', '~'));
}

/** A name as rules compare it: `X-Api-Key`, `api_key` and `apiKey` end alike. */
function plainName(name: string): string {
  return name.toLowerCase().replaceAll(/[-_.]/g, '');
}

/** Where a value stands; its pointer is only made when something there is masked. */
class Place {
  constructor(
    readonly parent: Place | undefined,
    readonly name: string,
  ) {}

  pointer(): string {
    const own = `/${this.name.replaceAll('~', '~0').replaceAll('/', '~1')}`;
    return this.parent === undefined ? own : this.parent.pointer() + own;
  }

  /** Whether the names from below `data` down to here are those of the path. */
  fits(path: readonly string[]): boolean {
    let place: Place = this;
    for (let index = path.length - 1; index >= 0; index -= 1) {
      if (place.parent === undefined) return false;
      if (path[index] !== '*' && path[index] !== plainName(place.name)) return false;
      place = place.parent;
    }
    return place.parent === undefined && place.name === 'data';
  }
}

/** One walk over one value. */
class Walk {
  readonly pointers = new Set<string>();

  constructor(
    private readonly fields: Fields,
    private readonly maskText: (text: string) => string,
    private readonly stand: (treatment: Treatment, text: string) => string,
  ) {}

  maskValue(value: unknown, place: Place, depth = 0): Json {
    if (depth > DEPTH_MAX) throw tooDeep();
    const treatment = value === null ? undefined : this.treatmentOf(place);
    if (treatment !== undefined) {
      this.pointers.add(place.pointer());
      return this.stand(treatment, textOf(value));
    }
    if (typeof value === 'string') return this.maskString(value, place);
    if (typeof value !== 'object' || value === null) return value as Json;
    if (Array.isArray(value)) {
      return Array.from(value, (item: unknown, index) =>
        this.maskValue(item, new Place(place, String(index)), depth + 1),
      );
    }
    return this.maskObject(value, place, depth);
  }

  private maskString(text: string, place: Place): string {
    const masked = this.maskText(text);
    if (masked !== text) this.pointers.add(place.pointer());
    return masked;
  }

  private maskObject(value: object, place: Place, depth: number): JsonObject {
    if (Object.getPrototypeOf(value) !== Object.prototype) checkPlain(value);
    const members = new Map<string, Json>();
    for (const [name, member] of Object.entries(value) as ReadonlyArray<[string, unknown]>) {
      const shown = this.freeName(this.maskText(name), members);
      if (shown !== name) this.pointers.add(new Place(place, shown).pointer());
      // The rules look at the name as it was given: masking it must not lift them from its value.
      const treatment =
        member === null || shown === name ? undefined : this.treatmentOf(new Place(place, name));
      const masked =
        treatment === undefined
          ? this.maskValue(member, new Place(place, shown), depth + 1)
          : this.stand(treatment, textOf(member));
      members.set(shown, masked);
    }
    // `fromEntries` makes a member of `__proto__` where an assignment would not.
    return Object.fromEntries(members);
  }

  /** Two masked names of one object can look alike: the second gets a number. */
  private freeName(name: string, taken: ReadonlyMap<string, Json>): string {
    let free = name;
    for (let count = 2; taken.has(free); count += 1) free = `${name} ${count}`;
    return free;
  }

  private treatmentOf(place: Place): Treatment | undefined {
    if (place.parent === undefined) return undefined;
    const byName = this.treatmentOfName(place.name);
    if (byName !== undefined || this.fields.paths.length === 0) return byName;
    return this.fields.paths.find(([path]) => place.fits(path))?.[1];
  }

  private treatmentOfName(given: string): Treatment | undefined {
    const { names, endings, known } = this.fields;
    if (known.has(given)) return known.get(given);
    const name = plainName(given);
    const treatment = names.get(name) ?? endings.find(([text]) => name.endsWith(text))?.[1];
    if (given.length > KNOWN_NAME_CHARACTERS_MAX) return treatment;
    if (known.size >= KNOWN_NAMES_MAX) known.clear();
    known.set(given, treatment);
    return treatment;
  }
}

function textOf(value: unknown): string {
  return typeof value === 'string' ? value : canonicalJson(value as Json);
}

function checkPlain(value: object): void {
  if (Object.getPrototypeOf(value) === null) return;
  const why = 'it holds an object that is not plain';
  throw new CodedError('evidence_invalid', `the event cannot be recorded: ${why}`);
}

function tooDeep(): CodedError {
  const why = `it nests deeper than ${DEPTH_MAX}`;
  return new CodedError('evidence_invalid', `the event cannot be recorded: ${why}`);
}
