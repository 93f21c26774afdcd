/** Canonical JSON (RFC 8785, JCS), as the writer makes it. */
import canonicalize from 'canonicalize';
import { CodedError } from '../runtime/failure.js';
import { DEPTH_MAX } from './format.js';

/** What evidence is made of. Numbers are finite doubles; strings have no lone surrogates. */
export type Json = null | boolean | number | string | readonly Json[] | JsonObject;

/** An object of such values. */
export interface JsonObject {
  readonly [name: string]: Json;
}

/**
 * The one text of a value. Throws `CodedError` `evidence_invalid` for what JSON or RFC 8785 §3.2
 * cannot say (undefined, NaN, a lone surrogate, an object with `toJSON`) and for what nests deeper
 * than `DEPTH_MAX`: the library would leave some of it out silently.
 */
export function canonicalJson(value: Json): string {
  checkJson(value, DEPTH_MAX);
  const text = canonicalize(value);
  if (text === undefined) throw invalid('it is not a JSON value');
  return text;
}

/** Throws `CodedError` `evidence_invalid` unless the value is JSON and no deeper than that. */
export function checkJson(value: unknown, depthMax: number): asserts value is Json {
  if (value === null || typeof value === 'boolean') return;
  if (typeof value === 'string') {
    if (!value.isWellFormed()) throw invalid('a string in it is not Unicode');
  } else if (typeof value === 'number') {
    if (!Number.isFinite(value)) throw invalid('a number in it is not finite');
  } else if (typeof value !== 'object') {
    throw invalid('it holds something that is not JSON');
  } else if (depthMax === 0) {
    throw invalid(`it nests deeper than ${DEPTH_MAX}`);
  } else {
    checkMembers(value, depthMax);
  }
}

function checkMembers(value: object, depthMax: number): void {
  if (Array.isArray(value)) {
    // Unlike `forEach` this visits holes, which are not JSON.
    for (const item of value as readonly unknown[]) checkJson(item, depthMax - 1);
    return;
  }
  const prototype: unknown = Object.getPrototypeOf(value);
  if (prototype !== Object.prototype && prototype !== null) {
    throw invalid('it holds an object that is not plain');
  }
  for (const [name, member] of Object.entries(value)) {
    if (!name.isWellFormed()) throw invalid('a name in it is not Unicode');
    if (name === 'toJSON' && typeof member === 'function') throw invalid('it has a toJSON');
    checkJson(member, depthMax - 1);
  }
}

function invalid(why: string): CodedError {
  return new CodedError('evidence_invalid', `the event cannot be recorded: ${why}`);
}
