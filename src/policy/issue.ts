/** What is wrong with a policy, and where: for a policy repository's CI and for the status page. */

/** Names of what can be wrong. */
export const POLICY_ISSUE_CODES = [
  /** A file is missing, unreadable, too large or not UTF-8. */
  'file_invalid',
  /** Not Cedar, or not a Cedar schema. */
  'syntax',
  /** The policy does not fit the schema. */
  'schema_violation',
  /** It names an entity type that the schema does not know. */
  'entity_type_unknown',
  /** A permit that constrains neither its principal nor its resource. */
  'permit_unconditional',
  /** A forbid that can never apply: whoever wrote it believes in a protection that is none. */
  'forbid_never_applies',
  /** A permit that can never apply. */
  'permit_never_applies',
  /** `@approval` on a forbid, which nobody can approve. */
  'approval_on_forbid',
  /** `@approval` with something else than "required". */
  'approval_unknown',
  /** An annotation that means nothing here: a slip in `@approval` would let everything through. */
  'annotation_unknown',
  /** Two policies with one `@id`, or an id that cannot be shown. */
  'id_invalid',
  /** A template: nothing here links it. */
  'template',
  /** `context.caller` is the server's: to be declared as `{type: String, id: String}`. */
  'caller_shape',
  /** `halos.yaml` says something that it must not. */
  'halos_invalid',
  /** There is no permit: everything is denied. */
  'nothing_permitted',
] as const;
export type PolicyIssueCode = (typeof POLICY_ISSUE_CODES)[number];

/** One finding. Lines and columns count from 1; both 1 where the whole file is meant. */
export interface PolicyIssue {
  /** Any error refuses the policy; a warning does not. */
  readonly severity: 'error' | 'warning';
  readonly code: PolicyIssueCode;
  readonly file: string;
  readonly line: number;
  readonly column: number;
  readonly message: string;
}

/** A file of a policy, as it was read. */
export interface PolicyFile {
  readonly name: string;
  readonly text: string;
}

/** Where a byte of a UTF-8 text is, as editors count: from 1, columns in characters. */
export function placeOf(text: string, byteOffset: number): { line: number; column: number } {
  const before = Buffer.from(text).subarray(0, byteOffset).toString('utf8');
  const lineStart = before.lastIndexOf('\n') + 1;
  const line = before.split('\n').length;
  return { line, column: [...before.slice(lineStart)].length + 1 };
}
