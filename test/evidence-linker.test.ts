/** The linker: what makes records of events, whichever backend asks, and what it refuses. */
import t from 'tap';
import { DEFAULT_MASKING } from '../src/evidence/default-masking.js';
import { encodeEvent, outboxMac } from '../src/evidence/event.js';
import { KIND_CHECKPOINT, KIND_GENESIS, KIND_KEY_ROTATED } from '../src/evidence/format.js';
import { type Keyring, parseKeyring } from '../src/evidence/keyring.js';
import { MASKING_LABEL, prepareMasking } from '../src/evidence/masking.js';
import { seededRandom } from '../src/runtime/random.js';
import {
  directLinker,
  keyAfter,
  type LinkerOptions,
  newRef,
  OUTBOX_LABEL,
  pooledLinker,
} from '../src/storage/chain-linker.js';
import type {
  ChainedRecord,
  ChainTail,
  EvidenceEvent,
  QueuedEvent,
} from '../src/storage/evidence-store.js';
import { ChainVerifier } from '../src/verify/chain-verifier.js';
import { newSigningKeyPem } from './fixtures/chaining-replica.js';
import { manualClock } from './fixtures/device-replica.js';
import { codeOf } from './fixtures/postgres-stores.js';

const EMPTY: ChainTail = { seq: -1, hash: '', record: '', chainId: '' };
const pems = [newSigningKeyPem(), newSigningKeyPem(), newSigningKeyPem()] as const;

function optionsOf(keyring: Keyring, seed = 1): LinkerOptions {
  const masking = prepareMasking(DEFAULT_MASKING, keyring.derive(MASKING_LABEL));
  return { keyring, masking, clock: manualClock(), random: seededRandom(seed) };
}

function eventsOf(options: LinkerOptions, count: number): EvidenceEvent[] {
  return Array.from({ length: count }, (_, n) => {
    const ref = newRef(options.random, options.clock);
    const at = new Date(options.clock.wallMs()).toISOString();
    const draft = { ref, at, kind: 'test.happened', by: { type: 't', id: 'x' }, data: { n } };
    return { ref, text: encodeEvent(draft, options.masking) };
  });
}

function queued(keyring: Keyring, events: readonly EvidenceEvent[], chainedCount = 0) {
  const { keyId, secret } = keyring.derive(OUTBOX_LABEL);
  return events.map((event, index): QueuedEvent => {
    const place = { writer: 'w', count: chainedCount + index + 1 };
    const mac = outboxMac(secret, place, event.text);
    return { ...event, ...place, id: 100 + index, keyId, mac, chainedCount };
  });
}

function tailOf(records: readonly ChainedRecord[]): ChainTail {
  const { seq, hash, text } = records.at(-1)!;
  return { seq, hash, record: text, chainId: records[0]!.hash };
}

function kinds(records: readonly ChainedRecord[]): string[] {
  return records.map(({ text }) => (JSON.parse(text) as { kind: string }).kind);
}

function verified(records: readonly ChainedRecord[]): string {
  const verifier = new ChainVerifier({});
  for (const { text } of records) {
    const step = verifier.accept(text);
    if (step !== undefined && 'status' in step) return `${step.seq}: ${step.check}`;
  }
  return verifier.finish({ isTorn: false, endsAtHead: true }).status;
}

const one = parseKeyring(pems[0]);
const both = parseKeyring(pems[0] + pems[1]);

t.test('the first events come behind a genesis, and later ones behind the newest', async (t) => {
  const options = optionsOf(one);
  const linker = directLinker(options);
  const first = linker.link(EMPTY, eventsOf(options, 2));
  t.same(kinds(first), [KIND_GENESIS, 'test.happened', 'test.happened']);
  const next = linker.link(tailOf(first), eventsOf(options, 1));
  t.same(kinds(next), ['test.happened']);
  const all = [...first, ...next];
  const [checkpoint] = linker.state(tailOf(all), { kind: 'checkpoint' });
  t.equal(verified([...all, checkpoint!]), 'verified');
});

t.test('a statement before the first event brings the genesis along', async (t) => {
  const records = directLinker(optionsOf(one)).state(EMPTY, { kind: 'checkpoint' });
  t.same(kinds(records), [KIND_GENESIS, KIND_CHECKPOINT]);
  t.equal(verified(records), 'verified');
});

t.test('signing elsewhere makes the same records, with one request a batch', async (t) => {
  const here = optionsOf(one, 7);
  const events = queued(one, eventsOf(optionsOf(one, 3), 5));
  const wanted = directLinker(here).link(EMPTY, events);
  const asked: (readonly [string, number])[] = [];
  const linker = pooledLinker(optionsOf(one, 7), async (keyId, hashes) => {
    asked.push([keyId, hashes.length]);
    return hashes.map((hash) => one.select(keyId).current.sign(Buffer.from(hash, 'hex')));
  });
  t.same(await linker.link(EMPTY, events), wanted);
  t.same(asked, [[one.current.id, 6]]);
  t.same(await linker.link(tailOf(wanted), []), [], 'nothing is signed for nothing');
  t.equal(asked.length, 1);
  const failing = pooledLinker(here, () => Promise.reject(new Error('the pool is closed')));
  await t.rejects(async () => failing.link(EMPTY, events), { message: 'the pool is closed' });
  const short = pooledLinker(here, async (_, hashes) =>
    hashes.slice(1).map(() => Buffer.alloc(64)),
  );
  await t.rejects(async () => short.link(EMPTY, events), { message: 'Record 5 was not signed.' });
});

t.test('the newest record says which key goes on', async (t) => {
  const options = optionsOf(both);
  const linker = directLinker(options);
  const begun = linker.link(EMPTY, eventsOf(options, 1));
  t.equal(keyAfter(both, tailOf(begun)).id, both.keys[0]?.id);
  const rotated = [...begun, ...linker.state(tailOf(begun), { kind: 'rotation' })];
  t.equal(kinds(rotated).at(-1), KIND_KEY_ROTATED);
  t.equal(keyAfter(both, tailOf(rotated)).id, both.keys[1]?.id);
  const after = linker.link(tailOf(rotated), eventsOf(options, 2));
  t.equal(verified([...rotated, ...after]), 'verified');
  for (const pem of [pems[0], pems[2]]) {
    const other = directLinker(optionsOf(parseKeyring(pem)));
    const linking = () => other.link(tailOf([...rotated, ...after]), eventsOf(options, 1));
    t.equal(await codeOf(linking), 'signing_key_missing', 'nobody else can go on');
  }
});

t.test('what an older key queued is chained by its successor that still has it', async (t) => {
  const waiting = queued(one, eventsOf(optionsOf(one), 2));
  const swapped = parseKeyring(pems[1] + pems[0]);
  const records = directLinker(optionsOf(swapped)).link(EMPTY, waiting);
  t.equal(verified(records), 'verified');
  const without = directLinker(optionsOf(parseKeyring(pems[1])));
  t.throws(() => without.link(EMPTY, waiting), {
    code: 'signing_key_missing',
    message: /^outbox row 100: /,
  });
});

t.test('each place in the outbox is chained once, in its order, as it was written', async (t) => {
  const linker = directLinker(optionsOf(one));
  const events = eventsOf(optionsOf(one, 9), 3);
  const good = queued(one, events, 4);
  t.equal(linker.link(EMPTY, good).length, 4);
  const [first, second, third] = good as [QueuedEvent, QueuedEvent, QueuedEvent];
  const refused: readonly (readonly [string, readonly QueuedEvent[], string, RegExp])[] = [
    ['a gap', [first, third], 'evidence_missing', /^outbox row 102: the events 6 to 6 of/],
    ['a wrong order', [second, first, third], 'evidence_missing', /^outbox row 101: /],
    ['twice', [first, first], 'evidence_forged', /^outbox row 100: it was chained before/],
    ['another text', [{ ...first, text: second.text }], 'evidence_forged', /its MAC/],
    ['another ref', [{ ...first, ref: second.ref }], 'evidence_forged', /its ref is another/],
    ['another number', [{ ...first, count: 6, chainedCount: 5 }], 'evidence_forged', /its MAC/],
    ['another writer', [{ ...first, writer: 'v' }], 'evidence_forged', /its MAC/],
    ['a MAC cut short', [{ ...first, mac: first.mac.slice(2) }], 'evidence_forged', /its MAC/],
  ];
  for (const [name, rows, code, message] of refused) {
    t.throws(() => linker.link(EMPTY, rows), { code, message }, name);
    t.throws(
      () => linker.link(tailOf(linker.link(EMPTY, [])), rows),
      { code, message },
      `${name}, behind a record`,
    );
  }
});

t.test('nothing follows on a record that is not the one of its head', async (t) => {
  const options = optionsOf(one);
  const linker = directLinker(options);
  const tail = tailOf(linker.link(EMPTY, eventsOf(options, 1)));
  const other = tailOf(linker.link(EMPTY, eventsOf(options, 1)));
  for (const record of ['', 'none', 'null', '[]', '{}', other.record]) {
    const linking = () => linker.link({ ...tail, record }, eventsOf(options, 1));
    t.throws(linking, { code: 'damaged' }, record.slice(0, 10));
  }
});

t.test('a statement that cannot be made is refused', async (t) => {
  const options = optionsOf(both);
  const linker = directLinker(options);
  const begun = linker.link(EMPTY, eventsOf(options, 1));
  const tail = tailOf(begun);
  const codes: readonly (readonly [Record<string, unknown> & { kind: string }, string])[] = [
    [{ kind: 'none' }, 'evidence_invalid'],
    [{ kind: 'rotation', nextKeyId: 'f'.repeat(32) }, 'signing_key_missing'],
    [{ kind: 'restore', lost: { fromSeq: 9, toSeq: 8, toHash: '' } }, 'evidence_invalid'],
  ];
  for (const [statement, code] of codes) {
    t.throws(() => linker.state(tail, statement), { code }, statement.kind);
  }
  const three = directLinker(optionsOf(parseKeyring(pems.join(''))));
  t.throws(() => three.state(tail, { kind: 'rotation' }), {
    code: 'signing_key_missing',
    message: /name one/,
  });
  const lost = { fromSeq: 2, toSeq: 4, toHash: 'a'.repeat(64) };
  const accepted = linker.state(tail, { kind: 'restore', lost, by: { type: 'admin', id: 'ann' } });
  t.equal(verified([...begun, ...accepted]), 'verified');
});
