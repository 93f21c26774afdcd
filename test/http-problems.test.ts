/** The error catalogue, the codes of every layer and docs/errors.md say the same. */
import { readFileSync } from 'node:fs';
import t from 'tap';
import { AUDIT_CODES } from '../src/actors/audit-chainer/messages.js';
import { DEVICE_CODES } from '../src/actors/devices/messages.js';
import { EVIDENCE_CODES } from '../src/actors/evidence.js';
import { GATEWAY_CODES } from '../src/actors/gateways/messages.js';
import { KILL_LIST_CODES } from '../src/actors/kill-list/messages.js';
import { LIMITER_CODES } from '../src/actors/limiter/messages.js';
import { problemDetails, problemHeaders, statusLine } from '../src/http/problem-details.js';
import {
  HTTP_CODES,
  INTERNAL_CODES,
  PROBLEMS,
  type ProblemCode,
  problemCodeOf,
} from '../src/http/problems.js';
import { RUNTIME_CODES } from '../src/runtime/failure.js';
import { STORE_CODES } from '../src/storage/store-error.js';

const codes = Object.keys(PROBLEMS) as ProblemCode[];

interface Documented {
  readonly status: number;
  readonly title: string;
  readonly retry: string;
  readonly text: string;
}

/** Each `### code` below the `## status` it stands under. */
function documented(): Map<string, Documented> {
  const found = new Map<string, Documented>();
  const page = readFileSync('docs/errors.md', 'utf8');
  for (const section of page.split(/^## (?=\d)/m).slice(1)) {
    const status = Number(section.slice(0, 3));
    for (const entry of section.split(/^### /m).slice(1)) {
      const [heading = '', , first = '', , ...rest] = entry.split('\n');
      const [, title = '', retry = ''] = /^(.*) \((.*)\)\.$/.exec(first) ?? [];
      t.notOk(found.has(heading), `${heading} is documented once`);
      found.set(heading, { status, title, retry, text: rest.join(' ').replaceAll(/\s+/g, ' ') });
    }
  }
  return found;
}

t.test('the page and the catalogue name the same codes with the same words', (t) => {
  const page = documented();
  t.same([...page.keys()].sort(), [...codes].sort());
  for (const code of codes) {
    const problem = PROBLEMS[code];
    const retry = problem.retryable ? `retry after ${problem.retryAfterSeconds} s` : 'do not retry';
    t.match(page.get(code), { status: problem.status, title: problem.title, retry }, code);
    t.equal(
      page.get(code)?.text.trim(),
      `${problem.meaning} Usual cause: ${problem.usualCause}`,
      `the text of ${code}`,
    );
  }
  t.end();
});

t.test('every code of every layer leads to a problem', (t) => {
  for (const code of [
    ...RUNTIME_CODES,
    ...STORE_CODES,
    ...DEVICE_CODES,
    ...KILL_LIST_CODES,
    ...GATEWAY_CODES,
    ...LIMITER_CODES,
    ...EVIDENCE_CODES,
    ...AUDIT_CODES,
    ...HTTP_CODES,
  ]) {
    const answered = problemCodeOf(code);
    t.ok(answered in PROBLEMS, code);
    t.equal(answered !== code, code in INTERNAL_CODES, `${code} is answered as itself or mapped`);
  }
  t.equal(problemCodeOf('a code from a newer binary'), 'internal_error');
  t.equal(problemCodeOf('toString'), 'internal_error', 'what objects inherit is no code');
  t.end();
});

t.test('every 503 and whatever can be retried says when', (t) => {
  for (const code of codes) {
    const { status, retryable } = PROBLEMS[code];
    const headers = problemHeaders(code);
    t.equal('retry-after' in headers, status === 503 || retryable, `Retry-After of ${code}`);
    const mayHelp = /^(idempotency_in_progress|lease_not_held|too_many_.*)$/.test(code);
    t.equal(retryable, status === 503 || mayHelp, `retry of ${code}`);
  }
  t.equal(problemHeaders('overloaded', { retryAfterSeconds: 0.2 })['retry-after'], '1');
  t.equal(problemHeaders('overloaded', { retryAfterSeconds: 2.1 })['retry-after'], '3');
  t.end();
});

t.test('a 401 says that a bearer credential is wanted, and nothing is ever cached', (t) => {
  for (const code of codes) {
    const headers = problemHeaders(code);
    t.equal(headers['www-authenticate'], PROBLEMS[code].status === 401 ? 'Bearer' : undefined);
    t.equal(headers['cache-control'], 'no-store');
  }
  t.end();
});

t.test('a problem on the wire has the members of RFC 9457 and ours', (t) => {
  for (const code of codes) {
    t.match(problemDetails(code, 'r-1'), {
      type: `/docs/errors#${code}`,
      title: PROBLEMS[code].title,
      status: PROBLEMS[code].status,
      code,
      requestId: 'r-1',
      retryable: PROBLEMS[code].retryable,
    });
    t.match(statusLine(PROBLEMS[code].status), /^\d{3} [A-Z]/, 'the status has a phrase');
  }
  t.end();
});

t.test('the statuses that others rely on are as agreed', (t) => {
  const agreed: Partial<Record<ProblemCode, number>> = {
    credential_missing: 401,
    device_unknown: 401,
    device_revoked: 403,
    device_killed: 403,
    enrollment_token_invalid: 401,
    kill_list_full: 409,
    kill_already_expired: 422,
    gateway_not_found: 404,
    idempotency_mismatch: 422,
    idempotency_in_progress: 409,
    store_unavailable: 503,
    overloaded: 503,
    deadline_exceeded: 503,
    actor_restarted: 503,
    stale: 503,
    outcome_unknown: 503,
    route_unknown: 404,
    method_not_allowed: 405,
    body_too_large: 413,
    media_type_unsupported: 415,
    body_invalid_json: 400,
    validation_failed: 422,
  };
  for (const [code, status] of Object.entries(agreed)) {
    t.equal(PROBLEMS[code as ProblemCode].status, status, code);
  }
  t.end();
});
