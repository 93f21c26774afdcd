/**
 * The versioned envelope around everything that is stored. A binary reads `FORMAT_NEWEST` and the
 * one before it, and writes the one that the store names (`halo_store.write_format`), so that old
 * and new binaries run side by side in a rolling upgrade.
 *
 * Format 1 is an object, `{"v":1,"type":"device","data":{…}}`. Format 2 is an array,
 * `[2,"device",…fields]`: a third shorter and parsed twice as fast, since names are not repeated.
 * The package that owns a type says how its data looks in each.
 */
import { StoreError } from './store-error.js';

/** The newest format that this binary reads and can be told to write. */
export const FORMAT_NEWEST = 2;
/** The oldest that it reads: what the release before this one writes. */
export const FORMAT_OLDEST = FORMAT_NEWEST - 1;

/** The formats that there is code for. */
export type Format = 1 | 2;

/** What is around one stored record, taken apart. */
export interface Envelope {
  readonly format: Format;
  readonly type: string;
  /** Format 1: an object. Format 2: the array of fields. */
  readonly data: unknown;
}

/** The body as it is stored. Its `data` must have the shape that belongs to its format. */
export function encodeEnvelope(envelope: Envelope): string {
  if (envelope.format === 1) {
    return JSON.stringify({ v: 1, type: envelope.type, data: envelope.data });
  }
  return JSON.stringify([2, envelope.type, ...(envelope.data as unknown[])]);
}

/** Throws `StoreError` `incompatible` for a format or a shape that this binary does not know. */
export function decodeEnvelope(body: string): Envelope {
  let value: unknown;
  try {
    value = JSON.parse(body);
  } catch (cause) {
    throw new StoreError('incompatible', 'A stored record is not JSON.', { cause });
  }
  if (Array.isArray(value)) {
    // By index: destructuring an array costs a fifth of a replay.
    const format: unknown = value[0];
    const type: unknown = value[1];
    if (isRead(format, 2) && typeof type === 'string') {
      return { format: 2, type, data: value.slice(2) };
    }
    throw unknownFormat(format);
  }
  const { v, type, data } = (value ?? {}) as Record<string, unknown>;
  if (isRead(v, 1) && typeof type === 'string') return { format: 1, type, data };
  throw unknownFormat(v);
}

/** Whether it is the format of that shape, and one that this binary reads. */
function isRead(format: unknown, shape: Format): boolean {
  return format === shape && shape >= FORMAT_OLDEST && shape <= FORMAT_NEWEST;
}

function unknownFormat(format: unknown): StoreError {
  const seen = typeof format === 'number' ? String(format) : 'unreadable';
  return new StoreError(
    'incompatible',
    `A stored record has envelope format ${seen}; ` +
      `this binary reads ${FORMAT_OLDEST} to ${FORMAT_NEWEST}.`,
  );
}
