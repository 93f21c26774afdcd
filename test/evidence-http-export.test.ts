/** The export over HTTP: as fast as the client takes it, and never mistaken for whole when cut. */
import { type IncomingMessage, request } from 'node:http';
import { connect, type Socket } from 'node:net';
import t, { type Test } from 'tap';
import { type Clock, systemClock } from '../src/runtime/clock.js';
import { failure } from '../src/runtime/failure.js';
import { ChainBuilder } from './fixtures/evidence-chains.js';
import { call } from './fixtures/http-client.js';
import {
  ADMIN_TOKEN,
  type Asked,
  type Front,
  type FrontSetup,
  startFront,
  until,
} from './fixtures/http-front.js';

const PATH = '/api/v1/audit/export';

async function open(t: Test, setup: FrontSetup = {}): Promise<Front> {
  const front = await startFront(setup);
  t.teardown(() => front.close());
  return front;
}

/** A chain of large records without an end in sight; its pages take no memory until asked for. */
function longChain(records: number): (asked: Asked) => { answer: unknown } {
  const text = JSON.stringify({ note: 'x'.repeat(100_000) });
  const record = (seq: number): object => ({ seq, ref: 'r', prevHash: 'p', hash: 'h', text });
  return ({ kind, payload }) => {
    if (kind === 'checkpoint') return { answer: record(records) };
    const { afterSeq, limit } = payload as { afterSeq: number; limit: number };
    const count = Math.min(limit, records - afterSeq);
    const page = Array.from({ length: count }, (_, index) => record(afterSeq + 1 + index));
    return { answer: page };
  };
}

function pagesAsked(front: Front): number {
  return front.audit.asked.filter(({ kind }) => kind === 'records').length;
}

/** A client that reads nothing until it is told to. */
async function unreadExport(t: Test, { port }: Front): Promise<Socket> {
  const socket = connect(port, '127.0.0.1');
  socket.on('error', () => undefined);
  t.teardown(() => socket.destroy());
  socket.pause();
  socket.write(`GET ${PATH} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer ${ADMIN_TOKEN}\r\n\r\n`);
  return socket;
}

/** Resolves when the number of pages has not changed for a while; that is the number. */
async function settledPages(front: Front): Promise<number> {
  let pages = -1;
  let sinceMs = Date.now();
  await until(() => {
    if (pagesAsked(front) !== pages) {
      pages = pagesAsked(front);
      sinceMs = Date.now();
    }
    return pages > 0 && Date.now() - sinceMs > 300;
  }, 10_000);
  return pages;
}

t.test('the export is the chain, line for line, and ends in a fresh checkpoint', async (t) => {
  const front = await open(t);
  const lines = new ChainBuilder().addSome(6).checkpoint().lines;
  const answer = await call(front.url, 'GET', PATH, { bearer: ADMIN_TOKEN });
  t.equal(answer.status, 200);
  t.equal(answer.text, lines.map((line) => `${line}\n`).join(''));
  t.match(answer.headers, {
    'content-type': 'application/x-ndjson',
    'content-disposition': 'attachment; filename="evidence.jsonl"',
    'cache-control': 'no-store',
    'x-request-id': String,
  });
  t.notOk('etag' in answer.headers);
  t.same(front.audit.last('checkpoint')?.payload, { by: { type: 'admin', id: 'root' } });
});

t.test('only who may read evidence may export it', async (t) => {
  const front = await open(t);
  t.equal((await call(front.url, 'GET', PATH)).status, 401);
  t.equal((await call(front.url, 'GET', PATH, { bearer: 'x'.repeat(40) })).status, 401);
  t.equal(front.audit.asked.length, 0);
});

t.test('HEAD tells what would come and states no checkpoint', async (t) => {
  const front = await open(t);
  const answer = await call(front.url, 'HEAD', PATH, { bearer: ADMIN_TOKEN });
  t.equal(answer.status, 200);
  t.equal(answer.headers['content-type'], 'application/x-ndjson');
  t.notOk('content-length' in answer.headers);
  t.equal(front.audit.asked.length, 0);
});

t.test('a client that does not read holds up nothing but itself', async (t) => {
  const records = 2_000;
  const front = await open(t, { audit: longChain(records) });
  const socket = await unreadExport(t, front);
  const pages = await settledPages(front);
  // What the kernel takes for the two sockets, and two pages of 6.4 MB.
  t.ok(pages <= 5, `${pages} pages of 32 are read ahead`);
  t.equal((await call(front.url, 'GET', '/healthz')).status, 200);
  let bytes = 0;
  let end = '';
  socket.on('data', (chunk: Buffer) => {
    bytes += chunk.length;
    end = (end + chunk.toString('latin1')).slice(-8);
  });
  socket.resume();
  await until(() => end.endsWith('\r\n0\r\n\r\n'), 30_000);
  t.ok(bytes > records * 100_000, 'all of it came');
});

t.test('nothing more is read for a client that went away', async (t) => {
  const front = await open(t, { audit: longChain(100_000) });
  const socket = await unreadExport(t, front);
  await settledPages(front);
  const before = pagesAsked(front);
  socket.destroy();
  const snapshot = (): number => front.server.snapshot().inFlight;
  await until(() => snapshot() === 0);
  t.ok((await settledPages(front)) <= before + 1);
});

t.test('a client that takes nothing for ten seconds is given up', async (t) => {
  let addedMs = 0;
  const clock: Clock = {
    ...systemClock,
    monotonicMs: () => systemClock.monotonicMs() + addedMs,
  };
  const front = await open(t, { audit: longChain(100_000), clock });
  await unreadExport(t, front);
  await settledPages(front);
  addedMs = 9_000;
  await settledPages(front);
  t.equal(front.server.snapshot().inFlight, 1, 'not before');
  addedMs = 10_500;
  await until(() => front.server.snapshot().inFlight === 0, 2_000);
});

t.test('an export that is under way when the server drains is cut, visibly', async (t) => {
  const front = await open(t, { audit: longChain(100_000) });
  const socket = await unreadExport(t, front);
  await settledPages(front);
  let text = '';
  socket.on('data', (chunk: Buffer) => {
    text = (text + chunk.toString('latin1')).slice(-64);
  });
  const closed = new Promise((resolve) => socket.once('close', resolve));
  const startMs = Date.now();
  front.server.stopAccepting();
  await front.server.drain(10_000);
  t.ok(Date.now() - startMs < 3_000, 'the drain does not wait for the client');
  socket.resume();
  await closed;
  t.notMatch(text, /\r\n0\r\n\r\n$/, 'no last chunk');
});

t.test('a client library reports a cut export as an error', async (t) => {
  const chain = longChain(100_000);
  const front = await open(t, {
    audit: (asked) =>
      asked.kind === 'records' && (asked.payload as { afterSeq: number }).afterSeq > 200
        ? { answer: failure('store_unavailable') }
        : chain(asked),
  });
  await t.rejects(call(front.url, 'GET', PATH, { bearer: ADMIN_TOKEN }), { code: 'ECONNRESET' });
  t.match(front.log.text(), /An answer was cut off/);
});

t.test('what fails before the first line is a problem like any other', async (t) => {
  const rewound = failure('chain_rewound', 'the chain lacks the published checkpoint 7');
  const front = await open(t, { audit: () => ({ answer: rewound }) });
  const answer = await call(front.url, 'GET', PATH, { bearer: ADMIN_TOKEN });
  t.equal(answer.status, 409);
  t.match(answer.json, { code: 'chain_rewound', detail: rewound.detail });
});

t.test('two exports at once, and no more', async (t) => {
  const front = await open(t, { audit: longChain(100_000) });
  const sockets = [await unreadExport(t, front), await unreadExport(t, front)];
  await settledPages(front);
  const refused = await call(front.url, 'GET', PATH, { bearer: ADMIN_TOKEN });
  t.equal(refused.status, 503);
  t.match(refused.json, { code: 'overloaded', retryable: true });
  sockets[0]?.destroy();
  const answer = await new Promise<IncomingMessage>((resolve) => {
    const again = (): void => {
      const headers = { authorization: `Bearer ${ADMIN_TOKEN}` };
      request(`${front.url}${PATH}`, { headers, agent: false }, (incoming) => {
        if (incoming.statusCode === 200) resolve(incoming);
        else incoming.resume().once('end', again);
      }).end();
    };
    again();
  });
  t.equal(answer.statusCode, 200, 'as soon as one of them is gone');
  answer.destroy();
  t.equal(front.audit.asked.length > 0, true);
});
