/** Every write of every actor has evidence, or a reason to have none; the page has it all. */
import { readFileSync } from 'node:fs';
import t from 'tap';
import { ACT_KINDS, type ActKindName } from '../src/actors/act-kinds.js';
import type { AuditWrites } from '../src/actors/audit-chainer/messages.js';
import { ACTOR_NAMES, isActorWrite } from '../src/actors/catalogue.js';
import type { DecisionWrites } from '../src/actors/decisions/messages.js';
import { decideWrite } from '../src/actors/devices/decide.js';
import type { DeviceWrites } from '../src/actors/devices/messages.js';
import type { GatewayWrites } from '../src/actors/gateways/messages.js';
import type { KillListWrites } from '../src/actors/kill-list/messages.js';
import { CHAIN_KIND_PREFIX, KIND_CHARACTERS_MAX, KIND_PATTERN } from '../src/evidence/format.js';
import { seededRandom } from '../src/runtime/random.js';
import { ModelDatabase } from '../src/storage/model/model-database.js';
import { ModelStore } from '../src/storage/model/model-store.js';
import { ACT_CASES } from './fixtures/act-cases.js';
import { evidenceParts, newSigningKeyPem, openChainer } from './fixtures/chaining-replica.js';
import { manualClock } from './fixtures/device-replica.js';
import { keepAlive } from './fixtures/keep-alive.js';
import { openOnModel, type RecordedEvent } from './fixtures/recording-replica.js';

t.setTimeout(60_000);
keepAlive(t);

/** The kinds that a write records, or why it records nothing. */
type Evidence = readonly ActKindName[] | string;

const DEVICES: Readonly<Record<keyof DeviceWrites, Evidence>> = {
  mintToken: ['enrollment-token.minted', 'enrollment-token.reissued'],
  voidTokens: ['enrollment-tokens.voided'],
  enroll: ['device.enrolled', 'device.enrolled-again'],
  revoke: ['device.revoked'],
  rotate: ['device.rotated', 'device.reissued'],
  confirmFirstUse: 'It is a plain authentication; the enrolment that it ends is recorded.',
};
const KILL_LIST: Readonly<Record<keyof KillListWrites, Evidence>> = {
  kill: ['kill-list.killed'],
  lift: ['kill-list.lifted'],
  liftExpired: ['kill-list.expired'],
};
const GATEWAYS: Readonly<Record<keyof GatewayWrites, Evidence>> = {
  create: ['gateway.created', 'gateway.reissued'],
  rotate: ['gateway.rotated', 'gateway.reissued'],
  remove: ['gateway.removed'],
};
const STATEMENT = 'It is a statement of the chain, a record by itself.';
const AUDIT: Readonly<Record<keyof AuditWrites, Evidence>> = {
  checkpoint: STATEMENT,
  rotateKey: STATEMENT,
  acceptRestore: STATEMENT,
};
const DECISIONS: Readonly<Record<keyof DecisionWrites, Evidence>> = {
  decide: ['decision.made'],
  approve: ['decision.approved'],
  deny: ['decision.denied'],
  notePolicy: ['policy.accepted', 'policy.refused'],
};
/** Whose writes need more than a model store: `decisions-server.test.ts` sees their kinds. */
const PLAYED_ELSEWHERE = new Set(['decisions', 'leader']);
/** Of every actor there is; a write that is missing does not compile, an actor fails below. */
const WRITES: Readonly<Record<string, Readonly<Record<string, Evidence>>>> = {
  devices: DEVICES,
  'kill-list': KILL_LIST,
  gateways: GATEWAYS,
  'audit-chainer': AUDIT,
  decisions: DECISIONS,
  'audit-export': {},
  leader: { stepDown: ['leader.step-down-asked'] },
  limiter: { count: 'A failed attempt is no act: it is counted, and is in the metrics.' },
};
/** Recorded by no write: the chainer's own. */
const OF_REPLICAS: readonly ActKindName[] = ['server.started', 'server.stopped'];

t.test('every actor is in the table, and what it names are writes', (t) => {
  for (const actor of ACTOR_NAMES) t.ok(actor in WRITES, `${actor} has a row for each write`);
  for (const actor of ACTOR_NAMES) {
    for (const kind of Object.keys(WRITES[actor] ?? {})) {
      t.ok(isActorWrite(actor, kind), `${actor}.${kind}`);
    }
  }
  t.strictSame(Object.keys(decideWrite).sort(), Object.keys(DEVICES).sort());
  t.end();
});

t.test('every write that should leaves just the kinds that the table says', async (t) => {
  const found = new Map<string, Set<string>>();
  for (const act of ACT_CASES) {
    const replica = await openOnModel(t);
    const expected = await act.play(replica);
    const kinds = (await replica.recorded()).slice(-expected.length).map(({ kind }) => kind);
    for (const write of act.writes) {
      const own = found.get(write) ?? new Set();
      for (const kind of kinds) own.add(kind);
      found.set(write, own);
    }
  }
  for (const [actor, writes] of Object.entries(WRITES)) {
    if (PLAYED_ELSEWHERE.has(actor)) continue;
    for (const [kind, evidence] of Object.entries(writes)) {
      const write = `${actor}.${kind}`;
      const kinds = found.get(write) ?? new Set();
      if (typeof evidence === 'string') t.notOk(found.has(write), `${write}: ${evidence}`);
      else for (const one of evidence) t.ok(kinds.has(one), `${write} leaves ${one}`);
    }
  }
});

t.test('every kind is of some write or of a replica, and is a kind', (t) => {
  const named = Object.values(WRITES).flatMap((writes) => Object.values(writes));
  const kinds = new Set([...named.filter((one) => typeof one !== 'string').flat(), ...OF_REPLICAS]);
  t.strictSame([...kinds].sort(), Object.keys(ACT_KINDS).sort());
  for (const kind of Object.keys(ACT_KINDS)) {
    t.match(kind, KIND_PATTERN);
    t.ok(kind.length <= KIND_CHARACTERS_MAX && !kind.startsWith(CHAIN_KIND_PREFIX), kind);
  }
  t.end();
});

t.test('a replica says when it starts and when it stops, as the table has it', async (t) => {
  const clock = manualClock();
  const random = seededRandom(1);
  const database = new ModelDatabase(clock, random);
  const parts = evidenceParts(newSigningKeyPem(), clock, random);
  const store = new ModelStore(database, {}, parts.store.linker);
  const chainer = await openChainer(t, { store, parts, clock, random, id: 'one' });
  await chainer.host.close();
  const records = (await store.evidence.page(-1, 100)).map(({ text }) => text);
  const queued = database.evidence.oldest(100).map(({ text }) => text);
  const events = [...records, ...queued].map((text) => JSON.parse(text) as RecordedEvent);
  const own = events.filter(({ kind }) => kind in ACT_KINDS);
  t.strictSame(
    own.map(({ kind }) => kind),
    OF_REPLICAS,
  );
  for (const { kind, by, data } of own) {
    t.strictSame(by, { type: 'replica', id: 'one' });
    const fields = ACT_KINDS[kind as ActKindName].data;
    t.strictSame(Object.keys(data).sort(), Object.keys(fields).sort(), `data of ${kind}`);
  }
});

t.test('the page has the kinds of the code, in its order and its words', (t) => {
  const page = readFileSync('docs/evidence-kinds.md', 'utf8');
  const rows = page.split('\n').filter((line) => /^\| `[a-z-]+\.[a-z-]+` \|/.test(line));
  const expected = Object.entries(ACT_KINDS).map(([kind, { when, by, data }]) => {
    const parties = by.map((type) => `\`${type}\``).join(', ');
    const fields = Object.entries(data).map(([field, text]) => `\`${field}\`: ${text}`);
    return `| \`${kind}\` | ${when} | ${parties} | ${fields.join('<br>')} |`;
  });
  t.strictSame(rows, expected);
  for (const { by } of Object.values(ACT_KINDS)) {
    for (const type of by) t.match(page, `\n| \`${type}\` | `, `the page says who ${type} is`);
  }
  t.end();
});
