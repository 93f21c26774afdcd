/**
 * A policy: Cedar policies, their schema and `halos.yaml`, accepted as a whole or not at all. Pure:
 * whoever calls it has read the files.
 */
import { createHash } from 'node:crypto';
import type { EntityJson, SchemaJson } from '@cedar-policy/cedar-wasm/nodejs';
import type { JsonObject } from '../evidence/canonical-json.js';
import { cedar } from './cedar.js';
import { checkAgainstSchema, POLICY_FILE, readPolicies, SCHEMA_FILE } from './cedar-source.js';
import {
  type DeclaredEntity,
  type EntityUid,
  entityKey,
  HALOS_FILE,
  type HalosFile,
  NO_HALOS_FILE,
  readHalosFile,
} from './halos-file.js';
import type { PolicyFile, PolicyIssue } from './issue.js';
import { needsApproval, securityIssues } from './security-checks.js';

/** What is to be decided. */
export interface PolicyRequest {
  readonly principal: EntityUid;
  /** The id of an action; `Namespace::Action::"id"` where several namespaces have that id. */
  readonly action: string;
  readonly resource: EntityUid & { readonly attrs?: JsonObject };
  readonly context?: JsonObject;
}

/** Who asks; policies see it as `context.caller`, where the schema declares that. */
export interface PolicyCaller {
  readonly type: string;
  readonly id: string;
}

/** What the policies say. */
export interface PolicyVerdict {
  readonly decision: 'allow' | 'deny' | 'needs_approval';
  /** Ids of the policies that decided, or one of `no_policy_permits`, `request_invalid` … */
  readonly reasons: readonly string[];
}

/** An accepted policy. */
export interface Policy {
  /** SHA-256 over all its files, in hexadecimal. */
  readonly digest: string;
  readonly policies: number;
  readonly approvalTtlMs: number;
  decide(request: PolicyRequest, caller: PolicyCaller): PolicyVerdict;
  /** Lets go of what the library keeps of it; from then on it denies everything. Idempotent. */
  release(): void;
  /** Whether that principal is the device's own, or its user's. */
  isOwn(principal: EntityUid, device: { readonly id: string; readonly user: string }): boolean;
}

/** An accepted policy and what is doubtful about it, or why there is none. */
export type PolicyOutcome =
  | { readonly policy: Policy; readonly digest: string; readonly issues: readonly PolicyIssue[] }
  | {
      readonly policy: undefined;
      readonly digest: string;
      readonly issues: readonly PolicyIssue[];
    };

/** The type of all actions, behind its namespace. */
const ACTION_TYPE = 'Action';
/** An action with its type, where several namespaces have one of that id. */
const FULL_ACTION = /^((?:[A-Za-z_]\w*::)*Action)::"(.+)"$/s;
/** What the library says of a request that does not fit the schema, in characters. */
const REASON_MAX = 512;
/** Names of preparsed sets, which stay in the library: one for each policy, never used again. */
let slots = 0;

/** SHA-256 over names and texts, framed by their lengths. */
export function policyDigest(files: readonly PolicyFile[]): string {
  const hash = createHash('sha256');
  for (const { name, text } of sorted(files)) {
    const bytes = Buffer.from(text);
    hash.update(`${Buffer.byteLength(name)}:${name}${bytes.length}:`).update(bytes);
  }
  return hash.digest('hex');
}

/** Checks everything that can be checked, so that one look shows all that is wrong. */
export function acceptPolicy(files: readonly PolicyFile[]): PolicyOutcome {
  const issues: PolicyIssue[] = [];
  const digest = policyDigest(files);
  const schema = files.find(({ name }) => name === SCHEMA_FILE);
  const cedarFiles = sorted(files.filter(({ name }) => POLICY_FILE.test(name)));
  const halosFile = files.find(({ name }) => name === HALOS_FILE);
  if (schema === undefined) issues.push(missing(SCHEMA_FILE, `${SCHEMA_FILE} is missing`));
  if (cedarFiles.length === 0) issues.push(missing('*.cedar', 'there is no file of policies'));
  const policies = readPolicies(cedarFiles, issues);
  const halos = halosFile === undefined ? NO_HALOS_FILE : readHalosFile(halosFile, issues);
  issues.push(...securityIssues(policies));
  if (schema !== undefined) checkAgainstSchema(schema, policies, issues);
  if (schema === undefined || issues.some(({ severity }) => severity === 'error')) {
    return { policy: undefined, digest, issues };
  }
  const actions = new ActionContexts(schema, halos, issues);
  if (issues.some(({ severity }) => severity === 'error')) {
    return { policy: undefined, digest, issues };
  }
  slots += 1;
  const slot = `policy-${slots}`;
  cedar.preparseSchema(slot, schema.text);
  cedar.preparsePolicySet(slot, {
    staticPolicies: Object.fromEntries(policies.map(({ id, text }) => [id, text])),
  });
  const approvals = new Set(policies.filter(({ json }) => needsApproval(json)).map(({ id }) => id));
  const policy = new CedarPolicy({
    digest,
    slot,
    halos,
    approvals,
    actions,
    count: policies.length,
  });
  return { policy, digest, issues };
}

function sorted(files: readonly PolicyFile[]): PolicyFile[] {
  return [...files].sort((one, other) => (one.name < other.name ? -1 : 1));
}

function missing(file: string, message: string): PolicyIssue {
  return { severity: 'error', code: 'file_invalid', file, line: 1, column: 1, message };
}

/** Which type an action has, and whether it lets policies see who asks. */
class ActionContexts {
  private readonly withCaller = new Set<string>();
  /** By id; undefined for one that several namespaces have. */
  private readonly types = new Map<string, string | undefined>();

  constructor(schema: PolicyFile, halos: HalosFile, issues: PolicyIssue[]) {
    const parsed = cedar.schemaToJsonWithResolvedTypes(schema.text);
    if (parsed.type === 'failure') {
      issues.push(missing(schema.name, parsed.errors[0]?.message ?? 'it cannot be read'));
      return;
    }
    checkDeclared(parsed.json, halos, issues);
    const namespaces = Object.entries(parsed.json satisfies SchemaJson<string>);
    for (const [namespace, { actions }] of namespaces) {
      const type = namespace === '' ? ACTION_TYPE : `${namespace}::${ACTION_TYPE}`;
      for (const [name, { appliesTo }] of Object.entries(actions)) {
        this.types.set(name, this.types.has(name) ? undefined : type);
        const context = appliesTo?.context as ContextType | undefined;
        const caller = context?.attributes?.['caller'];
        if (caller === undefined) continue;
        this.withCaller.add(`${type}::${name}`);
        const { type: callerType, id } = caller.attributes ?? {};
        if (callerType?.type === 'String' && id?.type === 'String') continue;
        const message = `${name} declares context.caller otherwise than {type: String, id: String}`;
        issues.push({ ...missing(schema.name, message), code: 'caller_shape' });
      }
    }
  }

  /** An unknown action keeps its id: the schema refuses it. */
  resolve(action: string): EntityUid {
    const [, type, id] = FULL_ACTION.exec(action) ?? [];
    if (type !== undefined && id !== undefined) return { type, id };
    return { type: this.types.get(action) ?? ACTION_TYPE, id: action };
  }

  hasCaller({ type, id }: EntityUid): boolean {
    return this.withCaller.has(`${type}::${id}`);
  }
}

/** What is declared of a type or attribute that the schema does not know would have no effect. */
function checkDeclared(
  schema: SchemaJson<string>,
  { entities }: HalosFile,
  issues: PolicyIssue[],
): void {
  const types = new Map<string, ContextType | undefined>();
  for (const [namespace, { entityTypes }] of Object.entries(schema)) {
    for (const [name, type] of Object.entries(entityTypes)) {
      const shape = 'shape' in type ? (type.shape as ContextType | undefined) : undefined;
      types.set(namespace === '' ? name : `${namespace}::${name}`, shape);
    }
  }
  for (const { uid, attrs, parents, place } of entities) {
    const faults = [uid, ...parents]
      .filter(({ type }) => !types.has(type))
      .map(({ type }) => `the schema has no entity type ${type}`);
    const known = types.get(uid.type)?.attributes ?? {};
    for (const name of types.has(uid.type) ? Object.keys(attrs) : []) {
      if (!Object.hasOwn(known, name)) faults.push(`${uid.type} has no attribute ${name}`);
    }
    for (const message of faults) {
      const code = 'halos_invalid';
      issues.push({ severity: 'error', code, file: HALOS_FILE, ...place, message });
    }
  }
}

interface ContextType {
  readonly type?: string;
  readonly attributes?: Readonly<Record<string, ContextType>>;
}

interface PolicyParts {
  readonly digest: string;
  readonly slot: string;
  readonly halos: HalosFile;
  readonly approvals: ReadonlySet<string>;
  readonly actions: ActionContexts;
  readonly count: number;
}

class CedarPolicy implements Policy {
  readonly digest: string;
  readonly policies: number;
  readonly approvalTtlMs: number;
  private readonly declared: ReadonlyMap<string, DeclaredEntity>;

  constructor(private readonly parts: PolicyParts) {
    this.digest = parts.digest;
    this.policies = parts.count;
    this.approvalTtlMs = parts.halos.approvalTtlMs;
    this.declared = new Map(parts.halos.entities.map((entity) => [entityKey(entity.uid), entity]));
  }

  decide(request: PolicyRequest, caller: PolicyCaller): PolicyVerdict {
    const { principal, resource } = request;
    const { slot, actions, approvals } = this.parts;
    const action = actions.resolve(request.action);
    const context = { ...request.context };
    delete context['caller'];
    const answer = cedar.statefulIsAuthorized({
      principal: { type: principal.type, id: principal.id },
      action: { type: action.type, id: action.id },
      resource: { type: resource.type, id: resource.id },
      context: (actions.hasCaller(action)
        ? { ...context, caller: { type: caller.type, id: caller.id } }
        : context) as Record<string, never>,
      entities: this.entities(request),
      preparsedPolicySetId: slot,
      preparsedSchemaName: slot,
      validateRequest: true,
    });
    if (answer.type === 'failure') {
      const why = answer.errors.map(({ message }) => message).join('; ');
      return { decision: 'deny', reasons: [`request_invalid: ${why}`.slice(0, REASON_MAX)] };
    }
    const { decision, diagnostics } = answer.response;
    // A forbid that could not be evaluated would otherwise count as one that does not apply.
    const failed = diagnostics.errors.map(({ policyId }) => `evaluation_failed:${policyId}`);
    if (failed.length > 0) return { decision: 'deny', reasons: failed.sort() };
    const reasons = [...diagnostics.reason].sort();
    if (decision === 'deny') {
      return { decision, reasons: reasons.length === 0 ? ['no_policy_permits'] : reasons };
    }
    const asking = reasons.filter((id) => approvals.has(id));
    if (asking.length > 0) return { decision: 'needs_approval', reasons: asking };
    return { decision: 'allow', reasons };
  }

  release(): void {
    cedar.preparsePolicySet(this.parts.slot, { staticPolicies: {} });
  }

  isOwn(principal: EntityUid, device: { readonly id: string; readonly user: string }): boolean {
    const { type, id } = principal;
    const kind = type.slice(type.lastIndexOf(':') + 1);
    if (kind === 'Device' && id === device.id) return true;
    if (kind === 'User' && id.normalize('NFC').toLowerCase() === device.user) return true;
    const owner = this.declared.get(entityKey(principal))?.owner;
    if (owner === undefined) return false;
    return 'user' in owner ? owner.user === device.user : owner.device === device.id;
  }

  /** Principal and resource, and all that they are in. What is declared wins over what is said. */
  private entities({ principal, resource }: PolicyRequest): EntityJson[] {
    const entities = new Map<string, EntityJson>();
    const add = (uid: EntityUid, said: JsonObject): void => {
      const key = entityKey(uid);
      if (entities.has(key)) return;
      const declared = this.declared.get(key);
      const attrs = { ...said, ...declared?.attrs } as EntityJson['attrs'];
      const parents = (declared?.parents ?? []).map(({ type, id }) => ({ type, id }));
      entities.set(key, { uid: { type: uid.type, id: uid.id }, attrs, parents });
      for (const parent of declared?.parents ?? []) add(parent, {});
    };
    add(resource, resource.attrs ?? {});
    add(principal, {});
    return [...entities.values()];
  }
}
