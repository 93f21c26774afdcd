/** Replicas on one PostgreSQL that forward their chain: leaders die, receivers misbehave. */
import { createHmac } from 'node:crypto';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import t, { type Test } from 'tap';
import { act } from './fixtures/chained-acts.js';
import { type HaloCluster, startHaloCluster } from './fixtures/halo-cluster.js';
import { eventually, type HaloServer } from './fixtures/halo-server.js';
import { WebhookReceiver } from './fixtures/webhook-receiver.js';

t.setTimeout(180_000);

const SECRET = 'a-secret-for-the-tests-of-40-characters-';
const upTo = (seq: number): number[] => Array.from({ length: seq + 1 }, (_, index) => index);

interface Site extends HaloCluster {
  readonly receiver: WebhookReceiver;
}

interface SinkOptions {
  readonly name: string;
  readonly url: string;
  readonly batchMax?: number;
}

/** Two replicas with a sink for each receiver. */
async function open(t: Test, sinks: readonly SinkOptions[]): Promise<HaloCluster> {
  const directory = t.testdir({ secret: SECRET });
  const written = sinks.map(({ name, url, batchMax = 20 }) => {
    const secretFile = join(directory, 'secret');
    return { name, type: 'webhook', url, secretFile, allowPrivate: true, batchMax };
  });
  const file = join(directory, 'sinks.json');
  writeFileSync(file, JSON.stringify({ sinks: written }));
  const options = ['--audit-sinks-file', file, '--lease-ttl', '2s'];
  const cluster = await startHaloCluster(2, {}, options);
  t.teardown(cluster.stop);
  return cluster;
}

async function openSite(t: Test, batchMax?: number): Promise<Site> {
  const receiver = await WebhookReceiver.start();
  t.teardown(() => receiver.close());
  const { url } = receiver;
  const sink = { name: 'siem', url, ...(batchMax === undefined ? {} : { batchMax }) };
  return { ...(await open(t, [sink])), receiver };
}

interface SinkView {
  readonly name: string;
  readonly leader: string | null;
  readonly cursor: number;
  readonly head: number;
  readonly lagRecords: number;
  readonly restored: { readonly resumedAfterSeq: number } | null;
  readonly lastError: { readonly code: string; readonly attempts: number } | null;
}

async function sinksOf(server: HaloServer): Promise<SinkView[]> {
  const answer = await server.admin('GET', '/api/v1/audit/sinks');
  if (answer.status !== 200) throw new Error(answer.text);
  return answer.json.items;
}

async function chainOf({ database }: HaloCluster): Promise<{ seq: number; hash: string }[]> {
  const rows = await database.sql('SELECT seq, hash FROM halo_audit ORDER BY seq');
  return rows.map(({ seq, hash }) => ({ seq: Number(seq), hash: String(hash) }));
}

/** Which server holds the sink's lease, by its replica's id. */
async function leaderOf(site: HaloCluster, sink = 'siem'): Promise<HaloServer | undefined> {
  const alive = site.servers.filter((server) => !server.exited);
  for (const server of alive) {
    const { json } = await server.admin('GET', '/v1/status');
    const leases = json.leases as { lease: string; isLeader: boolean }[];
    const isLeader = leases.some((one) => one.lease === `audit-export-${sink}` && one.isLeader);
    if (isLeader) return server;
  }
  return undefined;
}

/** Everything that is chained now has been taken, each number in its turn. */
async function allTaken(t: Test, site: HaloCluster, receiver: WebhookReceiver): Promise<void> {
  const isTaken = async (): Promise<boolean> => {
    const chain = await chainOf(site);
    return chain.length > 0 && receiver.kept.length >= chain.length;
  };
  await eventually(isTaken, 60_000, 'everything is delivered');
  const chain = await chainOf(site);
  t.strictSame(receiver.kept.slice(0, chain.length), upTo(chain.length - 1), 'in order');
  const hashes = new Map(receiver.records.map(({ seq, hash }) => [seq, hash]));
  t.ok(
    chain.every(({ seq, hash }) => hashes.get(seq) === hash),
    'as they are in the chain',
  );
}

async function metric(server: HaloServer, name: string, sink: string): Promise<number> {
  const text = await (await fetch(`${server.metricsUrl}/metrics`)).text();
  return Number(new RegExp(`halo_audit_sink_${name}\\{sink="${sink}"\\} (\\d+)`).exec(text)?.[1]);
}

t.test('when the leader of a sink is killed the other replica goes on', async (t) => {
  const site = await openSite(t, 5);
  const { servers, receiver } = site;
  receiver.delayMs = 50;
  const [a, b] = servers as [HaloServer, HaloServer];
  await act(a, 30);
  await eventually(() => receiver.kept.length > 10, 30_000, 'it has begun');
  const leader = (await leaderOf(site)) ?? a;
  const other = leader === a ? b : a;
  await leader.stop('SIGKILL');
  await act(other, 30, 100);
  await allTaken(t, site, receiver);
  t.equal(await leaderOf(site), other);
  const [status] = await sinksOf(other);
  t.match(status, { name: 'siem', lastError: null });
  t.ok(status?.leader?.startsWith('rep_'));
  const repeats = receiver.records.length - receiver.kept.length;
  t.ok(repeats <= 10, `${repeats} came twice: a batch or two`);
});

t.test('a leader that was stopped past its lease moves no cursor when it goes on', async (t) => {
  const site = await openSite(t, 5);
  const { servers, receiver, database } = site;
  const [a, b] = servers as [HaloServer, HaloServer];
  await act(a, 5);
  await allTaken(t, site, receiver);
  const leader = (await leaderOf(site)) ?? a;
  const other = leader === a ? b : a;
  const cursor = async (): Promise<number> => {
    const [row] = await database.sql("SELECT body FROM halo_documents WHERE kind = 'audit-sink'");
    return (JSON.parse(String(row?.body)) as { seq: number }).seq;
  };
  // In the middle of a delivery that is answered only when the lease is long another's.
  receiver.holds = true;
  await act(other, 5, 50);
  await eventually(() => receiver.underWay === 1, 20_000, 'a delivery is under way');
  const before = await cursor();
  leader.signal('SIGSTOP');
  receiver.holds = false;
  await act(other, 20, 100);
  await eventually(async () => (await cursor()) > before + 20, 30_000, 'the other goes on');
  const reached = await cursor();
  leader.signal('SIGCONT');
  receiver.answerHeld();
  for (let look = 0; look < 20; look += 1) {
    t.ok((await cursor()) >= reached, 'the cursor never goes back');
    await act(other, 1, 200 + look);
  }
  await allTaken(t, site, receiver);
  t.equal((await leader.call('GET', '/readyz')).status, 200, 'and the replica is well');
  const repeats = receiver.records.length - receiver.kept.length;
  t.ok(repeats <= 10, `${repeats} came twice: what was under way`);
});

t.test('when every replica stops in order nothing comes twice', async (t) => {
  const site = await openSite(t);
  const { servers, receiver } = site;
  await act(servers[0] as HaloServer, 20);
  await allTaken(t, site, receiver);
  for (const server of servers) t.equal(await server.stop('SIGTERM'), 0);
  const last = await site.add();
  await act(last, 5, 50);
  await allTaken(t, site, receiver);
  t.equal(receiver.records.length, receiver.kept.length);
});

/** The receiver has it all a moment before the cursor says so. */
async function cursorSaved(server: HaloServer): Promise<void> {
  const isSaved = async (): Promise<boolean> => (await sinksOf(server))[0]?.lagRecords === 0;
  await eventually(isSaved, 30_000, 'the cursor is saved');
}

const RESTORED = [
  ...['halo_audit', 'halo_audit_head', 'halo_evidence_outbox', 'halo_evidence_writers'],
  ...['halo_documents', 'halo_journal', 'halo_kv', 'halo_store'],
];

for (const [what, tables] of [
  ['with its cursors', RESTORED],
  ['without its cursors', RESTORED.filter((table) => table !== 'halo_documents')],
] as const) {
  t.test(`a database restored ${what} is forwarded as it is then`, async (t) => {
    const site = await openSite(t);
    const { servers, receiver, database } = site;
    const [a, b] = servers as [HaloServer, HaloServer];
    await act(a, 5);
    await allTaken(t, site, receiver);
    await cursorSaved(a);
    for (const table of tables) {
      await database.sql(`CREATE TABLE backup_${table} AS SELECT * FROM ${table}`);
    }
    await act(a, 30, 100);
    await allTaken(t, site, receiver);
    await cursorSaved(a);
    const lost = receiver.records.length;
    const restoring = tables.map((table) => {
      const rows = `SELECT * FROM backup_${table}`;
      return `DELETE FROM ${table}; INSERT INTO ${table} OVERRIDING SYSTEM VALUE ${rows};`;
    });
    await database.sql(`BEGIN; ${restoring.join(' ')} COMMIT`);
    const acts = async (): Promise<boolean> =>
      act(b, 3, 200).then(
        () => true,
        () => false,
      );
    await eventually(acts, 30_000, 'the replicas have replayed');
    await act(b, 10, 300);
    const isTaken = async (): Promise<boolean> => {
      // What was done since is in the chain by then: without it nothing would be new.
      const waiting = await database.sql('SELECT 1 FROM halo_evidence_outbox LIMIT 1');
      const got = new Set(receiver.records.map(({ hash }) => hash));
      return waiting.length === 0 && (await chainOf(site)).every(({ hash }) => got.has(hash));
    };
    await eventually(isTaken, 60_000, 'the chain as it is now is delivered');
    t.ok((await chainOf(site)).length < lost, 'although it is shorter than what was lost');
    await cursorSaved(a);
    const [status] = await sinksOf(a);
    t.match(status, { lastError: null, lagRecords: 0 });
    // A cursor that was restored with the chain may simply be gone on from.
    if (!tables.includes('halo_documents')) t.not(status?.restored, null, 'and it is said');
  });
}

t.test('hashicorp/vault#5361: decisions go on while a sink swallows everything', async (t) => {
  const site = await openSite(t);
  const { servers, receiver } = site;
  const [a, b] = servers as [HaloServer, HaloServer];
  receiver.manner = 'swallow';
  await act(a, 1);
  await eventually(() => receiver.underWay === 1, 30_000, 'a delivery hangs');
  const gateway = await a.admin('POST', '/api/v1/gateways', { name: 'edge' });
  const request = {
    principal: { type: 'Agent', id: 'writer' },
    action: 'read',
    resource: { type: 'Document', id: 'plan' },
  };
  for (let index = 0; index < 50; index += 1) {
    const server = index % 2 === 0 ? a : b;
    const token = gateway.json.token as string;
    const answer = await server.call('POST', '/api/v1/decisions', { token, body: request });
    t.equal(answer.status, 200, answer.text);
    t.equal(receiver.underWay, 1, 'while it hangs');
  }
  t.equal(receiver.taken.length, 0);
  for (const server of servers) t.equal((await server.call('GET', '/readyz')).status, 200);
  const failed = async (): Promise<boolean> => (await sinksOf(b))[0]?.lastError != null;
  await eventually(failed, 30_000, 'and it is said on every replica');
  t.match((await sinksOf(a))[0], { cursor: -1, lastError: { code: /timeout/ } });
  receiver.manner = 200;
  await allTaken(t, site, receiver);
});

t.test('a sink that refuses delays no other, and gets all when it takes again', async (t) => {
  const [bad, good] = [await WebhookReceiver.start(), await WebhookReceiver.start()];
  t.teardown(() => Promise.all([bad.close(), good.close()]));
  const site = await open(t, [
    { name: 'bad', url: bad.url },
    { name: 'good', url: good.url },
  ]);
  const [a, b] = site.servers as [HaloServer, HaloServer];
  for (const [manner, from] of [
    [500, 0],
    [404, 100],
    [307, 200],
  ] as const) {
    bad.manner = manner;
    const before = bad.calls.length;
    await act(a, 10, from);
    await eventually(() => bad.calls.length > before, 90_000, 'it is asked');
    await allTaken(t, site, good);
    t.equal(bad.taken.length, 0);
  }
  const [refused, fine] = await sinksOf(b);
  t.match(refused, { name: 'bad', cursor: -1 });
  t.ok((refused?.lastError?.attempts ?? 0) > 1);
  t.match(fine, { name: 'good', lastError: null });
  for (const server of site.servers) {
    const lag = async (): Promise<number> => metric(server, 'lag_records', 'bad');
    await eventually(async () => (await lag()) > 30, 20_000, 'the lag is a metric everywhere');
  }
  t.ok((await metric(a, 'errors_total', 'bad')) + (await metric(b, 'errors_total', 'bad')) > 1);
  const delivered = await Promise.all(
    site.servers.map((one) => metric(one, 'delivered_total', 'good')),
  );
  t.ok(delivered[0] === 0 || delivered[1] === 0, 'one replica forwards');
  t.equal(Math.max(...delivered), good.records.length);
  bad.manner = 204;
  await allTaken(t, site, bad);
});

t.test('what a sink gets is signed, in lines, and named by its batch', async (t) => {
  const site = await openSite(t);
  const { servers, receiver } = site;
  await act(servers[0] as HaloServer, 3);
  await allTaken(t, site, receiver);
  const { epoch } = (await (servers[0] as HaloServer).admin('GET', '/v1/status')).json;
  for (const { headers, body } of receiver.taken) {
    t.match(headers, { 'content-type': 'application/x-ndjson' });
    const lines = body.split('\n').slice(0, -1);
    const [first, last] = [lines[0], lines.at(-1)].map((line) => JSON.parse(line ?? '').seq);
    t.equal(headers['x-halo-event-id'], `audit-siem-${epoch}-${first}-${last}`);
    const signed = `${String(headers['x-halo-timestamp'])}.${body}`;
    const signature = createHmac('sha256', SECRET).update(signed).digest('hex');
    t.equal(headers['x-halo-signature'], `v1=${signature}`);
  }
});
