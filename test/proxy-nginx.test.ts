/** The nginx configuration that is shipped, run for real before a page and a stand-in for Halos. */
import { connect as connectHttp2 } from 'node:http2';
import t, { type Test } from 'tap';
import { call } from './fixtures/http-client.js';
import {
  HOST,
  hasHeadersMore,
  hasNginx,
  type Nginx,
  type NginxOptions,
  startNginx,
  visit,
} from './fixtures/nginx.js';
import { answering, closing, Neighbour, silent } from './fixtures/proxy-neighbours.js';

const IDENTITY = { 'x-halo-device': 'dev_1', 'x-halo-user': 'ann' };
const allowing = answering(200, IDENTITY);

interface Site {
  readonly nginx: Nginx;
  readonly halos: readonly Neighbour[];
  readonly application: Neighbour;
}

async function startSite(
  t: Test,
  replicas = 1,
  extra: Omit<NginxOptions, 'replicas' | 'application'> = {},
): Promise<Site> {
  const application = await Neighbour.start();
  t.teardown(() => application.stop());
  const halos = await Promise.all(
    Array.from({ length: replicas }, () => Neighbour.start(allowing)),
  );
  t.teardown(() => Promise.all(halos.map((one) => one.stop())));
  const ports = halos.map(({ port }) => port);
  const nginx = await startNginx({ replicas: ports, application: application.port, ...extra });
  t.teardown(() => nginx.stop());
  return { nginx, halos, application };
}

async function until(condition: () => boolean, withinMs: number): Promise<void> {
  const endMs = Date.now() + withinMs;
  while (!condition()) {
    if (Date.now() > endMs) throw new Error('the condition did not come true in time');
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
}

if (!hasNginx()) {
  t.not(process.env.CI, 'true', 'nginx is not installed: the configuration was not tried');
} else {
  t.test('Halos is asked with the credential and where it comes from, and no more', async (t) => {
    const { nginx, halos, application } = await startSite(t);
    const traceparent = `00-${'a'.repeat(32)}-${'b'.repeat(16)}-01`;
    const answer = await visit(nginx, '/a/page?with=query', {
      method: 'POST',
      bearer: 'credential',
      from: '127.0.0.9',
      headers: {
        cookie: 'session=1',
        'content-type': 'text/plain',
        'x-request-id': 'mine-1',
        'x-forwarded-for': '192.0.2.1',
        forwarded: 'for=192.0.2.1',
        'x-halo-user': 'root',
        expect: '100-continue',
        traceparent,
      },
      body: 'a body',
    });
    t.equal(answer.status, 200);
    t.same(halos[0]?.noted, [
      {
        method: 'HEAD',
        url: '/api/v1/auth/device',
        version: '1.1',
        headers: [
          ['host', 'halos'],
          ['authorization', 'Bearer credential'],
          ['x-forwarded-for', '127.0.0.9'],
          ['x-request-id', 'mine-1'],
          ['traceparent', traceparent],
        ],
        bodyBytes: 0,
      },
    ]);
    t.match(application.noted, [{ method: 'POST', url: '/a/page?with=query', bodyBytes: 6 }]);
  });

  t.test('a request id or a trace that Halos would not take is not passed on', async (t) => {
    const { nginx, halos, application } = await startSite(t);
    for (const bad of ['x'.repeat(129), 'with space', 'a"b']) {
      await visit(nginx, '/', { headers: { 'x-request-id': bad, traceparent: bad } });
      const [id = ''] = halos[0]!.last('x-request-id');
      t.match(id, /^[0-9a-f]{32}$/, 'nginx makes one of its own');
      t.same(halos[0]?.last('traceparent'), []);
      t.same(application.last('x-request-id'), [id], 'the application has the same');
    }
  });

  t.test('the application learns who it is from Halos, whatever the client says', async (t) => {
    const { nginx, halos, application } = await startSite(t);
    const spoofed = {
      'x-halo-user': ['root', 'admin'],
      'X-HALO-DEVICE': 'dev_of_another',
      x_halo_user: 'root',
      'X_Halo-Device': 'dev_of_another',
      'x-halo-roles': 'admin',
      'x-halo-event-id': '1',
    };
    await visit(nginx, '/', { bearer: 'credential', headers: spoofed });
    const told = (): (readonly [string, string])[] =>
      application.noted.at(-1)!.headers.filter(([name]) => /halo/.test(name));
    t.same(told().sort(), Object.entries(IDENTITY).sort());
    t.same(application.last('authorization'), [], 'and never sees the credential');
    halos[0]!.behaviour = answering(200);
    await visit(nginx, '/', { bearer: 'credential', headers: spoofed });
    t.same(told(), [], 'what Halos does not say is not there');
  });

  t.test('with headers-more, whatever begins with x-halo- is deleted', async (t) => {
    if (!hasHeadersMore()) {
      t.not(process.env.CI, 'true', 'the module is not installed: it was not tried');
      return;
    }
    const { nginx, application } = await startSite(t, 1, {
      headersMore: true,
      location: ['more_clear_input_headers "X-Halo-*";'],
    });
    const headers = { 'x-halo-user': 'root', 'X-Halo-Of-Tomorrow': '1', 'x-hal': 'stays' };
    await visit(nginx, '/', { bearer: 'credential', headers });
    t.same(application.last('x-halo-of-tomorrow'), []);
    t.same(application.last('x-halo-user'), ['ann']);
    t.same(application.last('x-hal'), ['stays']);
  });

  t.test('a client sees what Halos answered, where auth_request would say 500', async (t) => {
    const { nginx, halos, application } = await startSite(t);
    const cases: [number, Record<string, string>, number, string | undefined][] = [
      [401, { 'www-authenticate': 'Bearer' }, 401, undefined],
      [403, {}, 403, undefined],
      [429, { 'retry-after': '17' }, 429, '17'],
      [429, {}, 429, '1'],
      [503, { 'retry-after': '3' }, 503, '3'],
      [503, { 'retry-after': 'Wed, 21 Oct 2026 07:28:00 GMT' }, 503, '1'],
      [500, { 'retry-after': '3' }, 500, undefined],
      [302, { location: 'http://127.0.0.1/' }, 500, undefined],
      [404, {}, 500, undefined],
    ];
    for (const [said, headers, status, retryAfter] of cases) {
      halos[0]!.behaviour = answering(said, { ...headers, ...IDENTITY });
      for (const method of ['GET', 'POST', 'HEAD']) {
        const answer = await visit(nginx, '/', { method, headers: { 'x-request-id': 'mine' } });
        const label = `${method}: ${said} becomes ${status}`;
        t.equal(answer.status, status, label);
        t.equal(answer.headers['retry-after'], retryAfter, label);
        t.equal(answer.headers['content-type'], 'application/problem+json', label);
        t.equal(answer.headers['cache-control'], 'no-store', label);
        t.equal(answer.headers['x-request-id'], 'mine', label);
        t.equal(answer.headers['www-authenticate'], said === 401 ? 'Bearer' : undefined, label);
        if (method === 'HEAD') continue;
        t.match(answer.json, { status, requestId: 'mine', type: 'about:blank' }, label);
        t.equal(answer.json.retryable, status === 429 || status === 503, label);
      }
    }
    t.same(application.noted, [], 'the application was never asked');
  });

  t.test('answers of the application are its own, whatever their status', async (t) => {
    const { nginx, application } = await startSite(t);
    for (const status of [401, 403, 404, 429, 500, 503]) {
      application.behaviour = answering(status, { 'x-from': 'application' });
      const answer = await visit(nginx, '/', { bearer: 'credential' });
      t.match(answer, { status, headers: { 'x-from': 'application' } });
      t.not(answer.headers['content-type'], 'application/problem+json');
    }
  });

  t.test('a replica that fails costs nobody a request while another answers', async (t) => {
    const { nginx, halos } = await startSite(t, 2);
    for (const failing of [closing, answering(503, { 'retry-after': '9' })]) {
      halos[0]!.behaviour = failing;
      for (let index = 0; index < 10; index += 1) {
        t.equal((await visit(nginx, '/', { bearer: 'credential' })).status, 200);
      }
    }
    t.ok(halos[0]!.noted.length >= 10, 'it was asked all the time, so that it is back at once');
    await halos[0]!.stop();
    for (let index = 0; index < 10; index += 1) {
      t.equal((await visit(nginx, '/', { bearer: 'credential' })).status, 200, 'it is gone');
    }
  });

  t.test('when all replicas refuse, each is asked once and the client told when', async (t) => {
    const { nginx, halos } = await startSite(t, 2);
    for (const one of halos) one.behaviour = answering(503, { 'retry-after': '9' });
    for (let index = 1; index <= 10; index += 1) {
      const answer = await visit(nginx, '/', { bearer: 'credential' });
      t.match(answer, { status: 503, headers: { 'retry-after': '9' } });
      t.same(
        halos.map(({ noted }) => noted.length),
        [index, index],
      );
    }
    for (const one of halos) one.behaviour = allowing;
    t.equal((await visit(nginx, '/')).status, 200, 'and none was left out for a while');
    for (const one of halos) one.behaviour = answering(429, { 'retry-after': '5' });
    const before = halos[0]!.noted.length + halos[1]!.noted.length;
    t.equal((await visit(nginx, '/')).status, 429);
    const after = halos[0]!.noted.length + halos[1]!.noted.length;
    t.equal(after, before + 1, 'a client that is to slow down is not tried elsewhere');
  });

  t.test('a replica that says nothing is given up, and a client told so', async (t) => {
    const { nginx, halos } = await startSite(t, 2);
    for (const one of halos) one.behaviour = silent;
    const startedMs = Date.now();
    const answer = await visit(nginx, '/', { bearer: 'credential' });
    t.match(answer, { status: 503, headers: { 'retry-after': '1' } });
    t.ok(Date.now() - startedMs < 10_000);
    halos[1]!.behaviour = allowing;
    const answers = await Promise.all([visit(nginx, '/'), visit(nginx, '/')]);
    t.same(
      answers.map(({ status }) => status),
      [200, 200],
    );
  });

  t.test('connections to Halos are kept, and given up before Halos closes them', async (t) => {
    const { nginx, halos } = await startSite(t);
    for (let index = 0; index < 40; index += 1) await visit(nginx, '/', { bearer: 'credential' });
    const [halo] = halos;
    t.equal(halo?.noted.length, 40);
    t.ok(halo!.connections <= 2, 'one for each of two workers');
    const idleSinceMs = Date.now();
    await until(() => halo?.open.size === 0, 11_000);
    const idleMs = Date.now() - idleSinceMs;
    t.ok(idleMs < 10_000, `nginx closed them after ${idleMs} ms; Halos waits for about 12,000`);
  });

  t.test('an allow is never taken from a cache', async (t) => {
    const { nginx, halos } = await startSite(t, 1, {
      http: [
        `proxy_cache_path ${t.testdir()} keys_zone=pages:1m;`,
        'proxy_cache pages;',
        'proxy_cache_valid any 1h;',
        'proxy_cache_key $uri;',
      ],
    });
    t.equal((await visit(nginx, '/cached', { bearer: 'one' })).status, 200);
    halos[0]!.behaviour = answering(403);
    t.equal((await visit(nginx, '/cached', { bearer: 'one' })).status, 403);
    t.equal(halos[0]?.noted.length, 2);
  });

  t.test('a big body goes to the application, and none to Halos', async (t) => {
    const { nginx, halos, application } = await startSite(t);
    const body = Buffer.alloc(3_000_000, 'b');
    for (const headers of [{}, { 'transfer-encoding': 'chunked' }]) {
      const answer = await visit(nginx, '/', { method: 'PUT', bearer: 'one', headers, body });
      t.equal(answer.status, 200);
      t.match(application.noted.at(-1), { method: 'PUT', bodyBytes: body.length });
      t.match(halos[0]?.noted.at(-1), { method: 'HEAD', bodyBytes: 0 });
      t.same(halos[0]?.last('content-length'), []);
      t.same(halos[0]?.last('transfer-encoding'), []);
    }
    halos[0]!.behaviour = answering(401);
    const refused = await visit(nginx, '/', { method: 'PUT', body: Buffer.alloc(200_000) });
    t.equal(refused.status, 401);
    t.equal(application.noted.length, 2);
  });

  t.test('long addresses and many cookies are not sent to Halos', async (t) => {
    const { nginx, halos, application } = await startSite(t);
    const path = `/${'p'.repeat(7_000)}`;
    const cookie = 'c'.repeat(7_000);
    t.equal((await visit(nginx, path, { bearer: 'one', headers: { cookie } })).status, 200);
    t.match(application.noted, [{ url: path }]);
    t.match(halos[0]?.noted, [{ url: '/api/v1/auth/device' }]);
    t.equal((await visit(nginx, path + path)).status, 414, 'there is an end to it');
  });

  t.test(
    'a credential that comes twice, or is no credential by its length, is refused',
    async (t) => {
      const { nginx, halos } = await startSite(t);
      const twice = { authorization: ['Bearer one', 'Bearer two'] };
      t.equal((await visit(nginx, '/', { headers: twice })).status, 400);
      t.same(halos[0]?.noted, []);
      await visit(nginx, '/', { bearer: 'x'.repeat(6_000) });
      t.same(halos[0]?.last('authorization'), ['Bearer too-long']);
      await visit(nginx, '/', { bearer: 'x'.repeat(1_000) });
      t.same(halos[0]?.last('authorization'), [`Bearer ${'x'.repeat(1_000)}`]);
      await visit(nginx, '/');
      t.same(halos[0]?.last('authorization'), [], 'none is none');
    },
  );

  t.test('nobody can ask the internal location or the shape of Halos from outside', async (t) => {
    const { nginx, halos } = await startSite(t);
    halos[0]!.behaviour = answering(401);
    t.equal((await visit(nginx, '/_halos/auth', { bearer: 'one' })).status, 404);
    for (const path of [
      '/api/v1/devices',
      '/readyz',
      '/api/v1/enroll/',
      '/api/v1/enrollment-tokens',
    ]) {
      t.equal((await visit(nginx, path)).status, 401, `${path} is a page like any other`);
      t.match(halos[0]?.noted.at(-1), { url: '/api/v1/auth/device' });
    }
  });

  t.test('plain HTTP is sent to HTTPS, and HTTP/2 is served', async (t) => {
    const { nginx } = await startSite(t);
    const plain = await call(`http://127.0.0.1:${nginx.plainPort}`, 'GET', '/a', {
      headers: { host: HOST },
    });
    t.match(plain, { status: 301, headers: { location: `https://${HOST}/a` } });
    const session = connectHttp2(`https://127.0.0.1:${nginx.port}`, {
      ca: nginx.certificate,
      servername: HOST,
    });
    t.teardown(() => session.close());
    const stream = session.request({ ':path': '/', ':authority': HOST, authorization: 'Bearer a' });
    const status = await new Promise((resolve, reject) => {
      stream.on('response', (headers) => resolve(headers[':status']));
      stream.on('error', reject);
    });
    stream.resume();
    t.equal(status, 200);
  });
}
