/** Cedar texts: taken apart into policies with their places, and checked against the schema. */

import type { DetailedError, PolicyJson } from '@cedar-policy/cedar-wasm/nodejs';
import { cedar } from './cedar.js';
import { type PolicyFile, type PolicyIssue, type PolicyIssueCode, placeOf } from './issue.js';

export const SCHEMA_FILE = 'schema.cedarschema';
export const POLICY_FILE = /^[^.][^/]*\.cedar$/;

/** One policy, and where it stands. */
export interface SourcePolicy {
  readonly id: string;
  readonly text: string;
  readonly json: PolicyJson;
  readonly file: PolicyFile;
  /** Bytes before it in its file. */
  readonly offset: number;
}

/** Ids are answered and recorded: what can be shown, and short. */
const ID_PATTERN = /^[A-Za-z0-9][A-Za-z0-9._/-]{0,127}$/;

/** The policies of all files, in the order of names and places. */
export function readPolicies(files: readonly PolicyFile[], issues: PolicyIssue[]): SourcePolicy[] {
  const policies = files.flatMap((file) => readFile(file, issues));
  const seen = new Map<string, SourcePolicy>();
  for (const policy of policies) {
    if (!ID_PATTERN.test(policy.id)) {
      issues.push(
        issueAt(policy, 'error', 'id_invalid', 'its @id has other characters, or too many'),
      );
    } else if (seen.has(policy.id)) {
      issues.push(
        issueAt(policy, 'error', 'id_invalid', `its @id is that of another: ${policy.id}`),
      );
    }
    seen.set(policy.id, policy);
  }
  return policies;
}

function readFile(file: PolicyFile, issues: PolicyIssue[]): SourcePolicy[] {
  const parts = cedar.policySetTextToParts(file.text);
  if (parts.type === 'failure') {
    for (const error of parts.errors) issues.push(issueOf(file, 0, 'syntax', error));
    return [];
  }
  let from = 0;
  const offsetOf = (text: string): number => {
    const at = file.text.indexOf(text, from);
    from = at < 0 ? from : at + text.length;
    return Buffer.byteLength(file.text.slice(0, Math.max(at, 0)));
  };
  for (const text of parts.policy_templates) {
    const at = Buffer.byteLength(file.text.slice(0, Math.max(0, file.text.indexOf(text))));
    const place = placeOf(file.text, at);
    const message = 'templates are not used here: write the policy out';
    issues.push({ severity: 'error', code: 'template', file: file.name, ...place, message });
  }
  return parts.policies.flatMap((text, index) => {
    const offset = offsetOf(text);
    const parsed = cedar.policyToJson(text);
    if (parsed.type === 'failure') {
      for (const error of parsed.errors) issues.push(issueOf(file, offset, 'syntax', error));
      return [];
    }
    const { json } = parsed;
    const id = json.annotations?.['id'] ?? `${file.name.replace(/\.cedar$/, '')}/${index + 1}`;
    return [{ id, text, json, file, offset }];
  });
}

/** What the schema says against the policies, and whether it is one. */
export function checkAgainstSchema(
  schema: PolicyFile,
  policies: readonly SourcePolicy[],
  issues: PolicyIssue[],
): void {
  const parsed = cedar.checkParseSchema(schema.text);
  if (parsed.type === 'failure') {
    for (const error of parsed.errors) issues.push(issueOf(schema, 0, 'syntax', error));
    return;
  }
  const byId = new Map(policies.map((policy) => [policy.id, policy]));
  const staticPolicies = Object.fromEntries(policies.map(({ id, text }) => [id, text]));
  const answer = cedar.validate({
    schema: schema.text,
    policies: { staticPolicies },
    validationSettings: { mode: 'strict' },
  });
  if (answer.type === 'failure') {
    for (const error of answer.errors) issues.push(issueOf(schema, 0, 'schema_violation', error));
    return;
  }
  for (const { policyId, error } of answer.validationErrors) {
    const policy = byId.get(policyId);
    const code = /unrecognized entity type/.test(error.message)
      ? 'entity_type_unknown'
      : 'schema_violation';
    issues.push(issueOf(policy?.file ?? schema, policy?.offset ?? 0, code, error));
  }
  for (const { policyId, error } of answer.validationWarnings) {
    const policy = byId.get(policyId);
    if (policy === undefined || !/impossible/.test(error.message)) continue;
    issues.push(
      policy.json.effect === 'forbid'
        ? issueAt(policy, 'error', 'forbid_never_applies', 'this forbid can never apply')
        : issueAt(policy, 'warning', 'permit_never_applies', 'this permit can never apply'),
    );
  }
}

/** An issue at the beginning of a policy. */
export function issueAt(
  { file, offset }: SourcePolicy,
  severity: PolicyIssue['severity'],
  code: PolicyIssueCode,
  message: string,
): PolicyIssue {
  return { severity, code, file: file.name, ...placeOf(file.text, offset), message };
}

function issueOf(
  file: PolicyFile,
  offset: number,
  code: PolicyIssueCode,
  error: DetailedError,
): PolicyIssue {
  const start = error.sourceLocations?.[0]?.start ?? 0;
  const label = error.sourceLocations?.[0]?.label;
  const more = [label, error.help].filter((text) => typeof text === 'string' && text !== '');
  const message = [error.message, ...more].join('; ');
  return {
    severity: 'error',
    code,
    file: file.name,
    ...placeOf(file.text, offset + start),
    message,
  };
}
