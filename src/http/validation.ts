/** Checks what came in against a struct and names what is wrong, never what was received. */
import { type Failure, type Struct, validate } from 'superstruct';
import { type FieldError, HttpProblem } from './problem-details.js';
import { integerFromText, type Leaf, UNKNOWN_FIELD } from './schema.js';

/** More than a person fixes at once; the rest shows at the next attempt. */
const ERRORS_MAX = 8;
/** An unknown field's name is repeated only when it cannot be a secret put in the wrong place. */
const HARMLESS_NAME = /^[A-Za-z][A-Za-z0-9_-]{0,30}$/;

/** The value, made canonical; throws `validation_failed` (422). */
export function validated<T>(
  place: FieldError['in'],
  value: unknown,
  struct: Struct<T, never> | Struct<T, unknown>,
): T {
  const [error, valid] = validate(value, struct as Struct<T, unknown>, { coerce: true });
  if (error === undefined) return valid as T;
  const errors: FieldError[] = [];
  for (const failure of error.failures()) {
    if (errors.length === ERRORS_MAX) break;
    errors.push(fieldError(place, failure));
  }
  throw new HttpProblem('validation_failed', { detail: summary(errors), errors });
}

/** For rules that no struct states, such as fields that belong together. */
export function fieldProblem(
  place: FieldError['in'],
  pointer: string,
  detail: string,
): HttpProblem {
  const errors = [{ in: place, pointer, detail }];
  return new HttpProblem('validation_failed', { detail: summary(errors), errors });
}

/** Query values are text; those of an integer field become numbers, so that one struct serves. */
export function queryValues(
  text: ReadonlyMap<string, string>,
  struct: Struct<unknown, unknown>,
): Record<string, unknown> {
  const shape = struct.schema as Readonly<Record<string, Struct<unknown, Leaf>>>;
  const values: Record<string, unknown> = Object.create(null) as Record<string, unknown>;
  for (const [key, value] of text) {
    const isInteger = Object.hasOwn(shape, key) && shape[key]?.schema.json['type'] === 'integer';
    values[key] = isInteger ? integerFromText(value) : value;
  }
  return values;
}

function fieldError(place: FieldError['in'], failure: Failure): FieldError {
  const path = failure.path as readonly (string | number)[];
  const unknown = failure.type === UNKNOWN_FIELD;
  const known = unknown ? path.slice(0, -1) : path;
  const last = String(path.at(-1));
  const missing = failure.value === undefined && path.length > 0;
  return {
    in: place,
    pointer: [...known, ...(unknown && HARMLESS_NAME.test(last) ? [last] : [])]
      .map((part) => `/${String(part).replaceAll('~', '~0').replaceAll('/', '~1')}`)
      .join(''),
    detail: missing ? `is missing; must be ${failure.message}` : `must be ${failure.message}`,
  };
}

function summary(errors: readonly FieldError[]): string {
  const first = errors[0];
  if (first === undefined) return 'The request is not as it should be.';
  const where = first.pointer === '' ? `The ${first.in}` : `${first.in} ${first.pointer}`;
  return `${where} ${first.detail}.`;
}
