import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import t, { type Test } from 'tap';
import { HttpConnections } from '../load/http-connections.js';
import { allAnswered, nowMs, OpenLoop } from '../load/open-loop.js';
import { LatencyHistogram, percentileOf, seededFractions } from '../load/statistics.js';

type Answer = (request: IncomingMessage, response: ServerResponse) => void;

async function serve(t: Test, answer: Answer): Promise<URL> {
  const server = createServer(answer);
  server.listen(0, '127.0.0.1');
  await new Promise((resolve) => server.once('listening', resolve));
  t.teardown(() => server.closeAllConnections());
  t.teardown(() => server.close());
  return new URL(`http://127.0.0.1:${(server.address() as AddressInfo).port}`);
}

const GET = 'GET /a HTTP/1.1\r\nhost: test\r\n\r\n';

t.test('requests are due evenly, whatever a timer can do', async (t) => {
  const due: number[] = [];
  const loop = new OpenLoop(1_000, (dueMs) => due.push(dueMs));
  const startedMs = nowMs();
  await loop.run(300);
  t.equal(due.length, 300);
  t.ok(nowMs() - startedMs >= 299, 'it takes as long as it should');
  const first = due[0]!;
  t.ok(due.every((dueMs, index) => Math.abs(dueMs - first - index) < 1e-3));
  t.equal(loop.late.count, 300, 'how late it was itself is known of each');
  const slow = new OpenLoop(100, () => {
    const endMs = nowMs() + 30;
    while (nowMs() < endMs);
  });
  await slow.run(100);
  t.ok(slow.late.max > 100_000, `${slow.late.max} µs: ten times 30 ms do not fit into 100 ms`);
});

t.test('a server that stands still is charged with all that was due meanwhile', async (t) => {
  let asked = 0;
  const url = await serve(t, (_request, response) => {
    asked += 1;
    if (asked === 100) {
      const endMs = Date.now() + 300;
      while (Date.now() < endMs);
    }
    response.end('ok');
  });
  const connections = new HttpConnections(url, 4);
  t.teardown(() => connections.stop());
  await connections.fill();
  const latency = new LatencyHistogram();
  let out = 0;
  const loop = new OpenLoop(400, (dueMs) => {
    out += 1;
    connections.send({
      text: () => GET,
      answered: ({ status }) => {
        out -= 1;
        t.equal(status, 200);
        latency.record((nowMs() - dueMs) * 1000);
      },
    });
  });
  await loop.run(1_000);
  await allAnswered(() => out);
  t.equal(latency.count, 400);
  // 120 requests were due within 300 ms: half of them waited for more than half of it.
  t.ok(latency.percentile(84) > 100_000, `p84 is ${latency.percentile(84)} µs`);
});

t.test('an answer in any number of pieces is read whole, and the connection kept', async (t) => {
  const ports = new Set<number | undefined>();
  const url = await serve(t, (request, response) => {
    ports.add(request.socket.remotePort);
    response.setHeader('content-length', '10');
    response.write('01234');
    setTimeout(() => response.end('56789'), 5);
  });
  const connections = new HttpConnections(url, 1);
  t.teardown(() => connections.stop());
  const bodies: string[] = [];
  for (let index = 0; index < 3; index += 1) {
    connections.send({ text: () => GET, answered: ({ body }) => bodies.push(body) });
  }
  t.equal(connections.inLine, 2, 'one is out, the others wait');
  await allAnswered(() => 3 - bodies.length);
  t.same(bodies, ['0123456789', '0123456789', '0123456789']);
  t.equal(ports.size, 1);
});

t.test('a connection that breaks is no answer, and another one goes on', async (t) => {
  let asked = 0;
  const url = await serve(t, (request, response) => {
    asked += 1;
    if (asked === 1) request.socket.destroy();
    else response.end('ok');
  });
  const connections = new HttpConnections(url, 1);
  t.teardown(() => connections.stop());
  const statuses: number[] = [];
  for (let index = 0; index < 2; index += 1) {
    connections.send({ text: () => GET, answered: ({ status }) => statuses.push(status) });
  }
  await allAnswered(() => 2 - statuses.length);
  t.same(statuses, [0, 200]);
});

t.test('a seed repeats its fractions, and percentiles are values that were seen', async (t) => {
  const [one, same, other] = [seededFractions(7), seededFractions(7), seededFractions(8)];
  const drawn = Array.from({ length: 100 }, () => one());
  t.same(
    Array.from({ length: 100 }, () => same()),
    drawn,
  );
  t.not(other(), drawn[0]);
  t.ok(drawn.every((fraction) => fraction >= 0 && fraction < 1));
  t.equal(percentileOf([3, 1, 2], 50), 2);
  t.equal(percentileOf([3, 1, 2], 99), 3);
  t.ok(Number.isNaN(percentileOf([], 50)));
});
