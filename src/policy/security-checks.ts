/** What a valid policy may still get wrong, and what would hurt whoever trusts it. */
import type { PolicyJson } from '@cedar-policy/cedar-wasm/nodejs';
import { issueAt, type SourcePolicy } from './cedar-source.js';
import type { PolicyIssue } from './issue.js';

/** Annotations that mean something: `id` and `approval` to the server, the others to people. */
const ANNOTATIONS = new Set(['id', 'approval', 'description', 'reason', 'owner']);

/** Whether a permit's decision needs a person. */
export function needsApproval(json: PolicyJson): boolean {
  return json.annotations?.['approval'] === 'required';
}

/** Each policy by itself. */
export function securityIssues(policies: readonly SourcePolicy[]): PolicyIssue[] {
  const issues = policies.flatMap((policy) => [...issuesOf(policy)]);
  const [first] = policies;
  if (first !== undefined && policies.every(({ json }) => json.effect === 'forbid')) {
    const message = 'there is no permit: everything is denied';
    issues.push(issueAt(first, 'warning', 'nothing_permitted', message));
  }
  return issues;
}

function* issuesOf(policy: SourcePolicy): Generator<PolicyIssue> {
  const { json } = policy;
  const annotations = json.annotations ?? {};
  for (const name of Object.keys(annotations)) {
    if (ANNOTATIONS.has(name)) continue;
    const message = `@${name} means nothing here; known are ${[...ANNOTATIONS].join(', ')}`;
    yield issueAt(policy, 'error', 'annotation_unknown', message);
  }
  const { approval } = annotations;
  if (approval !== undefined && approval !== 'required') {
    yield issueAt(policy, 'error', 'approval_unknown', '@approval must be "required"');
  }
  if (approval !== undefined && json.effect === 'forbid') {
    const message = 'a forbid cannot be approved: annotate the permit';
    yield issueAt(policy, 'error', 'approval_on_forbid', message);
  }
  if (json.effect === 'permit' && !constrains(json)) {
    const message = 'this permit says nothing of its principal nor of its resource';
    yield issueAt(policy, 'error', 'permit_unconditional', message);
  }
}

/** In its scope, or anywhere in its conditions. */
function constrains({ principal, resource, conditions }: PolicyJson): boolean {
  if (principal.op !== 'All' || resource.op !== 'All') return true;
  return conditions.some(({ body }) => speaksOf(body));
}

function speaksOf(expression: unknown): boolean {
  if (typeof expression !== 'object' || expression === null) return false;
  if (Array.isArray(expression)) return expression.some(speaksOf);
  return Object.entries(expression).some(
    ([key, value]) =>
      (key === 'Var' && (value === 'principal' || value === 'resource')) || speaksOf(value),
  );
}
