/** Reading JSON strictly, and writing it canonically for comparison. */
import { isUtf8 } from 'node:buffer';
import { HttpProblem } from './problem-details.js';

/** Parses a body; throws `body_invalid_json` (400), whose detail never quotes the body. */
export function parseJsonBody(bytes: Buffer): unknown {
  if (bytes.length === 0) throw invalid('The body is empty.');
  if (!isUtf8(bytes)) throw invalid('The body is not UTF-8.');
  const text = bytes.toString('utf8');
  let value: unknown;
  try {
    value = JSON.parse(text) as unknown;
  } catch {
    // The parser's message quotes the text, which may hold a secret.
    throw invalid('The body is not JSON.');
  }
  refuseAmbiguousKeys(text);
  return value;
}

/**
 * RFC 8259 §4 leaves duplicate keys open and `JSON.parse` takes the last, where a proxy may take
 * the first; `__proto__` is an attack or a mistake. `text` is known to be valid JSON.
 */
function refuseAmbiguousKeys(text: string): void {
  const objects: (Set<string> | undefined)[] = [];
  for (let at = 0; at < text.length; at += 1) {
    const character = text[at];
    if (character === '{') objects.push(new Set());
    else if (character === '[') objects.push(undefined);
    else if (character === '}' || character === ']') objects.pop();
    else if (character === '"') {
      const end = endOfString(text, at);
      if (isBeforeColon(text, end)) {
        const key = JSON.parse(text.slice(at, end)) as string;
        const keys = objects.at(-1);
        if (key === '__proto__') throw invalid('The body has a key that is not allowed.');
        if (keys?.has(key) === true) throw invalid('The body names a key twice.');
        keys?.add(key);
      }
      at = end - 1;
    }
  }
}

function endOfString(text: string, start: number): number {
  let at = start + 1;
  while (text[at] !== '"') at += text[at] === '\\' ? 2 : 1;
  return at + 1;
}

function isBeforeColon(text: string, end: number): boolean {
  let at = end;
  while (text[at] === ' ' || text[at] === '\n' || text[at] === '\r' || text[at] === '\t') at += 1;
  return text[at] === ':';
}

/**
 * The same text for every spelling of the same JSON value: keys sorted by UTF-16 units, no white
 * space. Only for values that were validated, since it recurses.
 */
export function canonicalJson(value: unknown): string {
  if (Array.isArray(value)) return `[${value.map(canonicalJson).join(',')}]`;
  if (typeof value !== 'object' || value === null) return JSON.stringify(value);
  const object = value as Record<string, unknown>;
  const members = Object.keys(object)
    .filter((key) => object[key] !== undefined)
    .sort()
    .map((key) => `${JSON.stringify(key)}:${canonicalJson(object[key])}`);
  return `{${members.join(',')}}`;
}

function invalid(detail: string): HttpProblem {
  return new HttpProblem('body_invalid_json', { detail });
}
