/** Readiness, draining and closing: nobody who was let in is cut off, and nothing is left over. */
import { connect, type Socket } from 'node:net';
import t from 'tap';
import { packAllowed } from '../src/actors/devices/messages.js';
import { systemClock, type Timer } from '../src/runtime/clock.js';
import { call } from './fixtures/http-client.js';
import { ADMIN_TOKEN, CREDENTIAL, DEVICE_ID, startFront, until } from './fixtures/http-front.js';

const get = (path: string, bearer: string): string =>
  `GET ${path} HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer ${bearer}\r\n\r\n`;
const AUTHENTICATE = get('/api/v1/auth/device', CREDENTIAL);
const LIST = get('/api/v1/devices', ADMIN_TOKEN);

interface Connection {
  readonly socket: Socket;
  text(): string;
  isClosed(): boolean;
}

function open(port: number): Connection {
  const socket = connect(port, '127.0.0.1');
  let text = '';
  let closed = false;
  socket.on('data', (chunk) => {
    text += chunk.toString('latin1');
  });
  socket.on('close', () => {
    closed = true;
  });
  socket.on('error', () => undefined);
  return { socket, text: () => text, isClosed: () => closed };
}

t.test('readiness is said with its reasons, and health never depends on it', async (t) => {
  const front = await startFront();
  t.teardown(() => front.close());
  t.match(await call(front.url, 'GET', '/readyz'), { status: 200, json: { status: 'ready' } });
  front.server.setReadiness({ ready: false, reasons: ['the store cannot be written'] });
  const answer = await call(front.url, 'GET', '/readyz');
  t.match(answer, {
    status: 503,
    headers: { 'retry-after': '1', 'content-type': 'application/problem+json' },
    json: { code: 'not_ready', reasons: ['the store cannot be written'], retryable: true },
  });
  t.match(await call(front.url, 'HEAD', '/readyz'), { status: 503, text: '' });
  t.match(await call(front.url, 'GET', '/healthz'), { status: 200, json: { status: 'ok' } });
  front.server.setReadiness({ ready: true, reasons: [] });
  t.equal((await call(front.url, 'GET', '/readyz')).status, 200);
});

t.test('a server that was told nothing yet is not ready', async (t) => {
  const front = await startFront({ readiness: 'untold' });
  t.teardown(() => front.close());
  t.match(await call(front.url, 'GET', '/readyz'), {
    status: 503,
    json: { reasons: ['starting'] },
  });
});

t.test('an answer that its client does not hang up on holds the drain no longer', async (t) => {
  const front = await startFront({ respond: () => undefined });
  t.teardown(() => front.close());
  // It hears the end of the answer, and keeps its own side of the connection open.
  const socket = connect({ port: front.port, host: '127.0.0.1', allowHalfOpen: true });
  t.teardown(() => socket.destroy());
  socket.write(AUTHENTICATE);
  socket.resume();
  await until(() => front.actor.asked.length === 1);
  const draining = front.server.drain(20_000);
  await new Promise(setImmediate);
  front.actor.asked[0]?.sink.answered(packAllowed(DEVICE_ID, 'ann'), 0);
  const answeredMs = Date.now();
  await draining;
  t.ok(Date.now() - answeredMs < 10_000, 'only as long as a request may be on its way');
});

t.test('what is in flight is answered before the connection is closed', async (t) => {
  const pausesMs: number[] = [];
  const schedule = (callback: () => void, delayMs: number): Timer => {
    pausesMs.push(delayMs);
    return systemClock.schedule(callback, delayMs);
  };
  const clock = { ...systemClock, schedule };
  const front = await startFront({ respond: () => undefined, clock });
  t.teardown(() => front.close());
  const waiting = [open(front.port), open(front.port), open(front.port)];
  waiting[0]?.socket.write(AUTHENTICATE);
  waiting[1]?.socket.write(LIST);
  waiting[2]?.socket.write(AUTHENTICATE.replace('GET', 'HEAD'));
  await until(() => front.actor.asked.length === 3);
  front.server.stopAccepting();
  let drained = false;
  const draining = front.server.drain(5000).then(() => {
    drained = true;
  });
  await until(() => pausesMs.length > 3);
  t.equal(drained, false, 'it waits for what is in flight');
  t.ok(Math.min(...pausesMs) >= 50, `without looking again and again: ${pausesMs}`);
  for (const { kind, sink } of front.actor.asked) {
    const view = { items: [], epoch: '0123456789abcdef' };
    sink.answered(kind === 'list' ? view : packAllowed(DEVICE_ID, 'ann'), 0);
  }
  const answeredMs = Date.now();
  await draining;
  t.ok(Date.now() - answeredMs < 2_000, 'and for nothing else');
  await until(() => waiting.every(({ text }) => text().includes('\r\n\r\n')));
  for (const connection of waiting) {
    t.match(connection.text(), /^HTTP\/1\.1 200 OK/);
    t.match(connection.text().toLowerCase(), 'connection: close');
  }
  await until(() => waiting.slice(0, 2).every((connection) => connection.isClosed()));
  front.server.close();
  await until(() => waiting.every((connection) => connection.isClosed()));
});

t.test('while draining, a kept connection is answered once more and then closed', async (t) => {
  const front = await startFront();
  t.teardown(() => front.close());
  const kept = open(front.port);
  kept.socket.write(AUTHENTICATE);
  await until(() => kept.text().includes('"user":"ann"'));
  t.notMatch(kept.text().toLowerCase(), 'connection: close');
  front.server.stopAccepting();
  await front.server.drain(1000);
  kept.socket.write(LIST);
  await until(() => kept.isClosed());
  t.match(kept.text(), /HTTP\/1\.1 200 OK.*HTTP\/1\.1 200 OK/s);
});

t.test('what was sent before anybody could know is answered, and then closed', async (t) => {
  const front = await startFront();
  t.teardown(() => front.close());
  const kept = [open(front.port), open(front.port), open(front.port)];
  for (const { socket } of kept) socket.write(AUTHENTICATE);
  await until(() => kept.every(({ text }) => text().includes('"user":"ann"')));
  front.server.stopAccepting();
  const drained = front.server.drain(5000).then(() => front.server.close());
  // In the same turn: nothing of it can have been read when draining looks the first time.
  for (const { socket } of kept.slice(0, 2)) socket.write(LIST);
  await drained;
  await until(() => kept.every((connection) => connection.isClosed()));
  for (const { text } of kept.slice(0, 2)) {
    t.match(text(), /HTTP\/1\.1 200 OK.*HTTP\/1\.1 200 OK/s);
    t.match(text().toLowerCase(), 'connection: close');
  }
  t.notMatch(
    kept[2]?.text().toLowerCase(),
    'connection: close',
    'who asked nothing waits for nobody',
  );
});

t.test('draining ends at its deadline, whatever is still in flight', async (t) => {
  const front = await startFront({ respond: () => undefined });
  t.teardown(() => front.close());
  const stuck = open(front.port);
  stuck.socket.write(AUTHENTICATE);
  await until(() => front.actor.asked.length === 1);
  const startedMs = Date.now();
  await front.server.drain(100);
  t.ok(Date.now() - startedMs >= 95, 'not before the deadline');
  t.equal(front.server.snapshot().inFlight, 1);
  front.server.close();
  await until(() => stuck.isClosed());
  t.equal(front.server.snapshot().inFlight, 0);
  front.actor.asked[0]?.sink.answered(packAllowed(DEVICE_ID, 'ann'), 0);
});

t.test('after accepting stopped, nobody new gets in', async (t) => {
  const front = await startFront();
  t.teardown(() => front.close());
  front.server.stopAccepting();
  front.server.stopAccepting();
  await t.rejects(call(front.url, 'GET', '/healthz'), { code: 'ECONNREFUSED' });
});

t.test('close may come at any time and more than once; listen comes once', async (t) => {
  const front = await startFront();
  await t.rejects(front.server.listen(), /before/);
  front.close();
  front.close();
  front.server.stopAccepting();
  await front.server.drain(10);
  await t.rejects(front.server.listen(), /before/);
  t.equal(front.server.snapshot().inFlight, 0);
});

t.test('an address that is taken is an error that names it', async (t) => {
  const front = await startFront();
  t.teardown(() => front.close());
  await t.rejects(startFront({ options: { port: front.port } }), {
    message: `cannot listen on 127.0.0.1:${front.port}`,
  });
  await t.rejects(startFront({ options: { trustedProxies: ['10.0.0.0/33'] } }), /10\.0\.0\.0\/33/);
});

t.test('a mutation whose client went away is carried out and answered to nobody', async (t) => {
  const front = await startFront({ respond: () => undefined });
  t.teardown(() => front.close());
  const gone = open(front.port);
  const body = '{"reason":"lost"}';
  gone.socket.write(
    `POST /api/v1/devices/${DEVICE_ID}/revoke HTTP/1.1\r\nHost: a\r\n` +
      `Content-Type: application/json\r\nAuthorization: Bearer ${ADMIN_TOKEN}\r\n` +
      `Content-Length: ${body.length}\r\n\r\n${body}`,
  );
  await until(() => front.actor.asked.length === 1);
  gone.socket.destroy();
  await until(() => front.server.snapshot().inFlight === 0);
  front.actor.asked[0]?.sink.answered({ failure: 'overloaded' }, 0);
  await until(() => front.log.lines.length === 1);
  t.match(front.log.lines, [{ code: 'aborted', status: 0, method: 'POST' }]);
  t.match(front.server.snapshot(), { aborted: 1 });
});
