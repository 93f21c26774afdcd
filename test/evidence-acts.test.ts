/** Each administrative act is recorded with its change, on every backend. */
import t, { type Test } from 'tap';
import { ACT_KINDS } from '../src/actors/act-kinds.js';
import { ACT_CASES, type ActCase } from './fixtures/act-cases.js';
import { keepAlive } from './fixtures/keep-alive.js';
import { startCluster } from './fixtures/postgres-database.js';
import {
  openOnFiles,
  openOnModel,
  openOnPostgres,
  type RecordedEvent,
  type RecordingReplica,
} from './fixtures/recording-replica.js';

t.setTimeout(120_000);
keepAlive(t);
const cluster = await startCluster();
t.teardown(() => cluster.stop());

/** Whoever sees one of these in an event sees a secret, or what a secret is recognised by. */
const SECRET = /halo_[a-z]+_|[0-9A-Za-z_-]{43}/;

async function check(test: Test, replica: RecordingReplica, act: ActCase): Promise<void> {
  const beginMs = await replica.nowMs();
  const expected = await act.play(replica);
  const endMs = await replica.nowMs();
  const events = (await replica.recorded()).slice(-expected.length);
  const seen = events.map(({ kind, by, data }) => ({ kind, by, data }));
  test.strictSame(seen, expected, 'who did what, on whom, and why');
  for (const event of events) {
    checkForm(test, event);
    const atMs = Date.parse(event.at);
    test.ok(atMs >= beginMs && atMs <= endMs + 1, 'when, on the store’s clock');
  }
}

function checkForm(test: Test, { kind, by, data, masked, ref }: RecordedEvent): void {
  const described = ACT_KINDS[kind as keyof typeof ACT_KINDS];
  test.strictSame(Object.keys(data).sort(), Object.keys(described.data).sort(), `data of ${kind}`);
  test.ok((described.by as readonly string[]).includes(by.type), `who may have done ${kind}`);
  test.strictSame(masked, [], 'nothing is under a name that masking takes for a secret’s');
  test.notMatch(JSON.stringify({ by, data }), SECRET, 'no secret and no digest of one');
  test.match(ref, /^ev_/);
}

for (const act of ACT_CASES) {
  t.test(`${act.name}: evidence on the model`, async (t) => {
    await check(t, await openOnModel(t), act);
  });
  t.test(`${act.name}: evidence on files`, async (t) => {
    await check(t, await openOnFiles(t), act);
  });
  t.test(`${act.name}: evidence on PostgreSQL`, async (t) => {
    await check(t, await openOnPostgres(t, await cluster.database()), act);
  });
}
