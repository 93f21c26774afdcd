/** Every route against wrong methods, types, shapes, sizes, encodings, headers and credentials. */
import t, { type Test } from 'tap';
import { PROBLEMS, type ProblemCode } from '../src/http/problems.js';
import { isJudgedAtTheDoor, problemsOf, type Route } from '../src/http/route.js';
import { ROUTES } from '../src/http/routes.js';
import { GOOD_BODIES, pathOf } from './fixtures/http-bodies.js';
import { call, type Received, rawRequest, type Sent } from './fixtures/http-client.js';
import {
  ADMIN_TOKEN,
  CREDENTIAL,
  type Front,
  freshSecret,
  secretsIn,
  startFront,
} from './fixtures/http-front.js';

const needsToken = (route: Route): boolean => isJudgedAtTheDoor(route.access);
const withBody = ROUTES.filter((route) => route.body !== undefined);

function send(front: Front, route: Route, sent: Sent = {}): Promise<Received> {
  const bearer = needsToken(route) ? { bearer: ADMIN_TOKEN } : {};
  return call(front.url, route.method, pathOf(route), { ...bearer, ...sent });
}

/** A problem that the route documents, with nothing of a secret in it. */
function isDocumented(t: Test, route: Route, answer: Received, code: ProblemCode): void {
  t.equal(answer.json?.code, code, `${route.operationId}: ${answer.text.slice(0, 200)}`);
  t.equal(answer.status, PROBLEMS[code].status);
  t.equal(answer.headers['content-type'], 'application/problem+json');
  t.equal(answer.headers['x-request-id'], answer.json?.requestId);
  t.ok(problemsOf(route).includes(code), `${route.operationId} documents ${code}`);
  t.same(secretsIn(answer.text), [], 'no secret comes back');
}

t.test('a method that a path does not have is 405 and names those it has', async (t) => {
  const front = await startFront();
  t.teardown(() => front.close());
  for (const path of new Set(ROUTES.map(({ path }) => path))) {
    const have = ROUTES.filter((route) => route.path === path).map(({ method }) => method);
    const allow = have.flatMap((method) => (method === 'GET' ? ['GET', 'HEAD'] : [method]));
    for (const method of ['GET', 'POST', 'PUT', 'PATCH', 'DELETE', 'OPTIONS', 'TRACE', 'FOO']) {
      if ((allow as string[]).includes(method)) continue;
      const answer = await call(front.url, method, pathOf({ path }, 'x'), {
        bearer: ADMIN_TOKEN,
      });
      t.match(answer, { status: 405, json: { code: 'method_not_allowed' } }, `${method} ${path}`);
      t.equal(answer.headers['allow'], allow.join(', '));
    }
  }
});

t.test('a path that no route has is 404, with or without a credential', async (t) => {
  const front = await startFront();
  t.teardown(() => front.close());
  const paths = [
    '/',
    '/api',
    '/api/v1/devices/',
    '/api/v1/devices//revoke/x',
    '//healthz',
    '/healthz/',
    '/HEALTHZ',
    '/api/v1/enroll%6C',
    '/api/v1/auth/devices',
    '/../healthz',
    '/api/v2/devices',
    `/${'x/'.repeat(200)}`,
    '/%ff',
    '/__proto__',
    '/constructor',
  ];
  for (const path of paths) {
    for (const sent of [{}, { bearer: ADMIN_TOKEN }]) {
      const answer = await call(front.url, 'GET', path, sent);
      t.match(answer, { status: 404, json: { code: 'route_unknown' } }, path);
    }
  }
});

const DEVICES_MAY_ASK = new Set<Route['access']>(['device-or-admin', 'decision-asker']);

t.test('routes that need a credential say when it is missing and when it is wrong', async (t) => {
  const front = await startFront();
  t.teardown(() => front.close());
  const admin = ADMIN_TOKEN;
  for (const route of ROUTES.filter(needsToken)) {
    const body = GOOD_BODIES[route.operationId];
    const withHeader = (authorization: string): Promise<Received> =>
      call(front.url, route.method, pathOf(route), { body, headers: { authorization } });
    const none = await call(front.url, route.method, pathOf(route), { body });
    isDocumented(t, route, none, 'credential_missing');
    isDocumented(t, route, await withHeader('Bearer'), 'credential_missing');
    t.equal(none.headers['www-authenticate'], 'Bearer');
    const wrong = [
      freshSecret('admin'),
      freshSecret('enroll'),
      freshSecret('gateway'),
      admin.slice(0, -1),
      `${admin}x`,
      admin.toLowerCase(),
      ...(DEVICES_MAY_ASK.has(route.access) ? [] : [CREDENTIAL]),
    ];
    for (const token of wrong) {
      isDocumented(t, route, await withHeader(`Bearer ${token}`), 'token_unknown');
    }
    isDocumented(t, route, await withHeader(`Basic ${admin}`), 'token_unknown');
    isDocumented(t, route, await withHeader(`Bearer ${admin} ${admin}`), 'token_unknown');
  }
  t.equal(front.actor.asked.length, 0, 'no actor was asked');
});

t.test('a header that must come once and comes twice is refused', async (t) => {
  const front = await startFront();
  t.teardown(() => front.close());
  for (const route of ROUTES) {
    const text = JSON.stringify(GOOD_BODIES[route.operationId] ?? '');
    for (const twice of [
      `Authorization: Bearer ${ADMIN_TOKEN}\r\nAuthorization: Bearer x`,
      'Content-Type: application/json\r\ncontent-type: text/plain',
      'Idempotency-Key: a\r\nIdempotency-Key: b',
      'If-None-Match: a\r\nIf-None-Match: b',
      'Host: b',
    ]) {
      const answer = await rawRequest(
        front.port,
        `${route.method} ${pathOf(route)} HTTP/1.1\r\nHost: a\r\n${twice}\r\n` +
          `Content-Length: ${text.length}\r\n\r\n${text}`,
      );
      t.match(answer.text, /^HTTP\/1\.1 400 /, `${route.operationId}: ${twice.slice(0, 20)}`);
      t.match(answer.text, '"headers_invalid"');
    }
  }
  t.equal(front.actor.asked.length, 0);
});

t.test('a body of another media type is 415', async (t) => {
  const front = await startFront();
  t.teardown(() => front.close());
  for (const route of withBody) {
    const body = JSON.stringify(GOOD_BODIES[route.operationId]);
    for (const type of [
      'text/plain',
      'application/x-www-form-urlencoded',
      'application/jsonp',
      'application/json; charset=utf-16',
      'application/json, text/plain',
      '',
    ]) {
      const answer = await send(front, route, { body, headers: { 'content-type': type } });
      isDocumented(t, route, answer, 'media_type_unsupported');
    }
    isDocumented(t, route, await send(front, route, { body }), 'media_type_unsupported');
    for (const type of ['application/json;charset=UTF-8', 'Application/JSON; charset="utf-8"']) {
      const answer = await send(front, route, { body, headers: { 'content-type': type } });
      t.ok(answer.status < 300, `${route.operationId} takes ${type}`);
    }
  }
});

const JSON_TYPE = { headers: { 'content-type': 'application/json' } };
const NOT_JSON: readonly (string | Buffer)[] = [
  '{',
  '{}}',
  "{'user':'ann'}",
  '{"user":"ann",}',
  'user=ann',
  'NaN',
  '\ufeff{"user":"ann"}',
  Buffer.from('{"user":"\xff"}', 'latin1'),
  Buffer.from([0xed, 0xa0, 0x80]),
  Buffer.alloc(10),
  '{"user":"ann","user":"bob"}',
  '{"user":"ann","us\\u0065r":"bob"}',
  '{"user":"ann","x":{"a":1,"b":[{"a":1,"a":2}]}}',
  '{"__proto__":{"user":"ann"},"user":"ann"}',
  '{"user":"ann","\\u005f_proto__":1}',
];

t.test('a body that is not unambiguous JSON in UTF-8 is 400', async (t) => {
  const front = await startFront();
  t.teardown(() => front.close());
  for (const route of withBody) {
    for (const body of NOT_JSON) {
      const answer = await send(front, route, { body, ...JSON_TYPE });
      isDocumented(t, route, answer, 'body_invalid_json');
    }
    if (route.body?.optional === true) continue;
    isDocumented(t, route, await send(front, route), 'body_invalid_json');
    isDocumented(t, route, await send(front, route, { body: '' }), 'body_invalid_json');
  }
});

t.test('JSON of another shape is 422 and names the field, not the value', async (t) => {
  const front = await startFront();
  t.teardown(() => front.close());
  const deep = '['.repeat(30_000) + ']'.repeat(30_000);
  for (const route of withBody) {
    for (const body of ['null', 'true', '7', '"halo"', '[]', '[{}]', deep]) {
      const answer = await send(front, route, { body, ...JSON_TYPE });
      isDocumented(t, route, answer, 'validation_failed');
      t.match(answer.json.errors, [{ in: 'body', pointer: '' }]);
    }
    const good = GOOD_BODIES[route.operationId] as Record<string, unknown>;
    const unknown = await send(front, route, { body: { ...good, evil: CREDENTIAL } });
    isDocumented(t, route, unknown, 'validation_failed');
    t.match(unknown.json.errors, [{ in: 'body', pointer: '/evil' }]);
    const odd = await send(front, route, { body: { ...good, [CREDENTIAL]: 1 } });
    isDocumented(t, route, odd, 'validation_failed');
    for (const key of Object.keys(good)) {
      for (const value of [null, {}, [], true, { toString: 1 }, '', 1.5, -1, 1e300]) {
        const answer = await send(front, route, { body: { ...good, [key]: value } });
        isDocumented(t, route, answer, 'validation_failed');
        t.match(answer.json.errors, [{ in: 'body', pointer: `/${key}` }], key);
      }
      const { [key]: _, ...rest } = good;
      if (route.body?.optional === true) continue;
      const missing = await send(front, route, { body: rest });
      isDocumented(t, route, missing, 'validation_failed');
      t.match(missing.json.errors, [{ pointer: `/${key}`, detail: /^is missing/ }]);
    }
  }
  t.equal(front.actor.asked.length, 0);
});

t.test('names are 1 to 256 characters without control characters or surrogates', async (t) => {
  const front = await startFront();
  t.teardown(() => front.close());
  const tokens = '/api/v1/enrollment-tokens';
  const status = async (text: string): Promise<number> =>
    (await call(front.url, 'POST', tokens, { bearer: ADMIN_TOKEN, body: text, ...JSON_TYPE }))
      .status;
  const user = (name: string): Promise<number> => status(JSON.stringify({ user: name }));
  for (const good of ['x', 'x'.repeat(256), '😀'.repeat(256), 'a b', 'İ', 'a\u2028b', '<script>']) {
    t.equal(await user(good), 201, encodeURI(good.slice(0, 10)));
  }
  for (const bad of [
    '',
    ' ',
    '\t\n',
    'x'.repeat(257),
    '😀'.repeat(257),
    'a\u0000b',
    'a\nb',
    'a\u007fb',
    'a\u0085b',
    'İ'.repeat(256),
  ]) {
    t.equal(await user(bad), 422, JSON.stringify(bad).slice(0, 20));
  }
  for (const lone of ['\\ud800', 'x\\udc00', '\\udc00\\ud800']) {
    t.equal(await status(`{"user":"${lone}"}`), 422, lone);
  }
  for (const ttl of ['0', '86401', '1.5', '"60"', '-1', '1e99']) {
    t.equal(await status(`{"user":"x","ttlSeconds":${ttl}}`), 422, ttl);
  }
});

t.test('a body over the limit is 413, however its length is told', async (t) => {
  const front = await startFront();
  t.teardown(() => front.close());
  for (const route of withBody) {
    const limit = route.body?.bytesMax ?? 64 * 1024;
    const head =
      `${route.method} ${pathOf(route)} HTTP/1.1\r\nHost: a\r\n` +
      `Authorization: Bearer ${ADMIN_TOKEN}\r\nContent-Type: application/json\r\n`;
    const padded = (length: number): string => `{${' '.repeat(length - 2)}}`;
    const chunk = `${(limit + 1).toString(16)}\r\n${padded(limit + 1)}\r\n0\r\n\r\n`;
    for (const rest of [
      `Content-Length: ${limit + 1}\r\n\r\n${padded(limit + 1)}`,
      `Content-Length: ${limit + 1}\r\n\r\n`,
      `Content-Length: 99999999999999\r\n\r\n`,
      `Transfer-Encoding: chunked\r\n\r\n${chunk}`,
    ]) {
      const answer = await rawRequest(front.port, head + rest, () => false);
      t.match(answer.text, /^HTTP\/1\.1 413 /, `${route.operationId} ${rest.slice(0, 40)}`);
      t.match(answer.text, '"body_too_large"');
      t.ok(answer.closed, 'the connection is closed');
    }
    const fits = await send(front, route, { body: padded(limit), ...JSON_TYPE });
    t.not(fits.status, 413, 'exactly the limit is read');
  }
});

t.test('paths and queries that are not well encoded are 400', async (t) => {
  const front = await startFront();
  t.teardown(() => front.close());
  for (const route of ROUTES.filter(({ pathParameters }) => pathParameters !== undefined)) {
    for (const id of ['%', '%2', '%zz', '%ff', '%C3', '%ed%a0%80']) {
      const path = pathOf(route, id);
      const body = GOOD_BODIES[route.operationId];
      const answer = await call(front.url, route.method, path, { bearer: ADMIN_TOKEN, body });
      isDocumented(t, route, answer, 'url_invalid');
    }
    for (const id of ['%00', 'a%0Ab', 'x'.repeat(257)]) {
      const path = pathOf(route, id);
      const body = GOOD_BODIES[route.operationId];
      const answer = await call(front.url, route.method, path, { bearer: ADMIN_TOKEN, body });
      isDocumented(t, route, answer, 'validation_failed');
      const [, parameter = 'id'] = /\{(ref|lease)\}/.exec(route.path) ?? [];
      const pointer = `/${parameter}`;
      t.match(answer.json.errors, [{ in: 'path', pointer }]);
    }
  }
  const list = ROUTES.find(({ operationId }) => operationId === 'listDevices') as Route;
  const query = (text: string): Promise<Received> =>
    call(front.url, 'GET', `/api/v1/devices?${text}`, { bearer: ADMIN_TOKEN });
  for (const text of ['user=%ff', 'user=%', '%=1', 'limit=1&limit=2']) {
    isDocumented(t, list, await query(text), 'url_invalid');
  }
  for (const text of [
    'limit=0',
    'limit=501',
    'limit=1.5',
    'limit=1e2',
    'limit=',
    'limit=0x10',
    'limit=+1',
    'user=',
    'user=%00',
    'cursor=',
    'page=2',
    '__proto__=1',
    'toString=1',
  ]) {
    const answer = await query(text);
    isDocumented(t, list, answer, 'validation_failed');
    t.match(answer.json.errors, [{ in: 'query' }], text);
  }
});
