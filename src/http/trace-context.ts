/** W3C Trace Context, level 1: reading `traceparent`. What is not valid is as if it were absent. */

const TRACEPARENT = /^([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?$/;
const NO_TRACE = '0'.repeat(32);
const NO_PARENT = '0'.repeat(16);

/** What a valid `traceparent` says. */
export interface TraceContext {
  /** 32 lower-case hex digits. */
  readonly traceId: string;
  /** 16 lower-case hex digits: the caller's span. */
  readonly parentId: string;
  readonly sampled: boolean;
}

/** §3.2: version ff and ids of zeros are invalid; later versions may have more fields, 00 not. */
export function parseTraceparent(header: string): TraceContext | undefined {
  if (header === '') return undefined;
  const match = TRACEPARENT.exec(header);
  if (match === null) return undefined;
  const [, version, traceId, parentId, flags, rest] = match;
  if (version === 'ff' || (version === '00' && rest !== undefined)) return undefined;
  if (traceId === undefined || traceId === NO_TRACE) return undefined;
  if (parentId === undefined || parentId === NO_PARENT) return undefined;
  return { traceId, parentId, sampled: (Number.parseInt(flags ?? '00', 16) & 1) === 1 };
}
