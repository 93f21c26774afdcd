/**
 * A body whose length came twice: whoever is in front may take the other length, and would take
 * the answer to what is hidden in the body for that to somebody else's request.
 */
import { connect } from 'node:net';
import t from 'tap';
import { rawRequest } from './fixtures/http-client.js';
import { CREDENTIAL, startFront } from './fixtures/http-front.js';

const HIDDEN = 'GET /healthz HTTP/1.1\r\nHost: x\r\nX-Request-Id: hidden\r\n\r\n';
const JSON_TYPE = 'Content-Type: application/json\r\n';
const BEARER = `Authorization: Bearer ${CREDENTIAL}\r\n`;

/** Sends the first piece, the second once the first was answered, and reads to the end. */
function inTwoPieces(
  port: number,
  first: string,
  second: string,
): Promise<{ text: string; closed: boolean }> {
  return new Promise((resolve) => {
    const socket = connect(port, '127.0.0.1');
    let text = '';
    const timer = setTimeout(() => finish(false), 2_000);
    function finish(closed: boolean): void {
      clearTimeout(timer);
      socket.destroy();
      resolve({ text, closed });
    }
    socket.on('data', (chunk) => {
      if (text === '') socket.write(second);
      text += chunk.toString('latin1');
    });
    socket.on('close', () => finish(true));
    socket.on('error', () => undefined);
    socket.write(first);
  });
}

const REQUESTS: readonly (readonly [string, string])[] = [
  ['POST /api/v1/enroll', JSON_TYPE],
  ['POST /api/v1/auth/device', BEARER],
  ['GET /api/v1/auth/device/below', BEARER],
  ['POST /no/such/route', ''],
  ['PUT /healthz', ''],
  ['GET /healthz', ''],
];

for (const [line, headers] of REQUESTS) {
  t.test(`${line} closes the connection when its length comes twice`, async (t) => {
    const front = await startFront();
    t.teardown(() => front.close());
    for (const [first, second] of [
      [2, 2 + HIDDEN.length],
      [2 + HIDDEN.length, 2],
      [2, 2],
    ] as const) {
      const lengths = `Content-Length: ${first}\r\nContent-Length: ${second}\r\n`;
      const head = `${line} HTTP/1.1\r\nHost: x\r\n${headers}${lengths}\r\n{}`;
      for (const [together, later] of [
        [head + HIDDEN, ''],
        [head, HIDDEN],
      ] as const) {
        const { text, closed } = await inTwoPieces(front.port, together, later);
        t.ok(closed, `${first} and ${second}: closed`);
        t.notMatch(text, /hidden/, 'what is hidden is never answered');
        t.ok(text === '' || text.startsWith('HTTP/1.1 400'), text.slice(0, 12));
      }
    }
  });
}

t.test('a length that comes once keeps the connection', async (t) => {
  const front = await startFront();
  t.teardown(() => front.close());
  const line = 'POST /api/v1/auth/device HTTP/1.1\r\nHost: x\r\n';
  const bytes = `${line}${BEARER}Content-Length: 2\r\n\r\n{}`;
  const { text, closed } = await rawRequest(front.port, bytes);
  t.match(text, /^HTTP.1.1 200/);
  t.notOk(closed);
});
