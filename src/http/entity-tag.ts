/** Strong entity tags over answers, and `If-None-Match` (RFC 9110 §8.8.3 and §13.1.2). */
import { hash } from 'node:crypto';

/** 22 base64url characters are 128 bits: enough that two bodies never share one by chance. */
const TAG_LENGTH = 22;

/** The tag of a body: equal bodies have equal tags, on every replica. */
export function entityTag(body: string | Buffer): string {
  return `"${hash('sha256', body, 'base64url').slice(0, TAG_LENGTH)}"`;
}

/** Compared weakly, as the header asks for; what is not well formed does not match. */
export function matchesEntityTag(ifNoneMatch: string, tag: string): boolean {
  if (ifNoneMatch.trim() === '*') return true;
  return ifNoneMatch
    .split(',')
    .map((candidate) => candidate.trim().replace(/^W\//, ''))
    .includes(tag);
}
