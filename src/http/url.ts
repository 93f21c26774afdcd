/** Percent-decoding, once and strictly. */
import { HttpProblem } from './problem-details.js';

/** Decodes one segment of a path; throws `url_invalid` (400). */
export function decodedSegment(segment: string): string {
  try {
    return decodeURIComponent(segment);
  } catch {
    throw new HttpProblem('url_invalid');
  }
}

/** The fields of a query; a name that comes twice is `url_invalid` (400), as bad encoding is. */
export function decodedQuery(query: string): Map<string, string> {
  const values = new Map<string, string>();
  for (const pair of query.split('&')) {
    if (pair === '') continue;
    const equals = pair.indexOf('=');
    const key = decodedField(equals === -1 ? pair : pair.slice(0, equals));
    const value = equals === -1 ? '' : decodedField(pair.slice(equals + 1));
    if (values.has(key)) {
      throw new HttpProblem('url_invalid', { detail: 'The query names a field twice.' });
    }
    values.set(key, value);
  }
  return values;
}

/** Forms write a space as `+`, and every client encodes a plus. */
function decodedField(text: string): string {
  return decodedSegment(text.replaceAll('+', ' '));
}
