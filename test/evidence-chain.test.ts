/** How events become a chain. */
import { hash } from 'node:crypto';
import fc from 'fast-check';
import t from 'tap';
import { canonicalJson } from '../src/evidence/canonical-json.js';
import {
  EMPTY_CHAIN,
  isCheckpointDue,
  linkEvent,
  sealRecord,
  signedBytes,
  signRecord,
} from '../src/evidence/chain.js';
import { encodeEvent } from '../src/evidence/event.js';
import {
  CHECKPOINT_AGE_MAX_MS,
  CHECKPOINT_RECORDS_MAX,
  EVENT_BYTES_MAX,
  HASH_PREFIX,
  RECORD_BYTES_MAX,
  RECORD_FIELDS,
} from '../src/evidence/format.js';
import { genesisEvent, restoreAcceptedEvent, rotationEvent } from '../src/evidence/statements.js';
import {
  ChainBuilder,
  refOf,
  TEST_KEYS,
  TEST_MASKING,
  timeOf,
} from './fixtures/evidence-chains.js';

const seed = Number(process.env['SEED'] ?? Date.now() % 2 ** 31);
t.comment(`seed ${seed}`);

const [key, nextKey] = TEST_KEYS;
const OPTIONS = { chainedAt: timeOf(9), keyId: key.id };
const STATEMENT = {
  ref: refOf(0),
  at: timeOf(0),
  by: { type: 'replica', id: 'r1' },
  masking: TEST_MASKING,
};
const eventOf = (data: object): string =>
  encodeEvent(
    { ref: refOf(1), kind: 'x.y', at: timeOf(1), by: STATEMENT.by, data: data as any },
    TEST_MASKING,
  );

t.test('a record is canonical, hashed behind its prefix and signed over the hash', async () => {
  fc.assert(
    fc.property(fc.dictionary(fc.string(), fc.jsonValue({ maxDepth: 3 })), (data) => {
      const head = { seq: 6, hash: 'ab'.repeat(32) };
      const record = signRecord(linkEvent(head, eventOf(data), OPTIONS), key);
      const fields = JSON.parse(record.text);
      const { hash: stated, sig, ...unsigned } = fields;
      const digest = hash('sha256', HASH_PREFIX + canonicalJson(unsigned), 'hex');
      return (
        canonicalJson(fields) === record.text &&
        stated === digest &&
        record.hash === digest &&
        key.verify(Buffer.from(digest, 'hex'), Buffer.from(sig, 'hex'))
      );
    }),
    { seed, numRuns: 300 },
  );
});

t.test('a record says its number, its predecessor, its key and when it was chained', async (t) => {
  const head = { seq: 6, hash: 'ab'.repeat(32) };
  const linked = linkEvent(head, eventOf({ a: 1 }), OPTIONS);
  const fields = JSON.parse(signRecord(linked, key).text);
  t.same(Object.keys(fields), RECORD_FIELDS);
  t.match(fields, {
    seq: 7,
    prev_hash: head.hash,
    key_id: key.id,
    chained_at: timeOf(9),
    at: timeOf(1),
    ref: refOf(1),
    v: 1,
  });
  t.match(linked, { seq: 7, ref: refOf(1), kind: 'x.y', prevHash: head.hash, keyId: key.id });
});

t.test('a batch is linked before it is signed, and signed in any order', async (t) => {
  const chain = new ChainBuilder();
  const first = linkEvent(chain.head, eventOf({ a: 1 }), OPTIONS);
  const second = linkEvent(first, eventOf({ a: 2 }), OPTIONS);
  t.equal(second.prevHash, first.hash);
  const sealed = sealRecord(second, key.sign(signedBytes(second)));
  t.same(sealed, signRecord(second, key));
  t.throws(() => signRecord(second, nextKey), { code: 'signing_key_missing' });
});

t.test('a genesis is record 0 and record 0 is a genesis', async (t) => {
  const genesis = genesisEvent(STATEMENT, key);
  t.equal(linkEvent(EMPTY_CHAIN, genesis, OPTIONS).seq, 0);
  t.equal(linkEvent(EMPTY_CHAIN, genesis, OPTIONS).prevHash, '0'.repeat(64));
  t.throws(() => linkEvent({ seq: 0, hash: EMPTY_CHAIN.hash }, genesis, OPTIONS), {
    code: 'evidence_invalid',
  });
  t.throws(() => linkEvent(EMPTY_CHAIN, eventOf({}), OPTIONS), { code: 'evidence_invalid' });
});

t.test('the largest event becomes a record that a verifier reads', async (t) => {
  const room = EVENT_BYTES_MAX - Buffer.byteLength(eventOf({ note: '' }));
  const event = eventOf({ note: 'x'.repeat(room) });
  const head = { seq: Number.MAX_SAFE_INTEGER - 1, hash: 'f'.repeat(64) };
  const record = signRecord(linkEvent(head, event, OPTIONS), key);
  t.ok(Buffer.byteLength(record.text) <= RECORD_BYTES_MAX, `${record.text.length} bytes`);
  const afterLast = { ...head, seq: head.seq + 1 };
  t.throws(() => linkEvent(afterLast, event, OPTIONS), { code: 'evidence_invalid' });
});

t.test('a checkpoint is due after a thousand records or an hour, if there is news', async (t) => {
  const due = (records: number, ageMs: number): boolean =>
    isCheckpointDue(
      { head: { seq: 50 + records, hash: '' }, lastCheckpoint: { seq: 50, atMs: 1_000 } },
      1_000 + ageMs,
    );
  t.equal(due(CHECKPOINT_RECORDS_MAX - 1, 0), false);
  t.equal(due(CHECKPOINT_RECORDS_MAX, 0), true);
  t.equal(due(1, CHECKPOINT_AGE_MAX_MS - 1), false);
  t.equal(due(1, CHECKPOINT_AGE_MAX_MS), true);
  t.equal(due(0, CHECKPOINT_AGE_MAX_MS * 9), false, 'a chain that stands still makes none');
});

t.test('a checkpoint of size n covers records 0 to n − 1 and becomes record n', async (t) => {
  const chain = new ChainBuilder().addSome(3).checkpoint();
  t.match(JSON.parse(chain.lines[4]!), {
    seq: 4,
    kind: 'chain.checkpoint',
    data: { size: 4, head_hash: chain.records[3]!.hash, chain: chain.id },
  });
});

t.test('a rotation is signed by both keys, and the next signs what follows', async (t) => {
  const chain = new ChainBuilder().addSome(1).rotate(nextKey).addSome(1);
  const [, , rotation, after] = chain.lines.map((line) => JSON.parse(line));
  t.equal(rotation.key_id, key.id);
  t.equal(after.key_id, nextKey.id);
  const message = `evidence-rotation-v1\n${rotation.prev_hash}\n${key.id}\n${nextKey.id}`;
  const { proof, next_key_id: nextId } = rotation.data;
  t.equal(nextId, nextKey.id);
  t.ok(nextKey.verify(Buffer.from(message), Buffer.from(proof, 'hex')));
  t.throws(() => rotationEvent(STATEMENT, chain.head, { current: key, next: key }), {
    code: 'evidence_invalid',
  });
});

t.test('an accepted restore names a range that can be lost', async (t) => {
  const head = { seq: 9, hash: 'a'.repeat(64) };
  const event = (fromSeq: number, toSeq: number) =>
    restoreAcceptedEvent(STATEMENT, head, { fromSeq, toSeq, toHash: 'b'.repeat(64) });
  t.same(JSON.parse(event(10, 20)).data, {
    lost_from: 10,
    lost_hash: 'b'.repeat(64),
    lost_to: 20,
  });
  for (const [from, to] of [
    [0, 5],
    [5, 4],
    [11, 20],
  ] as const) {
    t.throws(() => event(from, to), { code: 'evidence_invalid' }, `${from} to ${to}`);
  }
});

t.test('statements are not masked, but who makes them is', async (t) => {
  const by = { type: 'user', id: `halo_admin_${'a'.repeat(49)}` };
  const text = genesisEvent({ ...STATEMENT, by }, key);
  t.match(text, Buffer.from(key.publicKey).toString('hex'));
  t.notMatch(text, by.id);
});
