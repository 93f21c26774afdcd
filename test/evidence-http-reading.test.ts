/** The chain over HTTP, from an audit chainer on PostgreSQL to a verifier that knows no server. */
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import t, { type Test } from 'tap';
import { runHaloVerify } from '../src/cli/halo-verify/program.js';
import { EVENT_BYTES_MAX, KIND_CHECKPOINT, KIND_KEY_ROTATED } from '../src/evidence/format.js';
import { parseKeyring } from '../src/evidence/keyring.js';
import { systemClock } from '../src/runtime/clock.js';
import { seededRandom } from '../src/runtime/random.js';
import {
  type ChainingReplica,
  evidenceParts,
  newSigningKeyPem,
  openChainer,
} from './fixtures/chaining-replica.js';
import { call, type Received } from './fixtures/http-client.js';
import { ADMIN_TOKEN, startFront } from './fixtures/http-front.js';
import { startCluster, type TestDatabase } from './fixtures/postgres-database.js';
import { openStore, until } from './fixtures/postgres-stores.js';

t.setTimeout(120_000);
const cluster = await startCluster();
t.teardown(() => cluster.stop());
const seed = Number(process.env['SEED'] ?? Date.now() % 2 ** 31);
t.comment(`seed ${seed}`);
const random = seededRandom(seed);

interface Server {
  readonly replica: ChainingReplica;
  readonly database: TestDatabase;
  readonly pem: string;
  get(path: string, bearer?: string): Promise<Received>;
  post(path: string, body?: unknown): Promise<Received>;
}

async function server(t: Test, events: number, pem = newSigningKeyPem()): Promise<Server> {
  const database = await cluster.database();
  const parts = evidenceParts(pem, systemClock, random);
  const store = openStore(t, database.url, { evidence: parts.store });
  const replica = await openChainer(t, { store, parts, clock: systemClock, random });
  const front = await startFront({ auditClient: replica.audit });
  t.teardown(() => front.close());
  for (let count = 0; count < events; count += 1) {
    await replica.record(count % 10 === 0 ? 'test.tenth' : 'test.other', { n: String(count) });
  }
  await until('all are chained', async () => (await store.evidence.pending()) === 0);
  return {
    replica,
    database,
    pem,
    get: (path, bearer = ADMIN_TOKEN) => call(front.url, 'GET', path, { bearer }),
    post: (path, body) =>
      call(front.url, 'POST', path, {
        bearer: ADMIN_TOKEN,
        ...(body === undefined ? {} : { body }),
      }),
  };
}

t.test('a ref leads to its record from the moment that it is given out', async (t) => {
  const { replica, get } = await server(t, 2);
  const ref = await replica.record('test.asked');
  for (const path of ['/v1/evidence/by-ref', '/api/v1/evidence/by-ref']) {
    const waiting = await get(`${path}/${ref}`);
    t.equal(waiting.status, 200, 'also while it waits');
    t.equal(waiting.json.ref, ref);
    if (waiting.json.pending) t.same(waiting.json, { ref, seq: null, pending: true });
    await until('it is chained', async () => !(await get(`${path}/${ref}`)).json.pending);
    const { json } = await get(`${path}/${ref}`);
    t.match(json, { ref, seq: Number, pending: false, record: { ref, kind: 'test.asked' } });
    t.same((await get(`${path}/${json.seq}`)).json, json, 'digits are the number of a record');
    for (const unknown of ['999999', '9999999999999999', 'ev_x', `${ref}x`, '-1', '%27']) {
      const answer = await get(`${path}/${unknown}`);
      t.equal(answer.status, 404, unknown);
      t.equal(answer.json.code, 'evidence_unknown');
    }
    t.equal((await get(`${path}/${ref}`, 'x'.repeat(40))).status, 401);
  }
});

t.test('pages follow each other to the head, and a kind is found wherever it is', async (t) => {
  const { get } = await server(t, 60);
  const seen: number[] = [];
  for (let path = '/api/v1/audit?limit=7'; path !== ''; ) {
    const { status, json } = await get(path);
    t.equal(status, 200);
    seen.push(...json.items.map(({ seq }: { seq: number }) => seq));
    path = json.next === undefined ? '' : `/api/v1/audit?limit=7&after=${json.next}`;
  }
  t.same(seen, [...seen.keys()], 'from 0, each once');
  t.equal(seen.length, 62);
  const { json } = await get('/api/v1/audit?kind=test.tenth');
  t.equal(json.items.length, 6);
  t.ok(json.items.every(({ kind }: { kind: string }) => kind === 'test.tenth'));
  t.match(json.head, { seq: 61, hash: /^[0-9a-f]{64}$/ });
  const tail = (await get('/api/v1/audit?tail=3')).json;
  t.same(
    tail.items.map(({ seq }: { seq: number }) => seq),
    [61, 60, 59],
  );
  t.equal((await get('/api/v1/audit?tail=2&kind=test.tenth')).json.items[0].data.n, '50');
  t.same((await get('/api/v1/audit?after=61')).json.items, []);
  const wrong = ['after=-1', 'after=x', 'limit=0', 'limit=501', 'tail=0', 'kind=A', 'x=1'];
  for (const query of [...wrong, 'tail=1&after=2', 'tail=1&limit=2', `kind=${'a'.repeat(65)}`]) {
    t.equal((await get(`/api/v1/audit?${query}`)).status, 422, query);
  }
  t.equal((await get('/api/v1/audit', 'x'.repeat(40))).status, 401);
});

t.test(
  'what a replica has verified grows to the head, and starts over when it changes',
  async (t) => {
    const { get, database } = await server(t, 20);
    const verified = async (): Promise<number> => (await get('/api/v1/audit')).json.verified.upTo;
    await until('all is verified', async () => (await verified()) === 21);
    await database.sql(`UPDATE halo_audit SET record = replace(record, '"n":"5"', '"n":"6"')`);
    t.equal(await verified(), 21, 'only the last record is read again, by its hash');
    await database.sql(`UPDATE halo_audit SET hash = repeat('0', 64) WHERE seq = 21`);
    t.ok((await verified()) < 21, 'what is verified ends before the change');
  },
);

async function verifyFile(t: Test, text: string, { pem }: { pem: string }): Promise<any> {
  const dir = t.testdir({});
  await writeFile(join(dir, 'export.jsonl'), text);
  const key = parseKeyring(pem).keys[0]?.publicKey ?? new Uint8Array();
  await writeFile(join(dir, 'key'), Buffer.from(key).toString('hex'));
  let out = '';
  const console = {
    environment: {},
    out: (part: string) => {
      out += part;
    },
    err: () => undefined,
  };
  const args = [join(dir, 'export.jsonl'), '--key', join(dir, 'key'), '--json'];
  await runHaloVerify(args, console, { isTerminal: false });
  return JSON.parse(out);
}

t.test('an export is proved by a stranger, without its server', async (t) => {
  const one = await server(t, 150);
  let writing = true;
  const writer = (async () => {
    while (writing) await one.replica.record('test.meanwhile');
  })();
  const { status, text } = await one.get('/api/v1/audit/export');
  t.equal(status, 200);
  writing = false;
  await writer;
  const lines = text.split('\n').slice(0, -1);
  t.equal(JSON.parse(lines.at(-1) ?? '').kind, KIND_CHECKPOINT);
  t.match(await verifyFile(t, text, one), { ok: true, pinned: true, records: lines.length });
  const cut = `${lines.slice(0, -1).join('\n')}\n`;
  t.match(await verifyFile(t, cut, one), { ok: false, status: 'incomplete' });
  const changed = text.replace('"n":"77"', '"n":"78"');
  t.match(await verifyFile(t, changed, one), { ok: false, firstBad: { check: 'hash' } });
});

t.test('the largest records there may be stop no export, and fill no answer', async (t) => {
  const one = await server(t, 2);
  const large = 'x'.repeat(EVENT_BYTES_MAX - 1_000);
  for (let count = 0; count < 9; count += 1) await one.replica.record('test.large', { n: large });
  await t.rejects(one.replica.record('test.too-large', { n: 'x'.repeat(EVENT_BYTES_MAX) }), {
    code: 'evidence_too_large',
  });
  await until('all are chained', async () => {
    return (await one.get('/api/v1/audit?tail=1')).json.head.seq === 12;
  });
  const seen: number[] = [];
  for (let path = '/api/v1/audit'; path !== ''; ) {
    const { json, text } = await one.get(path);
    t.ok(text.length < 1_500_000, `${text.length} bytes`);
    seen.push(...json.items.map(({ seq }: { seq: number }) => seq));
    path = json.next === undefined ? '' : `/api/v1/audit?after=${json.next}`;
  }
  t.same(seen, [...Array(13).keys()]);
  const { text } = await one.get('/api/v1/audit/export');
  t.ok(text.length > 9 * large.length);
  t.match(await verifyFile(t, text, one), { ok: true, records: 14 });
});

t.test('a record that is no JSON any more does not hide the others', async (t) => {
  const one = await server(t, 4);
  await one.database.sql(`UPDATE halo_audit SET record = 'cut' WHERE seq = 3`);
  const { status, json } = await one.get('/api/v1/audit');
  t.equal(status, 200);
  t.equal(json.items.length, 6);
  t.match(json.items[3], { seq: 3, ref: /^ev_/, damaged: true });
  t.match((await one.get('/v1/evidence/by-ref/3')).json.record, { damaged: true });
  t.ok(json.verified.upTo < 3, 'and is not verified');
});

t.test('an operator states checkpoints and rotates the key, under their own name', async (t) => {
  const both = newSigningKeyPem() + newSigningKeyPem();
  const one = await server(t, 3, both);
  const checkpoint = await one.post('/api/v1/audit/checkpoint');
  t.equal(checkpoint.status, 200);
  t.match(checkpoint.json, {
    seq: 5,
    record: { kind: KIND_CHECKPOINT, by: { type: 'admin', id: 'root' }, data: { size: 5 } },
  });
  t.equal((await one.post('/api/v1/audit/rotate-key', { nextKeyId: 'x' })).status, 422);
  const missing = await one.post('/api/v1/audit/rotate-key', { nextKeyId: 'a'.repeat(32) });
  t.equal(missing.status, 409);
  t.match(missing.json, { code: 'signing_key_missing', detail: String });
  const rotated = await one.post('/api/v1/audit/rotate-key');
  t.equal(rotated.status, 200, rotated.text);
  t.equal(rotated.json.record.kind, KIND_KEY_ROTATED);
  const next = parseKeyring(both).keys[1]?.id;
  t.equal(rotated.json.record.data.next_key_id, next);
  const same = await one.post('/api/v1/audit/rotate-key', { nextKeyId: next });
  t.equal(same.status, 422, 'a key is not rotated to itself');
  t.equal((await one.post('/api/v1/audit/accept-restore')).json.code, 'chain_not_rewound');
  const { text } = await one.get('/api/v1/audit/export');
  t.match(await verifyFile(t, text, one), { ok: true, pinned: true });
});
