/** Forwarding a chain that turns out to be another one: restored, cut, archived, damaged. */
import t from 'tap';
import { nextRecords } from '../src/actors/audit-export/reading.js';
import {
  advanced,
  CURSOR_AT_BEGINNING,
  type SinkCursor,
} from '../src/actors/audit-export/state.js';
import type { ChainedRecord, EvidenceStore } from '../src/storage/evidence-store.js';
import { ExportWorld, Receiver } from './fixtures/exporting-replica.js';

const SEED = Number(process.env['SEED'] ?? Date.now() % 1_000_000);
t.comment(`seed ${SEED}`);
const upTo = (seq: number): number[] => Array.from({ length: seq + 1 }, (_, index) => index);

/** What a receiver has that tells records by their text, in the order of the chain. */
function texts(receiver: Receiver): string[] {
  const all = receiver.batches.flatMap(({ records }) => records.map(({ text }) => text));
  return [...new Set(all)];
}

/** What the receiver lacks of the chain as it is now. */
async function lacking(world: ExportWorld, receiver: Receiver): Promise<string[]> {
  const got = new Set(texts(receiver));
  return (await world.records()).map(({ text }) => text).filter((text) => !got.has(text));
}

t.test('a chain that lost its newest records is delivered again from a mark on', async (t) => {
  const world = new ExportWorld(SEED);
  const receiver = new Receiver();
  const one = world.replica('one', [receiver.sink('siem')]);
  await world.chain(5);
  await world.until('the beginning is delivered', () => receiver.seqs.length === 6);
  const backup = world.database.evidence.copy();
  for (let round = 0; round < 6; round += 1) {
    await world.chain(10);
    await world.until('a round is delivered', () => receiver.seqs.length === 16 + 10 * round);
  }
  // The chain alone goes back; the cursor does not, as where somebody cut the table.
  world.database.evidence = backup;
  await world.until('it is noticed', () => one.lines.length > 0);
  t.match(one.lines[0], { fields: { sink: 'siem', fromSeq: 65, toSeq: 5 } });
  t.match(await world.cursor('siem'), { seq: 5, restored: { resumedAfterSeq: 5 } });
  await world.chain(20);
  const head = await world.head();
  await world.until('the new records are delivered', () => receiver.seqs.at(-1) === head);
  t.strictSame(
    receiver.seqs.slice(66),
    Array.from({ length: head - 5 }, (_, at) => 6 + at),
  );
  const chain = (await world.records()).map(({ text }) => text);
  t.strictSame(texts(receiver).slice(-(head - 5)), chain.slice(6), 'all of the new history');
  const asked = one.client.sinks();
  await world.clock.advance(10);
  t.match((await asked)[0], { cursor: head, restored: { resumedAfterSeq: 5 } }, 'and it is said');
  await one.stop();
});

t.test('a chain that has the same numbers with other records is told by its hashes', async (t) => {
  const world = new ExportWorld(SEED);
  const receiver = new Receiver();
  await world.chain(9);
  const backup = world.database.evidence.copy();
  await world.chain(40);
  const one = world.replica('one', [receiver.sink('siem')]);
  await world.until('all is delivered', () => receiver.seqs.length === 50);
  world.database.evidence = backup;
  await world.chain(100);
  await world.until('the other history is delivered', () => receiver.seqs.at(-1) === 109);
  t.strictSame(await lacking(world, receiver), [], 'it has the chain as it is now');
  await one.stop();
});

t.test('a store restored with its cursors is gone on with, and nothing is skipped', async (t) => {
  const world = new ExportWorld(SEED);
  const receiver = new Receiver();
  await world.chain(9);
  const one = world.replica('one', [receiver.sink('siem')]);
  await world.until('all is delivered', () => receiver.seqs.length === 10);
  const backup = world.database.remember();
  await world.chain(20);
  await world.until('all is delivered', () => receiver.seqs.length === 30);
  world.database.restore(backup);
  await world.chain(50);
  await world.until('the new history is delivered', () => receiver.seqs.at(-1) === 59);
  t.strictSame(await lacking(world, receiver), [], 'it has the chain as it is now');
  await one.stop();
});

t.test('a new epoch is said, and goes with the batches that come after it', async (t) => {
  const world = new ExportWorld(SEED);
  const receiver = new Receiver();
  await world.chain(3);
  const one = world.replica('one', [receiver.sink('siem')]);
  await world.until('all is delivered', () => receiver.seqs.length === 4);
  await one.stop();
  const [before] = receiver.batches;
  const backup = { ...world.database.remember(), epoch: 'fedcba9876543210' };
  world.database.restore(backup);
  const two = world.replica('two', [receiver.sink('siem')]);
  await world.chain(3);
  await world.until('the rest is delivered', () => receiver.seqs.length === 7);
  t.strictSame(receiver.seqs, upTo(6), 'nothing twice: the cursor’s record is there');
  t.not(before?.epoch, 'fedcba9876543210');
  t.equal(receiver.batches.at(-1)?.epoch, 'fedcba9876543210');
  t.match(await world.cursor('siem'), { restored: { resumedAfterSeq: 3 } });
  await two.stop();
});

/** A chain that is read as files are, without its oldest records. */
function archivedUpTo(records: readonly ChainedRecord[], seq: number): EvidenceStore {
  const left = records.filter((record) => record.seq > seq);
  return {
    mode: 'direct',
    page: async (after: number, limit: number) =>
      left.filter((record) => record.seq > after).slice(0, limit),
    head: async () => left.at(-1) ?? { seq: -1, hash: '' },
  } as unknown as EvidenceStore;
}

function cursorBehind(records: readonly ChainedRecord[], seq: number): SinkCursor {
  const { hash } = records[seq] as ChainedRecord;
  return { ...CURSOR_AT_BEGINNING, seq, hash, epoch: 'e' };
}

t.test('segments that were moved away before a sink had them stop it, and are named', async (t) => {
  const world = new ExportWorld(SEED);
  await world.chain(40);
  const records = await world.records();
  const chain = archivedUpTo(records, 19);
  const behind = nextRecords(chain, cursorBehind(records, 9), 10);
  await t.rejects(behind, { code: 'records_archived', message: /records 10 to 19/ });
  const next = await nextRecords(chain, cursorBehind(records, 19), 10);
  t.equal(next.kind === 'records' && next.records[0]?.seq, 20, 'its own record may be gone');
  const anew = await nextRecords(chain, CURSOR_AT_BEGINNING, 10);
  t.equal(anew.kind === 'records' && anew.records[0]?.seq, 20, 'a new one begins with the oldest');
  const whole = { ...archivedUpTo(records, 19), mode: 'deferred' } as EvidenceStore;
  await t.rejects(nextRecords(whole, CURSOR_AT_BEGINNING, 10), { code: 'damaged' });
});

t.test('a record that is missing or changed is not passed over', async (t) => {
  const world = new ExportWorld(SEED);
  await world.chain(20);
  const records = await world.records();
  const without = archivedUpTo(
    records.filter(({ seq }) => seq !== 7),
    -1,
  );
  const next = await nextRecords(without, cursorBehind(records, 3), 10);
  t.strictSame(next.kind === 'records' && next.records.map(({ seq }) => seq), [4, 5, 6]);
  const atGap = nextRecords(without, cursorBehind(records, 6), 10);
  await t.rejects(atGap, { code: 'damaged', message: /record 7 / });
  const forged = records.map((one) => (one.seq === 5 ? { ...one, prevHash: 'x' } : one));
  const upToForged = await nextRecords(archivedUpTo(forged, -1), cursorBehind(records, 3), 10);
  t.strictSame(upToForged.kind === 'records' && upToForged.records.map(({ seq }) => seq), [4]);
});

t.test('marks are few, and reach back by ever longer steps', (t) => {
  let cursor = CURSOR_AT_BEGINNING;
  for (let seq = 99; seq < 1_000_000; seq += 100) {
    cursor = advanced(cursor, { seq, hash: `h${seq}` }, { epoch: 'e', atMs: 1 });
    const distances = cursor.marks.map((mark) => cursor.seq - mark.seq);
    if (distances.some((far, index) => far <= (distances[index - 1] ?? 0))) t.fail('out of order');
  }
  t.ok(cursor.marks.length <= 20, `${cursor.marks.length} marks`);
  let reached = 0;
  for (const mark of cursor.marks) {
    const far = cursor.seq - mark.seq;
    t.ok(far <= Math.max(200, 4 * reached + 400), `${far} after ${reached}`);
    reached = far;
  }
  t.ok(reached > 250_000, 'far back');
  t.ok(JSON.stringify({ ...cursor, hash: 'f'.repeat(64) }).length < 4_000);
  t.end();
});
