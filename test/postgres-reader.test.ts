/** The reader of catch-ups: its own messages, answers in pieces, and what it recognises. */
import t from 'tap';
import { encodeArray, readAnswer, readLastWords } from '../src/storage/postgres/wire.js';
import type { Position, StoredRecord } from '../src/storage/store.js';
import { startCluster } from './fixtures/postgres-database.js';
import { codeOf, openStore, until } from './fixtures/postgres-stores.js';
import { TcpProxy } from './fixtures/tcp-proxy.js';
import { body, unkeyed, View } from './storage-contract/view.js';

const cluster = await startCluster();
t.teardown(() => cluster.stop());

function message(type: string, ...parts: (Buffer | string)[]): Buffer {
  const content = Buffer.concat(parts.map((part) => Buffer.from(part as string)));
  const head = Buffer.alloc(5, type);
  head.writeUInt32BE(content.length + 4, 1);
  return Buffer.concat([head, content]);
}

function int32(value: number): Buffer {
  const bytes = Buffer.alloc(4);
  bytes.writeInt32BE(value);
  return bytes;
}

const ROW = message('D', Buffer.from([0, 3]), int32(2), 'é', int32(-1), int32(0));
const READY = message('Z', 'I');

t.test('an answer is read once all of it has come, whatever stands between', async (t) => {
  const notice = message('N', 'SNOTICE\0C00000\0\0');
  const bytes = Buffer.concat([
    message('1'),
    message('2'),
    ROW,
    notice,
    ROW,
    message('C', 'x\0'),
    READY,
  ]);
  for (let end = 0; end < bytes.length; end += 1) {
    t.equal(readAnswer(bytes.subarray(0, end), 0), undefined);
  }
  const twice = Buffer.concat([Buffer.from('rest'), bytes, bytes]);
  const answer = readAnswer(twice, 4);
  t.same(answer?.rows, [
    ['é', null, ''],
    ['é', null, ''],
  ]);
  t.equal(answer?.end, 4 + bytes.length);
  t.same(
    answer?.firstColumns.map((at) => bytes.toString('utf8', at, at + 2)),
    ['é', 'é'],
  );
  t.equal(answer?.error, undefined);
});

t.test('what a server says last is read without the end of an answer', async (t) => {
  const fatal = message('E', 'SFATAL\0VFATAL\0C57P01\0Mterminating\0\0');
  t.same(readLastWords(Buffer.concat([ROW, fatal])), { code: '57P01', severity: 'FATAL' });
  t.equal(readLastWords(fatal.subarray(0, 9)), undefined);
  t.equal(readLastWords(ROW), undefined);
  const error = message('E', 'SERROR\0C42P01\0\0');
  t.same(readAnswer(Buffer.concat([error, READY]), 0)?.error, { code: '42P01', severity: 'ERROR' });
});

t.test('an array of names is what PostgreSQL reads', async (t) => {
  const names = ['plain', 'a,b', '"quoted"', 'back\\slash', '{}', ' ', 'NULL', 'ü', ''];
  const literal = encodeArray(names).replaceAll("'", "''");
  t.same(await cluster.server.sql(`SELECT '${literal}'::text[] AS names`), [{ names }]);
});

t.test('streams of any name are followed side by side', async (t) => {
  const { url } = await cluster.database();
  const streams = ['plain', 'with "quotes", commas', 'back\\slash', 'ü', '10'];
  const writer = await View.replay(openStore(t, url), streams);
  const reader = await View.replay(openStore(t, url), streams);
  t.same(await reader.catchUp(), []);
  await writer.append(...streams.map((stream) => unkeyed(stream, stream)));
  await reader.catchUp();
  for (const stream of streams) t.same(reader.bodies(stream), [body(stream)]);
  for (let round = 0; round < 3; round += 1) t.same(await reader.catchUp(), []);
});

t.test('a position that does not move is the same object, and the clock goes on', async (t) => {
  const { url, sql } = await cluster.database();
  const view = await View.replay(openStore(t, url), ['a', 'b', 'c']);
  await view.append(unkeyed('a', 1), unkeyed('b', 2));
  await view.catchUp();
  const { store, position } = view;
  let lastMs = 0;
  const times = new Set<number>();
  await until('the clock has moved ten times', async () => {
    const caught = await store.catchUp(position);
    t.ok(caught.position === position && caught.records.length === 0 && !caught.more);
    t.ok(caught.storeTimeMs >= lastMs);
    lastMs = caught.storeTimeMs;
    return times.add(lastMs).size > 10;
  });
  const [{ now } = {}] = await sql('SELECT extract(epoch FROM clock_timestamp()) * 1000 AS now');
  t.ok(Math.abs(Number(now) - lastMs) < 5_000, 'in milliseconds since 1970');
  await sql("UPDATE halo_store SET epoch = '0123456789abcdef'");
  t.equal(await codeOf(() => store.catchUp(position)), 'history_changed');
});

t.test('many positions are asked for at once, and each gets its own answer', async (t) => {
  const { url } = await cluster.database();
  const store = openStore(t, url);
  const view = await View.replay(store, ['a']);
  const positions: Position[] = [view.position];
  for (let n = 0; n < 20; n += 1) {
    await view.append(unkeyed('a', n));
    positions.push(view.position);
  }
  for (let round = 0; round < 3; round += 1) {
    const caught = await Promise.all(positions.map((position) => store.catchUp(position)));
    t.same(
      caught.map(({ records }) => records.length),
      positions.map((_, n) => 20 - n),
    );
  }
});

t.test('answers that arrive in pieces are put together', async (t) => {
  const { url } = await cluster.database();
  const proxy = await TcpProxy.start(cluster.server);
  t.teardown(() => proxy.stop());
  const writer = await View.replay(openStore(t, url), ['a', 'b']);
  const reader = await View.replay(openStore(t, proxy.urlOf(url)), ['a', 'b']);
  await reader.catchUp();
  const applied: StoredRecord[] = [];
  for (const bytes of [1, 2, 7, 40, 1_000]) {
    proxy.crumble(bytes);
    const bodies = Array.from({ length: 9 }, (_, n) => `${bytes} ${n} äöü`);
    await writer.append(...bodies.map((text) => unkeyed('a', text)));
    applied.push(...(await reader.catchUp()));
    const caught = await Promise.all(Array.from({ length: 5 }, () => reader.catchUp()));
    t.same(caught.flat(), []);
  }
  t.same(
    applied.map(({ id, body }) => [id, body]),
    writer.applied.map(({ id, body }) => [id, body]),
  );
});

t.test(
  'a table that is not there is another schema, and no answer is mixed up after it',
  async (t) => {
    const { url, sql } = await cluster.database();
    const view = await View.replay(openStore(t, url), ['a']);
    await view.catchUp();
    await sql('ALTER TABLE halo_journal RENAME TO elsewhere');
    const codes = await Promise.all([1, 2, 3].map(() => codeOf(() => view.catchUp())));
    t.equal(codes[0], 'incompatible');
    await sql('ALTER TABLE elsewhere RENAME TO halo_journal');
    await until('the reader is back', () => view.catchUp().then(() => true));
    await view.append(unkeyed('a', 1));
  },
);

t.test('a reader whose server process is ended says so at once and connects anew', async (t) => {
  const { url, sql, name } = await cluster.database();
  const view = await View.replay(openStore(t, url), ['a']);
  await view.catchUp();
  await sql(`SELECT pg_terminate_backend(pid) FROM pg_stat_activity
    WHERE datname = '${name}' AND usename = 'halo_serving'`);
  await until('the reader is back', () => view.catchUp().then(() => true));
  t.same(await view.catchUp(), []);
});
