/** Forwarding the chain to sinks, on the model store and a simulated clock. */
import t from 'tap';
import { DELIVERY_MAX_MS } from '../src/actors/audit-export/forwarder.js';
import { sinkStatuses } from '../src/actors/audit-export/status.js';
import { CodedError } from '../src/runtime/failure.js';
import { ExportWorld, LEASE_TTL_MS, Receiver } from './fixtures/exporting-replica.js';

const SEED = Number(process.env['SEED'] ?? Date.now() % 1_000_000);
t.comment(`seed ${SEED}`);
const upTo = (seq: number): number[] => Array.from({ length: seq + 1 }, (_, index) => index);
const never = (): Promise<void> => new Promise(() => undefined);

t.test('a sink gets every record once and in order, and what is chained later', async (t) => {
  const world = new ExportWorld(SEED);
  const receiver = new Receiver();
  await world.chain(25);
  const one = world.replica('one', [receiver.sink('siem')]);
  await world.until('the chain is delivered', () => receiver.seqs.length === 26);
  t.strictSame(receiver.seqs, upTo(25));
  t.strictSame(
    receiver.batches.map(({ records }) => records.length),
    [10, 10, 6],
    'in batches of at most batchMax',
  );
  await world.chain(3);
  await world.until('the rest is delivered', () => receiver.seqs.length === 29, 5_000);
  t.strictSame(receiver.seqs, upTo(28));
  const texts = receiver.batches.flatMap(({ records }) => records.map(({ text }) => text));
  t.strictSame(
    texts,
    (await world.records()).map(({ text }) => text),
    'byte for byte',
  );
  const cursor = await world.cursor('siem');
  t.match(cursor, { seq: 28, hash: (await world.records()).at(-1)?.hash, failure: null });
  t.ok(cursor.deliveredAtMs !== null && cursor.deliveredAtMs <= world.clock.wallMs());
  await world.clock.advance(6_000);
  t.strictSame(one.facts().sinks, [{ name: 'siem', lagRecords: 0, delivered: 29, errors: 0 }]);
  await one.stop();
});

t.test('a batch holds a mebibyte, or a single record', async (t) => {
  const world = new ExportWorld(SEED);
  const receiver = new Receiver();
  await world.chain(20, 'x'.repeat(200_000));
  const one = world.replica('one', [receiver.sink('siem', 100)]);
  await world.until('the chain is delivered', () => receiver.seqs.length === 21);
  t.strictSame(receiver.seqs, upTo(20));
  const sizes = receiver.batches.map(({ records }) =>
    records.reduce((bytes, { text }) => bytes + Buffer.byteLength(text), 0),
  );
  t.ok(sizes.every((bytes) => bytes <= 1_048_576) && sizes.length === 4, sizes.join(', '));
  await one.stop();
});

t.test('of many replicas one forwards, and each says the same of it', async (t) => {
  const world = new ExportWorld(SEED);
  const receiver = new Receiver();
  await world.chain(30);
  const replicas = ['a', 'b', 'c'].map((name) => world.replica(name, [receiver.sink('siem')]));
  await world.until('the chain is delivered', () => receiver.seqs.length >= 31);
  await world.clock.advance(10_000);
  t.strictSame(receiver.seqs, upTo(30), 'no record came twice');
  const leader = replicas.find((replica) => replica.leads('siem'));
  const asked = Promise.all(replicas.map((replica) => replica.client.sinks()));
  await world.clock.advance(10);
  const answers = await asked;
  for (const [status] of answers) {
    t.match(status, { name: 'siem', cursor: 30, head: 30, lagRecords: 0, lagSeconds: 0 });
    t.ok(status?.leader?.startsWith(`${leader?.name}.`), 'the leader is named');
  }
  await Promise.all(replicas.map((replica) => replica.stop()));
});

t.test('a term that ends while a sink is silent ends at once, and then nobody leads', async (t) => {
  const world = new ExportWorld(SEED);
  const receiver = new Receiver();
  receiver.behave = never;
  await world.chain(3);
  const one = world.replica('one', [receiver.sink('siem')]);
  const two = world.replica('two', [receiver.sink('siem')]);
  await world.until('a delivery is under way', () => receiver.underWay === 1);
  await Promise.all([one.stop(), two.stop()]);
  t.pass('although no time passed');
  const statuses = await sinkStatuses(world.store, world.clock, [receiver.sink('siem')]);
  t.match(statuses, [{ leader: null, cursor: -1, head: 3, lagRecords: 4 }]);
  const third = world.replica('third', [receiver.sink('siem')]);
  await world.clock.advance(10);
  const asked = third.client.sinks();
  await world.clock.advance(10);
  t.match(await asked, [{ leader: /^third\./ }]);
  await third.stop();
});

t.test('a cursor that was put back during a delivery is not written over', async (t) => {
  const world = new ExportWorld(SEED);
  const receiver = new Receiver();
  await world.chain(3);
  const one = world.replica('one', [receiver.sink('siem')]);
  await world.until('all is delivered', () => receiver.seqs.length === 4);
  const earlier = world.database.tables.copy();
  await world.chain(3);
  await world.until('all is delivered', () => receiver.seqs.length === 7);
  let answer = (): void => undefined;
  receiver.behave = () =>
    new Promise((resolve) => {
      answer = resolve;
    });
  await world.chain(3);
  await world.until('a delivery is under way', () => receiver.underWay === 1);
  world.database.tables = earlier;
  receiver.behave = async () => undefined;
  answer();
  await world.until('it went on', () => receiver.seqs.length >= 16);
  t.strictSame(receiver.seqs, [...upTo(9), 4, 5, 6, 7, 8, 9], 'it went on from what was put back');
  t.match(await world.cursor('siem'), { seq: 9, failure: null });
  await one.stop();
});

t.test('a restart goes on where the last one stopped', async (t) => {
  const world = new ExportWorld(SEED);
  const receiver = new Receiver();
  await world.chain(12);
  const one = world.replica('one', [receiver.sink('siem')]);
  await world.until('the chain is delivered', () => receiver.seqs.length === 13);
  await one.stop();
  t.equal(receiver.closed, 1, 'each term opens the sink anew');
  await world.chain(12);
  const two = world.replica('two', [receiver.sink('siem')]);
  await world.until('the rest is delivered', () => receiver.seqs.length === 25);
  t.strictSame(receiver.seqs, upTo(24), 'and nothing of it twice');
  await two.stop();
});

t.test('hashicorp/vault#5361: a sink that swallows everything holds up nobody', async (t) => {
  const world = new ExportWorld(SEED);
  const [deaf, well] = [new Receiver(), new Receiver()];
  deaf.behave = never;
  await world.chain(5);
  const one = world.replica('one', [deaf.sink('deaf'), well.sink('well')]);
  await world.until('the other sink has all', () => well.seqs.length === 6, 5_000);
  const beganMs = world.clock.monotonicMs();
  for (let round = 0; round < 20; round += 1) {
    await world.chain(1);
    await world.clock.advance(1_000);
    t.strictSame(well.seqs, upTo(6 + round), `what is chained meanwhile is with the other sink`);
  }
  t.equal(world.clock.monotonicMs() - beganMs, 20_000);
  t.equal(deaf.underWay, 1, 'one delivery is under way, however long it takes');
  await world.until('the failure is said', () => (one.facts().sinks[0]?.errors ?? 0) > 1);
  t.match(await world.cursor('deaf'), { seq: -1, failure: { code: /^sink_(timeout|hangs)$/ } });
  t.equal(deaf.underWay, 1, 'none is begun beside one that does not end');
  await one.stop();
  t.pass('and it stops although the sink does not');
});

t.test('a delivery that takes too long is told to stop, and is repeated', async (t) => {
  const world = new ExportWorld(SEED);
  const receiver = new Receiver();
  let aborted = 0;
  receiver.behave = (_batch, signal) =>
    new Promise((_, reject) => {
      signal.addEventListener('abort', () => {
        aborted += 1;
        reject(new Error('stopped'));
      });
    });
  await world.chain(5);
  const one = world.replica('one', [receiver.sink('siem')]);
  const beganMs = world.clock.monotonicMs();
  await world.until('it is told to stop', () => aborted === 1);
  t.ok(world.clock.monotonicMs() - beganMs >= DELIVERY_MAX_MS);
  await world.clock.advance(100);
  t.match(await world.cursor('siem'), { failure: { code: 'sink_timeout', attempts: 1 } });
  receiver.behave = async () => undefined;
  await world.until('it is delivered', () => receiver.seqs.length === 6);
  t.strictSame(receiver.seqs, upTo(5));
  t.match(await world.cursor('siem'), { failure: null });
  await one.stop();
});

t.test('a sink that refuses is asked less and less often, at most once a minute', async (t) => {
  const world = new ExportWorld(SEED);
  const receiver = new Receiver();
  const askedMs: number[] = [];
  const sizes: number[] = [];
  receiver.behave = async ({ records }) => {
    askedMs.push(world.clock.monotonicMs());
    sizes.push(records.length);
    throw new CodedError('webhook_refused', 'it answered 404');
  };
  await world.chain(25);
  const one = world.replica('one', [receiver.sink('siem', 16)]);
  await world.until('it was asked often', () => askedMs.length === 15, 1_800_000);
  const pauses = askedMs.slice(1).map((atMs, index) => atMs - (askedMs[index] ?? 0));
  t.ok(pauses.every((ms) => ms >= 250 && ms <= 61_000));
  t.ok((pauses.at(-1) ?? 0) >= 30_000, 'and not every few seconds for ever');
  t.strictSame(sizes.slice(0, 6), [16, 8, 4, 2, 1, 1], 'with less, in case it was too much');
  t.match(await world.cursor('siem'), {
    failure: { code: 'webhook_refused', message: 'it answered 404' },
  });
  const told = one.client.sinks();
  await world.clock.advance(10);
  const [status] = await told;
  t.match(status, { cursor: -1, head: 25, lagRecords: 26, lastDeliveredAtMs: null });
  t.match(status?.lastError, { code: 'webhook_refused', message: 'it answered 404' });
  t.ok((status?.lastError?.attempts ?? 0) >= 14);
  const complaints = one.messages().filter((message) => message === 'A sink takes no records.');
  t.equal(complaints.length, 1, 'the log is not filled');
  receiver.behave = async () => undefined;
  await world.until('it has all', () => receiver.seqs.length === 26);
  t.strictSame(receiver.seqs, upTo(25), 'nothing was skipped');
  await one.stop();
});

t.test('a receiver that says when to come back is not asked before', async (t) => {
  const world = new ExportWorld(SEED);
  const receiver = new Receiver();
  const askedMs: number[] = [];
  receiver.behave = async () => {
    askedMs.push(world.clock.monotonicMs());
    throw new CodedError('webhook_busy', 'it answered 429', { retryAfterSeconds: 40 });
  };
  await world.chain(1);
  const one = world.replica('one', [receiver.sink('siem')]);
  await world.until('it was asked twice', () => askedMs.length === 2, 200_000);
  t.ok((askedMs[1] ?? 0) - (askedMs[0] ?? 0) >= 40_000);
  await one.stop();
});

t.test('a deposed forwarder cannot move the cursor, and its successor repeats', async (t) => {
  const world = new ExportWorld(SEED);
  const receiver = new Receiver();
  await world.chain(5);
  const one = world.replica('one', [receiver.sink('siem')]);
  await world.until('all is delivered', () => receiver.seqs.length === 6);
  // The lease is lost in the store, and the leader does not know: it delivers once more.
  let answer = (): void => undefined;
  receiver.behave = () =>
    new Promise((resolve) => {
      answer = resolve;
    });
  await world.chain(4);
  await world.until('a delivery is under way', () => receiver.underWay === 1);
  const held = world.database.leases.list(world.database.nowMs())[0];
  world.database.leases.forget('audit-export-siem');
  world.database.leases.claim(
    { lease: 'audit-export-siem', holder: 'other' },
    LEASE_TTL_MS,
    world.database.nowMs(),
  );
  t.ok(one.leads('siem'), 'it still believes that it leads');
  answer();
  await world.until('it was fenced', () => one.fenced > 0, 1_000);
  t.match(await world.cursor('siem'), { seq: 5 }, 'the cursor stays where it was');
  t.strictSame(receiver.seqs, upTo(9), 'although the sink took the batch');
  receiver.behave = async () => undefined;
  await world.until('a later term goes on', () => receiver.seqs.length === 14);
  t.strictSame(receiver.seqs, [...upTo(9), 6, 7, 8, 9], 'at least once');
  t.not(held, undefined);
  await one.stop();
});

t.test('nothing is delivered once trust in the term has run out', async (t) => {
  const world = new ExportWorld(SEED);
  const receiver = new Receiver();
  await world.chain(2);
  const one = world.replica('one', [receiver.sink('siem')]);
  await world.until('all is delivered', () => receiver.seqs.length === 3);
  // Its way to the store is cut for renewals; reading the chain takes until the trust has run out.
  const cut = new Error('cut off');
  one.hooks = {
    before: async (operation) => {
      if (operation === 'leases') throw cut;
      if (operation === 'evidence') {
        await new Promise<void>((resolve) => world.clock.schedule(resolve, LEASE_TTL_MS));
      }
    },
  };
  await world.chain(2);
  await world.clock.advance(5 * LEASE_TTL_MS);
  t.strictSame(receiver.seqs, upTo(2));
  one.hooks = {};
  await world.until('the next term delivers', () => receiver.seqs.length === 5);
  await one.stop();
});

t.test('a store that is away is no failure of the sink, and is asked again', async (t) => {
  const world = new ExportWorld(SEED);
  const receiver = new Receiver();
  await world.chain(2);
  const one = world.replica('one', [receiver.sink('siem')]);
  await world.until('all is delivered', () => receiver.seqs.length === 3);
  const { StoreError } = await import('../src/storage/store-error.js');
  one.hooks = {
    before: (operation) => {
      if (operation === 'commit') throw new StoreError('store_unavailable', 'It is away.');
    },
  };
  await world.chain(2);
  await world.until('it is delivered', () => receiver.kept.length === 5);
  await world.clock.advance(5_000);
  t.match(await world.cursor('siem'), { seq: 2, failure: null });
  t.equal(one.facts().sinks[0]?.errors, 0);
  one.hooks = {};
  await world.clock.advance(60_000);
  t.match(await world.cursor('siem'), { seq: 4 });
  t.strictSame(receiver.kept, upTo(4));
  await one.stop();
});

t.test('a commit whose answer is lost costs at most a repeat', async (t) => {
  const world = new ExportWorld(SEED);
  const receiver = new Receiver();
  const one = world.replica('one', [receiver.sink('siem')]);
  let lost = 0;
  one.hooks = {
    after: (operation) => {
      if (operation !== 'commit' || lost === 3) return;
      lost += 1;
      throw new Error('the answer is lost');
    },
  };
  await world.chain(30);
  await world.until('all is delivered', () => receiver.kept.length === 31);
  t.equal(lost, 3);
  t.strictSame(receiver.seqs, upTo(30), 'what was committed is not delivered again');
  await one.stop();
});

t.test('an actor that is opened again forwards once, not twice', async (t) => {
  const world = new ExportWorld(SEED);
  const receiver = new Receiver();
  await world.chain(3);
  const one = world.replica('one', [receiver.sink('siem')]);
  await world.until('all is delivered', () => receiver.seqs.length === 4);
  const wrong = one.client as unknown as { ref: { ask(...ask: unknown[]): void } };
  let answered = false;
  wrong.ref.ask('nonsense', {}, { answered: () => (answered = true) });
  await world.until('the actor crashed', () => answered);
  await world.chain(20);
  await world.until('all is delivered', () => receiver.seqs.length >= 24);
  await world.clock.advance(5_000);
  t.strictSame(receiver.seqs, upTo(23));
  await one.stop();
});
