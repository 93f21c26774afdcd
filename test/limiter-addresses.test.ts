/** Whose failures count together: what one host controls, and never what a header merely says. */
import t from 'tap';
import type { FailedAttempt } from '../src/actors/limiter/messages.js';
import { addressCounted } from '../src/http/client-address.js';
import { call } from './fixtures/http-client.js';
import { type Front, freshSecret, startFront } from './fixtures/http-front.js';
import { startLimitedFront } from './fixtures/limited-front.js';

const AUTH = '/api/v1/auth/device';

async function failFrom(front: Front, headers: Record<string, string>): Promise<number> {
  const bearer = freshSecret('device');
  return (await call(front.url, 'GET', AUTH, { bearer, headers })).status;
}

function lastAddress(front: Front): string {
  return (front.limiter.asked.at(-1)!.payload as FailedAttempt).address;
}

t.test('IPv6 addresses of one /64 count as one, and IPv4 however it is written', (t) => {
  const same: [string, string][] = [
    ['2001:db8:1:2::', '2001:db8:1:2::/64'],
    ['2001:db8:1:2:ffff:ffff:ffff:ffff', '2001:db8:1:2::/64'],
    ['2001:db8:1:2:3::4', '2001:db8:1:2::/64'],
    ['2001:db8:1:3::1', '2001:db8:1:3::/64'],
    ['2001:db8::1', '2001:db8::/64'],
    ['::1', '::/64'],
    ['fe80::1', 'fe80::/64'],
    ['192.0.2.1', '192.0.2.1'],
    ['::ffff:192.0.2.1', '192.0.2.1'],
    ['::ffff:c000:201', '192.0.2.1'],
    ['unknown', 'unknown'],
  ];
  for (const [client, address] of same) t.equal(addressCounted(client), address, client);
  t.end();
});

t.test('without trusted proxies no header changes whose failure it is', async (t) => {
  const front = await startLimitedFront();
  t.teardown(() => front.close());
  const statuses: number[] = [];
  for (let i = 0; i < 12; i += 1) {
    statuses.push(
      await failFrom(front, {
        'x-forwarded-for': `203.0.113.${i}`,
        forwarded: `for=203.0.113.${i}`,
      }),
    );
  }
  t.same(statuses, [...Array(10).fill(401), 429, 429], 'a rotated header evades nothing');
  t.equal(lastAddress(front), '127.0.0.1');
});

t.test('a proxy that is not trusted is as any client', async (t) => {
  const front = await startFront({ options: { trustedProxies: ['10.0.0.0/8', '::1'] } });
  t.teardown(() => front.close());
  await failFrom(front, { 'x-forwarded-for': '203.0.113.9' });
  t.equal(lastAddress(front), '127.0.0.1');
});

t.test('behind a trusted proxy each client has its own budget', async (t) => {
  const front = await startLimitedFront({ options: { trustedProxies: ['127.0.0.1'] } });
  t.teardown(() => front.close());
  for (let i = 0; i < 10; i += 1) {
    const from = `2001:db8:0:1:${i}::${i}`;
    t.equal(await failFrom(front, { 'x-forwarded-for': from }), 401, from);
  }
  t.equal(await failFrom(front, { 'x-forwarded-for': '2001:db8:0:1:ffff::' }), 429, 'the /64');
  t.equal(await failFrom(front, { 'x-forwarded-for': '2001:db8:0:2::1' }), 401, 'another /64');
  t.equal(await failFrom(front, { 'x-forwarded-for': '203.0.113.1' }), 401);
});

t.test('what a client puts before what the proxy says is not believed', async (t) => {
  const front = await startLimitedFront({ options: { trustedProxies: ['127.0.0.1'] } });
  t.teardown(() => front.close());
  const statuses: number[] = [];
  for (let i = 0; i < 12; i += 1) {
    statuses.push(await failFrom(front, { 'x-forwarded-for': `198.51.100.${i}, 203.0.113.7` }));
  }
  t.same(statuses, [...Array(10).fill(401), 429, 429]);
  t.equal(lastAddress(front), '203.0.113.7');
  await failFrom(front, { 'x-forwarded-for': 'garbage' });
  t.equal(lastAddress(front), '127.0.0.1', 'the proxy stands for what it does not tell');
  await call(front.url, 'GET', '/v1/status', {
    bearer: 'x',
    headers: { forwarded: 'for="[2001:db8:9::1]:4711"' },
  });
  t.equal(lastAddress(front), '2001:db8:9::/64', 'on the other routes too');
});

t.test('a header that the proxy does not write buys nobody another budget', async (t) => {
  const front = await startLimitedFront({ options: { trustedProxies: ['127.0.0.1'] } });
  t.teardown(() => front.close());
  const asked: ((index: number) => Record<string, string>)[] = [
    // The proxy writes the one, the client invents the other, and nobody here can know which.
    (i) => ({ 'x-forwarded-for': '203.0.113.7', forwarded: `for=198.51.100.${i}` }),
    (i) => ({ 'x-forwarded-for': `198.51.100.${i}`, forwarded: 'for=203.0.113.7' }),
  ];
  const statuses: number[] = [];
  for (let i = 0; i < 12; i += 1) {
    statuses.push(await failFrom(front, (asked[i % 2] as (typeof asked)[0])(i)));
  }
  t.same(statuses, [...Array(10).fill(401), 429, 429]);
  t.equal(lastAddress(front), '127.0.0.1', 'the proxy stands for whoever says two things');
  await call(front.url, 'GET', '/v1/status', { bearer: 'x', headers: asked[0]?.(99) ?? {} });
  t.equal(lastAddress(front), '127.0.0.1', 'on the other routes too');
  t.equal(await failFrom(front, { 'x-forwarded-for': '203.0.113.7' }), 401, 'the others go on');
});
