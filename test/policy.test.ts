/** What a policy is, when it is refused, and what it decides. */
import t from 'tap';
import {
  acceptPolicy,
  type Policy,
  type PolicyRequest,
  policyDigest,
} from '../src/policy/policy.js';
import { HALOS, POLICIES, policyFiles, SCHEMA } from './fixtures/policy-files.js';

const gateway = { type: 'gateway', id: 'gw_1' };

function accepted(changes?: Readonly<Record<string, string | undefined>>): Policy {
  const { policy, issues } = acceptPolicy(policyFiles(changes));
  if (policy === undefined) throw new Error(JSON.stringify(issues));
  return policy;
}

function request(changes: Partial<PolicyRequest> = {}): PolicyRequest {
  return {
    principal: { type: 'Agent', id: 'a' },
    action: 'tool:call',
    resource: { type: 'Tool', id: 'search' },
    ...changes,
  };
}

/** Codes of the errors, each with its place. */
function errors(changes: Readonly<Record<string, string | undefined>>): string[] {
  return acceptPolicy(policyFiles(changes))
    .issues.filter(({ severity }) => severity === 'error')
    .map(({ code, file, line, column }) => `${code} ${file}:${line}:${column}`);
}

t.test('permits, forbids, approvals and what nobody permits', async (t) => {
  const policy = accepted();
  t.equal(policy.approvalTtlMs, 1_800_000);
  t.strictSame(policy.decide(request(), gateway), {
    decision: 'allow',
    reasons: ['agents-call-tools'],
  });
  t.strictSame(policy.decide(request({ context: { amount: 500 } }), gateway), {
    decision: 'needs_approval',
    reasons: ['dear-calls'],
  });
  t.strictSame(policy.decide(request({ principal: { type: 'User', id: 'u' } }), gateway), {
    decision: 'deny',
    reasons: ['no_policy_permits'],
  });
});

t.test(
  'an approval that any permit asks for is needed, whatever another one permits',
  async (t) => {
    const broad = `${POLICIES}\n@id("all") permit (principal is Agent, action, resource is Tool);`;
    const policy = accepted({ 'agents.cedar': broad });
    t.equal(
      policy.decide(request({ context: { amount: 500 } }), gateway).decision,
      'needs_approval',
    );
  },
);

t.test('actions of a namespace are found by their ids, or by their full names', async (t) => {
  const schema = `namespace Acme {
  entity Agent; entity Tool;
  action call appliesTo {
    principal: [Agent], resource: [Tool], context: { caller: { type: String, id: String } }
  };
}`;
  const permit = `@id("ok")
permit (principal is Acme::Agent, action == Acme::Action::"call", resource)
when { context.caller.type == "gateway" };`;
  const files = { 'schema.cedarschema': schema, 'agents.cedar': permit, 'halos.yaml': undefined };
  const policy = accepted(files);
  const principal = { type: 'Acme::Agent', id: 'a' };
  const resource = { type: 'Acme::Tool', id: 't' };
  for (const action of ['call', 'Acme::Action::"call"']) {
    t.equal(policy.decide({ principal, action, resource }, gateway).decision, 'allow', action);
  }
  for (const action of ['Action::"call"', 'other', '']) {
    t.equal(policy.decide({ principal, action, resource }, gateway).decision, 'deny', action);
  }
});

t.test('who asks is the server’s to say', async (t) => {
  const policy = accepted();
  const context = { env: 'prod', caller: { type: 'gateway', id: 'mine' } };
  t.equal(policy.decide(request({ context }), gateway).decision, 'allow');
  t.strictSame(policy.decide(request({ context }), { type: 'device', id: 'dev_1' }), {
    decision: 'deny',
    reasons: ['not-in-prod'],
  });
});

t.test('what halos.yaml says of a resource wins over what the caller says', async (t) => {
  const policy = accepted();
  const resource = { type: 'Tool', id: 'wipe', attrs: { tier: 'open' } };
  t.strictSame(policy.decide(request({ resource }), gateway).reasons, ['restricted-tools']);
  const principal = { type: 'Agent', id: 'builder' };
  t.equal(
    policy.decide(request({ resource, principal }), gateway).decision,
    'allow',
    'its parents',
  );
  const said = { type: 'Tool', id: 'other', attrs: { tier: 'restricted' } };
  t.equal(policy.decide(request({ resource: said }), gateway).decision, 'deny');
});

t.test('a request that does not fit the schema is denied', async (t) => {
  const policy = accepted();
  for (const changes of [
    { action: 'tool:unknown' },
    { principal: { type: 'Robot', id: 'r' } },
    { context: { amount: '500' } },
    { context: { env: 7 } },
    { context: { other: 1 } },
    { resource: { type: 'Tool', id: 't', attrs: { tier: 1 } } },
    { resource: { type: 'Tool', id: 't', attrs: { colour: 'red' } } },
  ]) {
    const { decision, reasons } = policy.decide(request(changes), gateway);
    t.equal(decision, 'deny', JSON.stringify(changes));
    t.match(reasons[0], /^request_invalid/);
  }
});

t.test('a policy that cannot be evaluated denies, a forbid most of all', async (t) => {
  const overflow = `@id("sum") forbid (principal is Agent, action == Action::"tool:call", resource)
when { context has amount && context.amount + 9223372036854775807 > 0 };`;
  const policy = accepted({ 'more.cedar': overflow });
  const { decision, reasons } = policy.decide(request({ context: { amount: 5 } }), gateway);
  t.equal(decision, 'deny');
  t.strictSame(reasons, ['evaluation_failed:sum']);
});

t.test('a device asks for its own principals only', async (t) => {
  const policy = accepted();
  const device = { id: 'dev_1', user: 'alice' };
  const own = (type: string, id: string): boolean => policy.isOwn({ type, id }, device);
  t.ok(own('Device', 'dev_1') && own('Acme::Device', 'dev_1') && own('User', 'Alice'));
  t.ok(own('Agent', 'builder'), 'of its user');
  t.ok(own('Agent', 'sensor'), 'of the device itself');
  t.notOk(own('Device', 'dev_2') || own('User', 'bob') || own('Agent', 'dev_1'));
  t.notOk(policy.isOwn({ type: 'Agent', id: 'sensor' }, { id: 'dev_2', user: 'alice' }));
});

const FAULTS: ReadonlyArray<[string, Readonly<Record<string, string | undefined>>, string]> = [
  ['no schema', { 'schema.cedarschema': undefined }, 'file_invalid schema.cedarschema:1:1'],
  ['no policies', { 'agents.cedar': undefined }, 'file_invalid *.cedar:1:1'],
  ['a slip', { 'x.cedar': '\npermit (principal,\n action resource);' }, 'syntax x.cedar:3:9'],
  ['a schema that is none', { 'schema.cedarschema': 'entity;' }, 'syntax schema.cedarschema:1:7'],
  [
    'an unknown type, behind letters of several bytes',
    { 'x.cedar': '// ä€\npermit (principal is Foo, action, resource is Tool);' },
    'entity_type_unknown x.cedar:2:22',
  ],
  [
    'an unknown attribute',
    {
      'x.cedar':
        'permit (principal is Agent, action, resource is Tool)\nwhen { resource.nothing };',
    },
    'schema_violation x.cedar:2:8',
  ],
  [
    'a permit for everybody to everything',
    { 'x.cedar': '@id("a") permit (principal, action, resource) when { context has amount };' },
    'permit_unconditional x.cedar:1:1',
  ],
  [
    'an approval on a forbid',
    { 'x.cedar': '\n @approval("required") forbid (principal is Agent, action, resource);' },
    'approval_on_forbid x.cedar:2:2',
  ],
  [
    'an approval that is none',
    { 'x.cedar': '@approval("maybe") permit (principal is Agent, action, resource);' },
    'approval_unknown x.cedar:1:1',
  ],
  [
    'a slip in the annotation',
    { 'x.cedar': '@aproval("required") permit (principal is Agent, action, resource);' },
    'annotation_unknown x.cedar:1:1',
  ],
  [
    'an id twice',
    { 'x.cedar': '@id("dear-calls") permit (principal is Agent, action, resource);' },
    'id_invalid x.cedar:1:1',
  ],
  [
    'a template',
    { 'x.cedar': 'permit (principal == ?principal, action, resource);' },
    'template x.cedar:1:1',
  ],
  [
    'a forbid that never applies',
    { 'x.cedar': 'forbid (principal is Agent, action, resource is Tool) when { false };' },
    'forbid_never_applies x.cedar:1:1',
  ],
  [
    'a caller of another shape',
    { 'schema.cedarschema': SCHEMA.replace('type: String, id: String', 'id: String') },
    'schema_violation agents.cedar:13:52',
  ],
  ['an unknown key', { 'halos.yaml': `${HALOS}colour: red\n` }, 'halos_invalid halos.yaml:16:1'],
  [
    'an unknown key of an entity',
    { 'halos.yaml': 'version: 1\nresources:\n  - type: Tool\n    id: x\n    atrs: {}\n' },
    'halos_invalid halos.yaml:5:5',
  ],
  [
    'an entity of a type that the schema does not have',
    { 'halos.yaml': 'resources:\n  - {type: Toool, id: x}\n' },
    'halos_invalid halos.yaml:2:5',
  ],
  [
    'an attribute that the schema does not have',
    { 'halos.yaml': 'resources:\n  - {type: Tool, id: x, attrs: {teir: a}}\n' },
    'halos_invalid halos.yaml:2:5',
  ],
  ['no YAML', { 'halos.yaml': 'version: [1\n' }, 'halos_invalid halos.yaml:2:1'],
  ['a wrong time', { 'halos.yaml': 'approvals: { ttl: 1y }' }, 'halos_invalid halos.yaml:1:19'],
  [
    'one entity twice',
    { 'halos.yaml': 'resources:\n  - {type: T, id: x}\n  - {type: T, id: x}\n' },
    'halos_invalid halos.yaml:3:5',
  ],
];
t.test('each fault is named with file, line and column', async (t) => {
  for (const [what, changes, expected] of FAULTS) {
    const found = errors(changes);
    t.ok(found.includes(expected), `${what}: ${found.join(', ')}`);
    t.equal(acceptPolicy(policyFiles(changes)).policy, undefined, `${what} is refused`);
  }
});

t.test('the digest is of all files, by name and text', async (t) => {
  const digest = policyDigest(policyFiles());
  t.equal(digest, policyDigest(policyFiles().reverse()));
  t.match(digest, /^[0-9a-f]{64}$/);
  t.not(digest, policyDigest(policyFiles({ 'agents.cedar': `${POLICIES} ` })));
  t.not(
    policyDigest([{ name: 'a.cedar', text: 'bc' }]),
    policyDigest([{ name: 'a.cedarb', text: 'c' }]),
  );
});

t.test('a policy in force decides by its own rules, however many are read after it', async (t) => {
  const one = accepted();
  const dear = request({ context: { amount: 500 } });
  for (let count = 0; count < 5; count += 1) {
    accepted({
      'more.cedar': `@id("none-${count}") forbid (principal is Agent, action, resource);`,
    });
  }
  t.equal(one.decide(request(), gateway).decision, 'allow');
  t.equal(one.decide(dear, gateway).decision, 'needs_approval', 'its approvals too');
  one.release();
  t.equal(one.decide(request(), gateway).decision, 'deny', 'what was let go denies');
});

t.test('an older policy goes on deciding while a newer one is refused or accepted', async (t) => {
  const one = accepted();
  acceptPolicy(policyFiles({ 'agents.cedar': 'nonsense' }));
  const two = accepted({ 'agents.cedar': POLICIES.replace('> 100', '> 1') });
  t.equal(one.decide(request({ context: { amount: 50 } }), gateway).decision, 'allow');
  t.equal(two.decide(request({ context: { amount: 50 } }), gateway).decision, 'deny');
});
