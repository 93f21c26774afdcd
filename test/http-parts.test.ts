/** The parts of the front end that are plain functions: names, addresses, traces, tags, JSON. */
import fc from 'fast-check';
import t from 'tap';
import { digestOf } from '../src/actors/secrets.js';
import { AdminTokens, bearerCredential } from '../src/http/authorization.js';
import { ClientAddresses } from '../src/http/client-address.js';
import { cursorText, parseCursor } from '../src/http/cursor.js';
import { entityTag, matchesEntityTag } from '../src/http/entity-tag.js';
import { canonicalJson, parseJsonBody } from '../src/http/json-body.js';
import { HttpProblem } from '../src/http/problem-details.js';
import { isSaneRequestId, RequestIds } from '../src/http/request-id.js';
import { type Response, writeResponse } from '../src/http/response.js';
import { Router } from '../src/http/router.js';
import { ROUTES } from '../src/http/routes.js';
import { parseTraceparent } from '../src/http/trace-context.js';
import { TurnClock } from '../src/http/turn-clock.js';
import { canonicalUser, headerEncoded } from '../src/http/user-name.js';
import { systemClock } from '../src/runtime/clock.js';
import { seededRandom } from '../src/runtime/random.js';

t.test('a user name has one form, which making canonical again does not change', (t) => {
  for (const [given, canonical] of [
    ['Alice', 'alice'],
    ['  Alice\t', 'alice'],
    ['A\u030akE', 'åke'],
    ['J\u030c', 'ǰ'],
    ['ÅNGSTRÖM', 'ångström'],
    ['a  b', 'a  b'],
  ] as const) {
    t.equal(canonicalUser(given), canonical);
  }
  fc.assert(
    fc.property(fc.string({ unit: 'binary' }), (text) => {
      const once = canonicalUser(text);
      return (
        canonicalUser(once) === once && canonicalUser(text.toUpperCase().toLowerCase()) !== '\n'
      );
    }),
    { numRuns: 2000 },
  );
  t.end();
});

t.test('what travels in a header is visible ASCII and decodes to what was meant', (t) => {
  fc.assert(
    fc.property(fc.string({ unit: 'grapheme' }), (text) => {
      const encoded = headerEncoded(text);
      return /^[!-~]*$/.test(encoded) && decodeURIComponent(encoded) === text;
    }),
    { numRuns: 2000 },
  );
  t.equal(headerEncoded('a%b c'), 'a%25b%20c');
  t.end();
});

const bytes = (...parts: number[]): ArrayBuffer => new Uint8Array(parts).buffer;
const IPV6 = bytes(0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1);
const MAPPED = bytes(0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, 0, 1);
const PROXY = bytes(10, 0, 0, 1);
const none = { forwarded: '', xForwardedFor: '' };

t.test('without trusted proxies the client is the socket, whatever headers say', (t) => {
  const addresses = new ClientAddresses([]);
  const forged = { forwarded: 'for=1.2.3.4', xForwardedFor: '1.2.3.4' };
  t.equal(addresses.believesHeaders, false);
  t.equal(addresses.of(PROXY, forged), '10.0.0.1');
  t.equal(addresses.of(MAPPED, forged), '10.0.0.1', 'mapped IPv4 is IPv4');
  t.equal(addresses.of(IPV6, none), '2001:db8::1');
  t.equal(addresses.of(new ArrayBuffer(0), none), 'unknown');
  t.end();
});

t.test('behind trusted proxies the client is the right-most hop that is none of them', (t) => {
  const addresses = new ClientAddresses(['10.0.0.0/8', '2001:db8::/32', '192.0.2.7']);
  for (const [xForwardedFor, client] of [
    ['203.0.113.7', '203.0.113.7'],
    ['1.1.1.1, 203.0.113.7', '203.0.113.7'],
    ['203.0.113.7, 10.9.9.9, 192.0.2.7', '203.0.113.7'],
    ['10.9.9.9', '10.9.9.9'],
    ['203.0.113.7:4711, 10.1.1.1:80', '203.0.113.7'],
    ['[2001:db9::7]:443', '2001:db9::7'],
    ['::ffff:203.0.113.7', '203.0.113.7'],
    ['203.0.113.7, nonsense, 10.2.2.2', '10.2.2.2'],
    ['unknown', '10.0.0.1'],
    ['', '10.0.0.1'],
    ['203.0.113.7,', '10.0.0.1'],
    ['0x7f.1', '10.0.0.1'],
    ['127.1', '10.0.0.1'],
  ] as const) {
    t.equal(addresses.of(PROXY, { ...none, xForwardedFor }), client, xForwardedFor);
  }
  t.equal(addresses.of(bytes(8, 8, 8, 8), { ...none, xForwardedFor: '1.1.1.1' }), '8.8.8.8');
  for (const [forwarded, client] of [
    ['for=203.0.113.7;proto=https', '203.0.113.7'],
    ['For="[2001:db9::7]:443", for=10.1.1.1;by=x', '2001:db9::7'],
    ['for=_hidden, for=10.1.1.1', '10.1.1.1'],
    ['proto=https', '10.0.0.1'],
  ] as const) {
    t.equal(addresses.of(PROXY, { ...none, forwarded }), client, forwarded);
    const both = { forwarded, xForwardedFor: '203.0.113.7' };
    t.equal(addresses.of(PROXY, both), '10.0.0.1', `${forwarded}, and the other header too`);
  }
  const many = `203.0.113.7${', 10.1.1.1'.repeat(40)}`;
  t.equal(addresses.of(PROXY, { ...none, xForwardedFor: many }), '10.1.1.1', 'bounded');
  for (const wrong of ['x', '10.0.0.0/33', '::/129', '10.0.0.0/-1', '', '300.1.1.1']) {
    t.throws(() => new ClientAddresses([wrong]), { message: `not an address or a CIDR: ${wrong}` });
  }
  t.end();
});

t.test('only a valid traceparent is believed', (t) => {
  const trace = '0af7651916cd43dd8448eb211c80319c';
  const parent = 'b7ad6b7169203331';
  t.same(parseTraceparent(`00-${trace}-${parent}-01`), {
    traceId: trace,
    parentId: parent,
    sampled: true,
  });
  t.equal(parseTraceparent(`00-${trace}-${parent}-00`)?.sampled, false);
  t.equal(parseTraceparent(`01-${trace}-${parent}-01-more`)?.traceId, trace, 'a later version');
  for (const wrong of [
    '',
    `ff-${trace}-${parent}-01`,
    `00-${trace}-${parent}-01-more`,
    `00-${'0'.repeat(32)}-${parent}-01`,
    `00-${trace}-${'0'.repeat(16)}-01`,
    `00-${trace.toUpperCase()}-${parent}-01`,
    `00-${trace}-${parent}`,
    ` 00-${trace}-${parent}-01`,
    `00-${trace}-${parent}-01\r\nx: y`,
  ]) {
    t.equal(parseTraceparent(wrong), undefined, JSON.stringify(wrong));
  }
  t.end();
});

t.test('request ids are ours unless the caller’s is sane', (t) => {
  const ids = new RequestIds(seededRandom(1));
  t.equal(ids.for('edge-1'), 'edge-1');
  for (const odd of ['', 'a b', 'a\r\nb', '"', '<x>', 'é', 'x'.repeat(129)]) {
    t.equal(isSaneRequestId(odd), false);
    t.match(ids.for(odd), /^[0-9a-f]{12}-[0-9a-z]+$/);
  }
  t.not(ids.next(), ids.next());
  t.not(new RequestIds(seededRandom(2)).next(), new RequestIds(seededRandom(3)).next());
  t.end();
});

t.test('a credential is what follows the bearer scheme, and nothing else', (t) => {
  t.equal(bearerCredential('Bearer abc'), 'abc');
  t.equal(bearerCredential('bEARER   abc'), 'abc');
  for (const none of ['', 'Bearer', 'bearer ']) t.equal(bearerCredential(none), undefined);
  for (const odd of ['Basic abc', 'Bearerabc', 'Bearer a b', 'abc', ' Bearer abc']) {
    t.equal(bearerCredential(odd), '', odd);
  }
  t.end();
});

t.test('an administrator is known by the token alone, the first name winning', (t) => {
  const tokens = new AdminTokens([
    { name: 'a', digest: digestOf('one') },
    { name: 'b', digest: digestOf('two') },
    { name: 'c', digest: digestOf('one') },
    { name: 'broken', digest: '' },
  ]);
  t.equal(tokens.nameOf('one'), 'a');
  t.equal(tokens.nameOf('two'), 'b');
  for (const unknown of ['', 'three', digestOf('one')]) t.equal(tokens.nameOf(unknown), undefined);
  t.equal(new AdminTokens([]).nameOf(''), undefined);
  t.end();
});

t.test('a cursor is read back as it was written', (t) => {
  for (const after of [1, 7, 500, Number.MAX_SAFE_INTEGER]) {
    const cursor = { epoch: '0123456789abcdef', after };
    t.same(parseCursor(cursorText(cursor)), cursor);
  }
  fc.assert(
    fc.property(fc.string(), (text) => {
      try {
        return cursorText(parseCursor(text)) === text;
      } catch (error) {
        return error instanceof HttpProblem && error.code === 'cursor_invalid';
      }
    }),
  );
  t.end();
});

t.test('equal bodies have equal tags, and If-None-Match is a list', (t) => {
  const tag = entityTag('body');
  t.equal(entityTag('body'), tag);
  t.not(entityTag('body '), tag);
  for (const match of [tag, ` ${tag} `, `W/${tag}`, `"a", W/${tag}`, '*']) {
    t.ok(matchesEntityTag(match, tag), match);
  }
  for (const other of ['', '"a"', tag.slice(1, -1), `"${tag}"`, 'W/*']) {
    t.notOk(matchesEntityTag(other, tag), other);
  }
  t.end();
});

t.test('JSON that is valid and unambiguous is read as JSON.parse reads it', (t) => {
  fc.assert(
    fc.property(fc.json(), (text) => {
      try {
        return canonicalJson(parseJsonBody(Buffer.from(text))) === canonicalJson(JSON.parse(text));
      } catch (error) {
        return error instanceof HttpProblem && text.includes('__proto__');
      }
    }),
    { numRuns: 2000 },
  );
  for (const text of [
    '{"a":{"b":1},"b":{"b":2}}',
    '[{"a":1},{"a":1}]',
    '{"a":"a","b":"\\"a\\":"}',
  ]) {
    t.same(parseJsonBody(Buffer.from(text)), JSON.parse(text));
  }
  for (const text of ['{"a":1,"a":1}', '[[{"x":[],"x":[]}]]', '{"a":1 , "\\u0061" : 2}']) {
    t.throws(() => parseJsonBody(Buffer.from(text)), { code: 'body_invalid_json' }, text);
  }
  t.equal(
    canonicalJson({ b: [1, { d: null, c: undefined }], a: 'x' }),
    '{"a":"x","b":[1,{"d":null}]}',
  );
  t.end();
});

t.test('a header value with a line break is never written', (t) => {
  const touched: string[] = [];
  const res = new Proxy({}, { get: (_target, name) => touched.push(String(name)) });
  for (const value of ['a\r\nb: c', 'a\nb', 'a\rb', 'ä', '\u0000']) {
    const response: Response = {
      status: 200,
      headers: { x: value },
      body: '',
      head: false,
      close: false,
    };
    t.throws(() => writeResponse(res as never, response, () => undefined), /header value/);
  }
  t.same(touched, [], 'nothing of it was written');
  t.end();
});

t.test('a long answer is written in pieces, and goes on where the socket stopped', (t) => {
  const written: number[] = [];
  let accepted = 0;
  let resume = (_offset: number): boolean => false;
  const body = 'é'.repeat(50_000);
  const res = {
    cork: (write: () => void) => write(),
    writeStatus: () => res,
    writeHeader: () => res,
    getWriteOffset: () => accepted,
    onWritable: (handler: (offset: number) => boolean) => {
      resume = handler;
    },
    tryEnd: (piece: Buffer, total: number) => {
      t.equal(total, 100_000);
      t.ok(piece.length <= 16 * 1024, 'no piece is larger than the cork buffer');
      // Every other piece, the socket takes only a part.
      const taken = written.length % 2 === 0 ? piece.length : 1000;
      written.push(taken);
      accepted += taken;
      return [taken === piece.length, accepted === total];
    },
  };
  let sent = 0;
  const response = { status: 200, headers: {}, body, head: false, close: false };
  writeResponse(res as never, response, () => {
    sent += 1;
  });
  for (let turns = 0; sent === 0 && turns < 50; turns += 1) resume(accepted);
  t.equal(sent, 1);
  t.equal(accepted, 100_000);
  t.end();
});

t.test('two routes for one method and path are a mistake that shows at start', (t) => {
  t.throws(() => new Router([...ROUTES, ...ROUTES.slice(0, 1)]), /two routes/);
  const router = new Router(ROUTES);
  t.equal(router.match('POST', '/api/v1/enrollment-tokens/void')?.template.includes('{'), false);
  t.same(router.match('GET', '/api/v1/devices/a%2Fb')?.parameters, { id: 'a%2Fb' });
  t.equal(router.match('HEAD', '/healthz')?.route?.operationId, 'health');
  t.equal(router.match('get', '/healthz')?.route, undefined);
  t.end();
});

t.test('the clock of a turn is read once in a turn, and again when it matters', async (t) => {
  let reads = 0;
  const clock = new TurnClock({
    ...systemClock,
    monotonicMs: () => {
      reads += 1;
      return reads;
    },
  });
  t.equal(clock.nowMs(), clock.nowMs());
  t.equal(reads, 1);
  const precise = clock.preciselyMs();
  t.equal(precise, 2);
  t.equal(clock.nowMs(), 2, 'never behind what was read');
  await new Promise((resolve) => setImmediate(() => setImmediate(resolve)));
  t.equal(clock.nowMs(), 3);
});
