/**
 * Events: what happened, before it has a place in the chain. An event is masked and bounded once,
 * at the door, and is from then on the text that is stored, compared, authenticated and chained.
 */
import { createHmac, timingSafeEqual } from 'node:crypto';
import { CodedError } from '../runtime/failure.js';
import { canonicalJson, type Json, type JsonObject } from './canonical-json.js';
import {
  CHAIN_KIND_PREFIX,
  EVENT_BYTES_MAX,
  EVENT_FIELDS,
  EVIDENCE_VERSION,
  KIND_CHARACTERS_MAX,
  KIND_PATTERN,
  OUTBOX_PREFIX,
  REF_PATTERN,
  TIME_PATTERN,
} from './format.js';
import type { Masking } from './masking.js';

/** Who did it: a kind of party, and its id or name. */
export interface Party {
  readonly type: string;
  readonly id: string;
}

/** An event as its decider says it, unmasked: never stored, never logged. */
export interface EventDraft {
  /** `ev_` and a UUID in lower case, given out at once and valid for ever. */
  readonly ref: string;
  /** Such as `device.revoked`; never below `chain.`. */
  readonly kind: string;
  /** When it was decided: RFC 3339, UTC, milliseconds. */
  readonly at: string;
  readonly by: Party;
  readonly data: JsonObject;
}

/** An event taken apart. Each member is the canonical text that stands in the event. */
export interface EventParts {
  readonly ref: string;
  readonly kind: string;
  readonly at: string;
  readonly members: Readonly<Record<(typeof EVENT_FIELDS)[number], string>>;
}

/**
 * Masks, bounds and encodes an event: the canonical text that is stored in the decision's own
 * commit. Throws `CodedError` `evidence_too_large` (more than `EVENT_BYTES_MAX` after masking) or
 * `evidence_invalid`; neither repeats a value.
 */
export function encodeEvent(draft: EventDraft, masking: Masking): string {
  if (draft.kind.startsWith(CHAIN_KIND_PREFIX)) throw invalid('the chain speaks for itself');
  const data = masking.mask(draft.data, 'data');
  return encode(draft, masking, data.value, data.pointers);
}

/**
 * Encodes a statement of the chain about itself. Its data is made of hashes and keys and stays as
 * it is, since a pattern that happens to fit a hash would break the chain; `by` is masked.
 */
export function encodeStatement(draft: EventDraft, masking: Masking): string {
  if (!draft.kind.startsWith(CHAIN_KIND_PREFIX)) throw invalid('it is no statement of the chain');
  return encode(draft, masking, draft.data, []);
}

function encode(
  draft: EventDraft,
  masking: Masking,
  data: Json,
  pointers: readonly string[],
): string {
  const { ref, kind, at } = draft;
  if (!REF_PATTERN.test(ref)) throw invalid('its ref is none');
  if (!isKind(kind)) throw invalid('its kind is none');
  if (!TIME_PATTERN.test(at)) throw invalid('its time is not RFC 3339 in UTC with milliseconds');
  const by = masking.mask({ type: draft.by.type, id: draft.by.id }, 'by');
  if (!isParty(by.value)) throw invalid('it does not say who did it');
  if (!isObject(data)) throw invalid('its data is no object');
  const masked = [...by.pointers, ...pointers];
  const text = canonicalJson({ at, by: by.value, data, kind, masked, ref, v: EVIDENCE_VERSION });
  if (Buffer.byteLength(text) > EVENT_BYTES_MAX) {
    const message = `the event is larger than ${EVENT_BYTES_MAX} bytes`;
    throw new CodedError('evidence_too_large', message);
  }
  return text;
}

/**
 * Takes a stored event apart. Throws `CodedError` `evidence_newer` for a version that a newer
 * binary wrote (leave it to one) and `evidence_unreadable` for everything that `encodeEvent` cannot
 * have written, a text that is not canonical included: such an event is reported, never skipped.
 */
export function decodeEvent(text: string): EventParts {
  const value = parse(text);
  const { v, ref, kind, at, by, data, masked } = value;
  if (typeof v === 'number' && Number.isSafeInteger(v) && v > EVIDENCE_VERSION) {
    throw new CodedError('evidence_newer', `an event of version ${v} needs a newer binary`);
  }
  if (typeof ref !== 'string' || !REF_PATTERN.test(ref)) throw unreadable('its ref is none');
  if (typeof kind !== 'string' || !isKind(kind)) throw unreadable('its kind is none');
  if (typeof at !== 'string' || !TIME_PATTERN.test(at)) throw unreadable('its time is none');
  if (!isParty(by) || !isObject(data) || !isTexts(masked)) throw unreadable('a field is missing');
  const members = membersOf({ at, by, data, kind, masked, ref, v: EVIDENCE_VERSION });
  const again = `{${EVENT_FIELDS.map((name) => `"${name}":${members[name]}`).join(',')}}`;
  if (again !== text) throw unreadable('it is not in canonical form');
  return { ref, kind, at, members };
}

function membersOf(fields: Record<keyof EventParts['members'], Json>): EventParts['members'] {
  try {
    return {
      at: canonicalJson(fields.at),
      by: canonicalJson(fields.by),
      data: canonicalJson(fields.data),
      kind: canonicalJson(fields.kind),
      masked: canonicalJson(fields.masked),
      ref: canonicalJson(fields.ref),
      v: canonicalJson(fields.v),
    };
  } catch (cause) {
    const message = 'a stored event cannot be read: it has no canonical form';
    throw new CodedError('evidence_unreadable', message, { cause });
  }
}

function parse(text: string): Readonly<Record<string, Json | undefined>> {
  if (Buffer.byteLength(text) > EVENT_BYTES_MAX) throw unreadable('it is too long');
  try {
    const value = JSON.parse(text) as Json;
    if (isObject(value)) return value;
  } catch {
    // The library's message quotes the text: it is dropped with the cause.
  }
  throw unreadable('it is no JSON object');
}

/** Where an event waits in the outbox: its writer, numbered by the writer. */
export interface OutboxPlace {
  /** A random id for each life of an actor. */
  readonly writer: string;
  /** From 1, without gaps. */
  readonly count: number;
}

/**
 * The MAC over an event in the outbox and over its place there, so that a planted, changed or moved
 * row shows. HMAC-SHA256 in hexadecimal; the secret is `Keyring.derive('evidence-outbox')`.
 */
export function outboxMac(secret: Uint8Array, place: OutboxPlace, text: string): string {
  const head = canonicalJson([place.writer, place.count]);
  const mac = createHmac('sha256', secret).update(OUTBOX_PREFIX).update(`${head}\n`);
  return mac.update(text).digest('hex');
}

/** Whether the MAC is that of the event at its place, in constant time. */
export function isOutboxMac(
  secret: Uint8Array,
  place: OutboxPlace,
  text: string,
  mac: string,
): boolean {
  const expected = Buffer.from(outboxMac(secret, place, text));
  const found = Buffer.from(mac);
  return expected.length === found.length && timingSafeEqual(expected, found);
}

function isKind(kind: string): boolean {
  return kind.length <= KIND_CHARACTERS_MAX && KIND_PATTERN.test(kind);
}

function isObject(value: Json | undefined): value is JsonObject {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

function isTexts(value: Json | undefined): value is readonly string[] {
  return Array.isArray(value) && value.every((item) => typeof item === 'string');
}

function isParty(value: Json | undefined): value is JsonObject {
  if (!isObject(value) || Object.keys(value).length !== 2) return false;
  const { type, id } = value;
  return typeof type === 'string' && type !== '' && typeof id === 'string' && id !== '';
}

function invalid(why: string): CodedError {
  return new CodedError('evidence_invalid', `the event cannot be recorded: ${why}`);
}

function unreadable(why: string): CodedError {
  return new CodedError('evidence_unreadable', `a stored event cannot be read: ${why}`);
}
