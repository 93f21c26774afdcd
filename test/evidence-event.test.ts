/** Events at the door and back out of storage. */
import t from 'tap';
import {
  decodeEvent,
  type EventDraft,
  encodeEvent,
  encodeStatement,
  isOutboxMac,
  outboxMac,
} from '../src/evidence/event.js';
import { EVENT_BYTES_MAX } from '../src/evidence/format.js';
import { edit, refOf, TEST_KEYS, TEST_MASKING, timeOf } from './fixtures/evidence-chains.js';

const draftOf = (change: Partial<EventDraft> = {}): EventDraft => ({
  ref: refOf(1),
  kind: 'device.revoked',
  at: timeOf(1),
  by: { type: 'admin', id: 'alice' },
  data: { device: 'dev_1' },
  ...change,
});

t.test('an event is canonical JSON with a version', async (t) => {
  t.equal(
    encodeEvent(draftOf(), TEST_MASKING),
    '{"at":"2026-10-21T14:03:06.123Z","by":{"id":"alice","type":"admin"},' +
      '"data":{"device":"dev_1"},"kind":"device.revoked","masked":[],' +
      `"ref":"${refOf(1)}","v":1}`,
  );
});

t.test('an event of 256 KiB passes the door, and not a byte more, counted in UTF-8', async (t) => {
  const bare = Buffer.byteLength(encodeEvent(draftOf({ data: { note: '' } }), TEST_MASKING));
  const room = EVENT_BYTES_MAX - bare;
  const fits = encodeEvent(draftOf({ data: { note: 'x'.repeat(room) } }), TEST_MASKING);
  t.equal(Buffer.byteLength(fits), EVENT_BYTES_MAX);
  t.equal(decodeEvent(fits).kind, 'device.revoked');
  for (const note of ['x'.repeat(room + 1), 'é'.repeat(Math.floor(room / 2) + 1)]) {
    const encode = () => encodeEvent(draftOf({ data: { note } }), TEST_MASKING);
    t.throws(encode, { code: 'evidence_too_large' });
  }
});

t.test('the bound is on what is stored: what is masked does not count', async (t) => {
  const data = { password: 'x'.repeat(EVENT_BYTES_MAX) };
  t.ok(encodeEvent(draftOf({ data }), TEST_MASKING).length < 1000);
});

t.test('an event without its form is refused and its values are not repeated', async (t) => {
  const secret = 'hunter2-hunter2';
  const refused: ReadonlyArray<readonly [string, Partial<EventDraft>]> = [
    ['a ref of digits', { ref: '17' }],
    ['a ref in capitals', { ref: refOf(1).toUpperCase() }],
    ['a kind in capitals', { kind: 'Device.Revoked' }],
    ['a kind that is too long', { kind: 'x'.repeat(65) }],
    ['a statement of the chain', { kind: 'chain.checkpoint' }],
    ['a time without milliseconds', { at: '2026-10-21T14:03:05Z' }],
    ['a time elsewhere', { at: '2026-10-21T14:03:05.123+02:00' }],
    ['nobody', { by: { type: 'admin', id: '' } }],
    ['data that is none', { data: [secret] as any }],
    ['a bigint', { data: { [secret]: 1n } as any }],
    ['a date', { data: { at: new Date(0) } as any }],
    ['too deep', { data: JSON.parse(`{"a":${'['.repeat(40)}${']'.repeat(40)}}`) }],
  ];
  for (const [name, change] of refused) {
    const encode = () => encodeEvent(draftOf(change), TEST_MASKING);
    t.throws(encode, { code: 'evidence_invalid' }, name);
    try {
      encode();
    } catch (error) {
      t.notMatch((error as Error).message, secret, name);
    }
  }
  const statement = () => encodeStatement(draftOf(), TEST_MASKING);
  t.throws(statement, { code: 'evidence_invalid' }, 'nor is an event a statement');
});

t.test('a stored event comes apart into exactly the text that it was', async (t) => {
  const data = { z: [1.5, 1e21, '\u2028'], a: { '10': 1, '9': 2 }, password: 'x' };
  const text = encodeEvent(draftOf({ data }), TEST_MASKING);
  const { members, kind, ref } = decodeEvent(text);
  t.equal(kind, 'device.revoked');
  t.equal(ref, refOf(1));
  const joined = Object.entries(members).map(([name, member]) => `"${name}":${member}`);
  t.equal(`{${joined.join(',')}}`, text);
});

t.test('an event of a newer version is left to a newer binary', async (t) => {
  const text = encodeEvent(draftOf(), TEST_MASKING);
  const newer = edit(text, (fields) => {
    fields['v'] = 2;
    fields['extra'] = true;
  });
  t.throws(() => decodeEvent(newer), { code: 'evidence_newer' });
});

t.test('a stored event that nobody can have written is unreadable, never skipped', async (t) => {
  const text = encodeEvent(draftOf(), TEST_MASKING);
  const changed = (name: string, value: unknown) =>
    edit(text, (fields) => {
      fields[name] = value;
    });
  const unreadable: ReadonlyArray<readonly [string, string]> = [
    ['nothing', ''],
    ['no JSON', text.slice(0, -1)],
    ['an array', '[]'],
    ['null', 'null'],
    ['white space', text.replace('{', '{ ')],
    ['a line end', `${text}\n`],
    ['a name twice', text.replace('"data":{', '"data":{"device":"dev_2",')],
    ['another field', changed('extra', 1)],
    ['no version', edit(text, (fields) => delete fields['v'])],
    ['version 0', changed('v', 0)],
    ['a version that is none', changed('v', '2')],
    ['a ref that is none', changed('ref', 'x')],
    ['a kind that is none', changed('kind', 'X')],
    ['a time that is none', changed('at', 'now')],
    ['nobody', changed('by', { id: 'x' })],
    ['data that is none', changed('data', [])],
    ['a mask that is none', changed('masked', [1])],
    ['too long', text.replace('dev_1', 'x'.repeat(EVENT_BYTES_MAX))],
    ['too deep', text.replace('"dev_1"', `${'['.repeat(40)}${']'.repeat(40)}`)],
    ['a lone surrogate', text.replace('dev_1', '\\ud800')],
  ];
  for (const [name, stored] of unreadable) {
    t.throws(() => decodeEvent(stored), { code: 'evidence_unreadable' }, name);
  }
});

t.test('a MAC holds an event to its writer and its number', async (t) => {
  const secret = TEST_KEYS[0].derive('evidence-outbox');
  const text = encodeEvent(draftOf(), TEST_MASKING);
  const place = { writer: 'w1', count: 3 };
  const mac = outboxMac(secret, place, text);
  t.ok(isOutboxMac(secret, place, text, mac));
  t.notOk(isOutboxMac(secret, { ...place, count: 4 }, text, mac), 'another number');
  t.notOk(isOutboxMac(secret, { ...place, writer: 'w2' }, text, mac), 'another writer');
  t.notOk(isOutboxMac(secret, place, text.replace('alice', 'malice'), mac), 'another event');
  t.notOk(isOutboxMac(TEST_KEYS[1].derive('evidence-outbox'), place, text, mac), 'another key');
  t.notOk(isOutboxMac(secret, place, text, mac.slice(1)), 'a part of it');
  t.not(
    outboxMac(secret, { writer: 'w1', count: 12 }, text),
    outboxMac(secret, { writer: 'w11', count: 2 }, text),
  );
});
