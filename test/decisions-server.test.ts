/** Decisions on real servers, from HTTP to the chain: on files, and on two replicas. */
import { mkdirSync, mkdtempSync, renameSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import t, { type Test } from 'tap';
import { type HaloCluster, startHaloCluster } from './fixtures/halo-cluster.js';
import { ADMIN_TOKEN, HaloServer, newInstallation } from './fixtures/halo-server.js';
import { policyFiles } from './fixtures/policy-files.js';
import { until } from './fixtures/postgres-stores.js';

// Real servers, which take their time to start.
t.setTimeout(180_000);

/** A policy directory behind a link, as a checkout that is swapped. */
class PolicyLink {
  private readonly base = mkdtempSync(join(tmpdir(), 'halo-policy-'));
  readonly path = join(this.base, 'current');
  private count = 0;

  constructor(changes?: Readonly<Record<string, string | undefined>>) {
    this.swap(changes);
  }

  swap(changes: Readonly<Record<string, string | undefined>> = {}): void {
    this.count += 1;
    const directory = join(this.base, String(this.count));
    mkdirSync(directory);
    for (const { name, text } of policyFiles(changes)) writeFileSync(join(directory, name), text);
    symlinkSync(directory, `${this.path}.new`);
    renameSync(`${this.path}.new`, this.path);
  }
}

async function onFiles(t: Test, policy: PolicyLink): Promise<HaloServer[]> {
  const installation = newInstallation();
  const dataDir = join(installation.directory, 'data');
  const server = await HaloServer.start(
    installation,
    ['--data-dir', dataDir],
    ['--policy-dir', policy.path],
  );
  t.teardown(() => server.stop('SIGKILL'));
  return [server, server];
}

async function onPostgres(t: Test, policy: PolicyLink): Promise<HaloServer[]> {
  const cluster: HaloCluster = await startHaloCluster(2, {}, ['--policy-dir', policy.path]);
  t.teardown(cluster.stop);
  return cluster.servers;
}

async function admin(server: HaloServer, method: string, path: string, body?: unknown) {
  const answer = await server.call(method, path, {
    token: ADMIN_TOKEN,
    ...(body === undefined ? {} : { body }),
  });
  return answer;
}

async function newGateway(server: HaloServer): Promise<string> {
  return (await admin(server, 'POST', '/api/v1/gateways', { name: 'edge' })).json.token;
}

function asked(changes: object = {}): object {
  return {
    principal: { type: 'Agent', id: 'a' },
    action: 'tool:call',
    resource: { type: 'Tool', id: 'search' },
    ...changes,
  };
}

async function decide(server: HaloServer, token: string, body: object, headers = {}) {
  return server.call('POST', '/api/v1/decisions', { token, body, headers });
}

const DEAR = { context: { amount: 500 } };

for (const [backend, start] of [
  ['files', onFiles],
  ['PostgreSQL', onPostgres],
] as const) {
  t.test(`decisions on ${backend}`, async (t) => {
    const policy = new PolicyLink();
    const [one, two] = (await start(t, policy)) as [HaloServer, HaloServer];
    const gateway = await newGateway(one);
    const other = await newGateway(one);

    await t.test('are made, recorded, and found by their refs', async (t) => {
      const { status, json } = await decide(one, gateway, asked());
      t.equal(status, 200);
      t.match(json, { decision: 'allow', reasons: ['agents-call-tools'], ref: /^ev_/ });
      t.equal(json.pending, backend === 'PostgreSQL');
      const denied = await decide(two, gateway, asked({ principal: { type: 'User', id: 'u' } }));
      t.match(denied.json, { decision: 'deny', reasons: ['no_policy_permits'] });
      await until('both are chained', async () => {
        const found = await admin(two, 'GET', `/v1/evidence/by-ref/${json.ref}`);
        return found.json.pending === false && found.json.record.kind === 'decision.made';
      });
      const record = (await admin(one, 'GET', `/v1/evidence/by-ref/${json.ref}`)).json.record;
      t.match(record.data, { decision: 'allow', action: 'tool:call', policy: /^[0-9a-f]{64}$/ });
      t.equal(record.by.type, 'gateway');
      const status2 = (await admin(one, 'GET', '/v1/status')).json;
      t.equal(status2.policy.digest, record.data.policy, 'the digest in force');
    });

    await t.test(
      'need a person where the policy says so, who is not the one who asked',
      async (t) => {
        const first = (await decide(one, gateway, asked(DEAR))).json;
        t.match(first, { decision: 'needs_approval', reasons: ['dear-calls'] });
        const path = `/api/v1/decisions/${first.ref}`;
        t.match((await two.call('GET', path, { token: gateway })).json, {
          decision: 'needs_approval',
          approval: { status: 'pending' },
        });
        t.equal((await two.call('GET', path, { token: other })).status, 404, 'only for who asked');
        t.match((await decide(two, gateway, asked({ ...DEAR, approval: first.ref }))).json, {
          decision: 'deny',
          reasons: ['approval_pending'],
        });
        const approved = await admin(two, 'POST', `${path}/approve`, { reason: 'fine' });
        t.match(approved, { status: 200, json: { status: 'approved', by: 'root' } });
        const late = await admin(one, 'POST', `${path}/deny`, { reason: 'no' });
        t.match(late, {
          status: 409,
          json: { code: 'already_decided', decision: { status: 'approved', by: 'root' } },
        });
        for (const changes of [
          { context: { amount: 501 } },
          { ...DEAR, resource: { type: 'Tool', id: 'else' } },
          { ...DEAR, principal: { type: 'Agent', id: 'b' } },
        ]) {
          const { json } = await decide(one, gateway, asked({ ...changes, approval: first.ref }));
          t.match(json, { decision: 'deny', reasons: ['approval_of_another_request'] });
        }
        const stranger = await decide(one, other, asked({ ...DEAR, approval: first.ref }));
        t.match(stranger.json, { decision: 'deny', reasons: ['approval_of_another_request'] });
        const redeemed = await Promise.all(
          [one, two, one, two].map((server) =>
            decide(server, gateway, asked({ ...DEAR, approval: first.ref })),
          ),
        );
        const words = redeemed.map(({ json }) => `${json.decision} ${json.reasons[0]}`).sort();
        t.strictSame(words, [
          'allow dear-calls',
          ...Array.from({ length: 3 }, () => 'deny approval_redeemed'),
        ]);
        t.equal((await one.call('GET', path, { token: gateway })).json.approval.status, 'redeemed');
        const own = (await decide(one, ADMIN_TOKEN, asked(DEAR))).json;
        const ownPath = `/api/v1/decisions/${own.ref}/approve`;
        t.match(await admin(one, 'POST', ownPath, { reason: 'mine' }), {
          status: 403,
          json: { code: 'approval_own' },
        });
        const denied = (await decide(one, gateway, asked(DEAR))).json;
        await admin(one, 'POST', `/api/v1/decisions/${denied.ref}/deny`, { reason: 'no' });
        t.match((await decide(two, gateway, asked({ ...DEAR, approval: denied.ref }))).json, {
          decision: 'deny',
          reasons: ['approval_denied'],
        });
        const unknown = '/api/v1/decisions/ev_00000000-0000-7000-8000-000000000000/approve';
        t.match(await admin(one, 'POST', unknown, { reason: 'x' }), {
          status: 404,
          json: { code: 'approval_unknown' },
        });
      },
    );

    await t.test('deny what is killed before any policy is asked', async (t) => {
      await admin(one, 'PUT', '/api/v1/kill-list/agent/bad', { reason: 'stolen' });
      await admin(one, 'PUT', '/api/v1/kill-list/tool/poisoned', { reason: 'stolen' });
      const principal = { type: 'Agent', id: 'bad' };
      t.match((await decide(two, gateway, asked({ principal }))).json, {
        decision: 'deny',
        reasons: ['killed:agent/bad'],
      });
      const resource = { type: 'Tool', id: 'poisoned' };
      t.match((await decide(two, gateway, asked({ resource }))).json, {
        reasons: ['killed:tool/poisoned'],
      });
    });

    await t.test('let a device ask for its own principals only', async (t) => {
      const minted = await admin(one, 'POST', '/api/v1/enrollment-tokens', { user: 'alice' });
      const enrolled = await one.call('POST', '/api/v1/enroll', {
        body: { token: minted.json.token, name: 'laptop', platform: 'linux' },
      });
      const { credential } = enrolled.json;
      const builder = { type: 'Agent', id: 'builder' };
      t.match(await decide(two, credential, asked({ principal: builder })), {
        status: 200,
        json: { decision: 'allow' },
      });
      const prod = asked({
        principal: builder,
        context: { env: 'prod', caller: { type: 'gateway' } },
      });
      t.match((await decide(two, credential, prod)).json, { reasons: ['not-in-prod'] });
      t.match(await decide(two, credential, asked()), {
        status: 403,
        json: { code: 'principal_not_own' },
      });
      await admin(one, 'POST', `/api/v1/devices/${enrolled.json.device.id}/revoke`, {
        reason: 'x',
      });
      t.equal((await decide(two, credential, asked({ principal: builder }))).status, 403);
    });

    await t.test('answer the same call the same, and refuse what cannot be recorded', async (t) => {
      const headers = { 'idempotency-key': 'once' };
      const first = await decide(one, gateway, asked(DEAR), headers);
      const again = await decide(two, gateway, asked(DEAR), headers);
      t.strictSame(again.json, first.json);
      t.equal((await decide(one, gateway, asked(), headers)).status, 422);
      const large = { context: { env: 'x'.repeat(261_900) } };
      t.match((await decide(one, gateway, asked(large))).json, { code: 'evidence_too_large' });
      const larger = { context: { env: 'x'.repeat(300_000) } };
      t.match((await decide(one, gateway, asked(larger))).json, { code: 'body_too_large' });
      t.equal((await decide(one, gateway, { ...asked(), other: 1 })).status, 422);
      t.equal((await decide(one, 'halo_gateway_x', asked())).status, 401);
    });

    await t.test('leave evidence of every kind that there is of them', async () => {
      for (const kind of [
        'decision.made',
        'decision.approved',
        'decision.denied',
        'policy.accepted',
      ]) {
        await until(`${kind} is chained`, async () => {
          const { json } = await admin(one, 'GET', `/api/v1/audit?tail=1&kind=${kind}`);
          return json.items.length === 1;
        });
      }
    });

    await t.test('follow the policy directory, and keep the last good policy', async (t) => {
      const digest = async (server: HaloServer): Promise<string> =>
        (await admin(server, 'GET', '/v1/status')).json.policy.digest;
      const before = await digest(one);
      policy.swap({ 'agents.cedar': 'permit (principal, action, resource);' });
      await until('it is refused', async () => {
        const { json } = await admin(one, 'GET', '/api/v1/audit?tail=50&kind=policy.refused');
        return (
          json.items.length >= 1 && json.items[0].data.issues[0].code === 'permit_unconditional'
        );
      });
      t.equal(await digest(one), before);
      t.match((await decide(one, gateway, asked())).json, { decision: 'allow' });
      t.match(
        await fetch(`${one.metricsUrl}/metrics`).then((r) => r.text()),
        /halo_policy_stale 1/,
      );
      policy.swap({
        'more.cedar': '@id("none") forbid (principal is Agent, action, resource is Tool);',
      });
      await until('both follow', async () => {
        const [a, b] = await Promise.all([digest(one), digest(two)]);
        return a !== before && a === b;
      });
      t.match((await decide(two, gateway, asked())).json, { decision: 'deny', reasons: ['none'] });
      policy.swap({ 'halos.yaml': 'approvals: { ttl: 1s }' });
      await until('it is back', async () => {
        const { json } = await decide(one, gateway, asked(DEAR));
        if (json.decision !== 'needs_approval') return false;
        const path = `/api/v1/decisions/${json.ref}`;
        const { approval } = (await one.call('GET', path, { token: gateway })).json;
        await new Promise((resolve) => setTimeout(resolve, 1_100));
        const settled = await admin(one, 'POST', `${path}/approve`, { reason: 'late' });
        const now = (await one.call('GET', path, { token: gateway })).json.approval;
        return approval.status !== undefined && settled.status === 404 && now.status === 'expired';
      });
    });
  });
}

t.test(
  'without a policy everything is denied; with none acceptable nothing is served',
  async (t) => {
    const installation = newInstallation();
    const plain = await HaloServer.start(installation, [
      '--data-dir',
      join(installation.directory, 'a'),
    ]);
    t.teardown(() => plain.stop('SIGKILL'));
    const { json } = await decide(plain, ADMIN_TOKEN, asked());
    t.match(json, { decision: 'deny', reasons: ['no_policy'], ref: /^ev_/ });
    const policy = new PolicyLink({ 'schema.cedarschema': undefined });
    const storage = ['--data-dir', join(installation.directory, 'b')];
    const server = HaloServer.spawn(installation, storage, ['--policy-dir', policy.path]);
    t.teardown(() => server.stop('SIGKILL'));
    await until('it says why', () => /The policy is refused/.test(server.output));
    t.notMatch(server.output, /"Ready\./);
    policy.swap();
    await until('it is ready', () => /"Ready\."/.test(server.output));
  },
);
