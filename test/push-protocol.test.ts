/** The words of `halo.kill-list.v1`, spoken over real sockets with a front server of its own. */
import { Registry } from 'prom-client';
import t from 'tap';
import { digestOf } from '../src/actors/secrets.js';
import { renderMetrics } from '../src/http/metrics-exposition.js';
import { failure } from '../src/runtime/failure.js';
import { call } from './fixtures/http-client.js';
import { freshSecret, until } from './fixtures/http-front.js';
import { GATEWAY_TOKEN, PushFront } from './fixtures/push-front.js';
import { GatewayList, NotUpgraded, StreamClient } from './fixtures/stream-client.js';

async function start(t: { teardown(close: () => void): void }): Promise<PushFront> {
  const push = await PushFront.start();
  t.teardown(() => push.close());
  await until(() => push.front.server.snapshot().push?.version === 0);
  return push;
}

async function refusal(opened: Promise<StreamClient>): Promise<NotUpgraded> {
  try {
    (await opened).destroy();
  } catch (error) {
    if (error instanceof NotUpgraded) return error;
    throw error;
  }
  throw new Error('it was upgraded');
}

t.test('without since comes a snapshot, then each change as a delta', async (t) => {
  const push = await start(t);
  push.kill('a');
  const client = await push.open();
  await until(() => client.frames.length > 0);
  t.match(client.frames[0], {
    type: 'snapshot',
    epoch: push.epoch,
    version: 1,
    entries: [{ kind: 'agent', id: 'a', by: 'root', at: '2026-01-01T00:00:00.000Z' }],
    more: false,
  });
  push.kill('b');
  await until(() => client.list.version === 2);
  push.lift('a');
  await until(() => client.list.version === 3);
  t.match(client.ofType('delta'), [
    { type: 'delta', from: 1, version: 2, set: [{ id: 'b' }], lift: [] },
    { type: 'delta', from: 2, version: 3, set: [], lift: [{ kind: 'agent', id: 'a' }] },
  ]);
});

t.test('at the current version comes a heartbeat at once, behind it one delta', async (t) => {
  const push = await start(t);
  push.kill('a');
  push.kill('b');
  const current = await push.open({ since: push.position });
  await until(() => current.frames.length > 0);
  t.match(current.frames[0], { type: 'heartbeat', version: 2, asOf: /^\d{4}-.*Z$/ });
  const behind = await push.open({ since: `${push.epoch}.0` });
  await until(() => behind.frames.length > 0);
  t.match(behind.frames[0], {
    type: 'delta',
    from: 0,
    version: 2,
    set: [{ id: 'a' }, { id: 'b' }],
  });
});

t.test(
  'a since of another epoch, or of none, gets a snapshot, one of the future is told to try later',
  async (t) => {
    const push = await start(t);
    push.kill('a');
    const other = await push.open({ since: 'fedcba9876543210.1' });
    await until(() => other.frames.length > 0);
    t.equal(other.frames[0].type, 'snapshot');
    for (const since of ['7', '', 'x.1', `${push.epoch}.01`, `${push.epoch}.${'9'.repeat(20)}`]) {
      const unread = await push.open({ since });
      await until(() => unread.frames.length > 0);
      t.match(unread.frames[0], { type: 'snapshot', version: 1 }, `“${since}” holds nothing`);
    }
    const ahead = await push.open({ since: `${push.epoch}.2` });
    await until(() => ahead.closed !== undefined);
    t.equal(ahead.closed?.code, 1013);
    t.same(ahead.frames, []);
    const old = await start(t);
    for (let id = 0; id < 1_100; id += 1) old.kill(`a${id}`);
    const unknown = await old.open({ since: `${old.epoch}.5` });
    await until(() => unknown.list.version === 1_100);
    t.same(unknown.ofType('delta'), []);
    t.ok(unknown.frames.length > 1, 'a long one is paged');
    t.equal(unknown.list.entries.size, 1_100);
  },
);

t.test(
  'whoever comes is served only after a catch-up, which those of one turn share',
  async (t) => {
    const push = await start(t);
    const before = push.asked.length;
    push.telling = false;
    push.kill('a');
    const clients = await Promise.all(
      Array.from({ length: 50 }, () => push.open({ since: `${push.epoch}.0` })),
    );
    await until(() => clients.every(({ frames }) => frames.length > 0));
    for (const { frames } of clients) t.match(frames[0], { type: 'delta', from: 0, version: 1 });
    const asked = push.asked.slice(before);
    t.ok(asked.length < 30, `${asked.length} asks for 50 streams`);
  },
);

t.test(
  'a kill that happens during a long snapshot comes after it, once and in order',
  async (t) => {
    const push = await start(t);
    push.kill(...Array.from({ length: 900 }, (_, id) => `a${id}`));
    const opening = push.open();
    await until(() => push.front.server.snapshot().push?.streams === 1);
    push.kill('late');
    const client = await opening;
    await until(() => client.list.version === 901);
    t.same(client.list.faults, []);
    t.equal(client.list.entries.size, 901);
    t.ok(client.ofType('snapshot').length > 8);
    t.ok(client.ofType('snapshot').every(({ version }) => version >= 900));
  },
);

t.test('it is refused before the upgrade, with the problems of any route', async (t) => {
  const push = await start(t);
  const { url } = push.front;
  const open = (options: object) => refusal(StreamClient.open(url, options));
  const token = GATEWAY_TOKEN;
  t.match(await open({}), { status: 401, code: 'credential_missing' });
  t.match(await open({ token: freshSecret('gateway') }), { status: 401, code: 'token_unknown' });
  t.match(await open({ token, protocol: '' }), { status: 400, code: 'headers_invalid' });
  t.match(await open({ token, protocol: 'other.v1' }), { status: 400 });
  push.failing = failure('store_unavailable');
  t.match(await open({ token }), { status: 503, code: 'store_unavailable' });
  push.failing = undefined;
  const several = await push.open({ protocol: 'x, halo.kill-list.v1' });
  await until(() => several.frames.length > 0);
});

t.test('without a list nobody is let in', async (t) => {
  const push = await PushFront.start();
  t.teardown(() => push.close());
  push.failing = failure('store_unavailable');
  t.match(await refusal(push.open()), { status: 503, code: 'store_unavailable' });
  push.failing = undefined;
  await until(() => push.asked.filter((kind) => kind === 'list').length > 1);
  const client = await push.open();
  await until(() => client.frames.length > 0);
});

t.test('an ack of the future, and whatever is no ack, ends the stream', async (t) => {
  const push = await start(t);
  push.kill('a');
  for (const [text, reason] of [
    ['{"type":"ack","version":2}', 'ack of the future'],
    ['no json', 'not an ack'],
    ['{"type":"hello"}', 'not an ack'],
    ['{"type":"ack","version":-1}', 'not an ack'],
    ['{"type":"ack","version":"1"}', 'not an ack'],
    ['[]', 'not an ack'],
    ['null', 'not an ack'],
    [`{"type":"ack","version":1${' '.repeat(300)}}`, 'not an ack'],
  ] as const) {
    const client = await push.open();
    await until(() => client.frames.length > 0);
    client.send(text);
    await until(() => client.closed !== undefined);
    t.same(client.closed, { code: 1008, reason }, text.slice(0, 40));
  }
  const talker = await push.open();
  await until(() => talker.frames.length > 0);
  for (let count = 0; count < 200; count += 1) talker.ack(1);
  await until(() => talker.closed !== undefined);
  t.same(talker.closed, { code: 1008, reason: 'too many frames' });
  const pinger = await push.open();
  await until(() => pinger.frames.length > 0);
  for (let count = 0; count < 60; count += 1) pinger.ping();
  await until(() => pinger.pongs === 60);
  t.equal(pinger.closed, undefined, 'a client may look for life');
  for (let count = 0; count < 60; count += 1) pinger.ping();
  await until(() => pinger.closed !== undefined);
  t.same(pinger.closed, { code: 1008, reason: 'too many pings' });
});

t.test('acknowledgements are reported as the least of a gateway, once a second', async (t) => {
  const push = await start(t);
  push.kill('a');
  const [one, other] = [await push.open(), await push.open()];
  await until(() => one.frames.length + other.frames.length === 2);
  one.ack(1);
  const reported = (ackVersion: number, connections: number) => () =>
    push.reports.some(({ gateways }) =>
      gateways.some((of) => of.ackVersion === ackVersion && of.connections === connections),
    );
  await until(reported(0, 2));
  other.ack(1);
  await until(reported(1, 2));
  t.match(push.reports.at(-1), { epoch: push.epoch, gateways: [{ gateway: 'gw_1' }] });
  t.ok(push.reports.length <= 4, 'in batches');
  t.match(push.front.server.snapshot().push, { streams: 2, gateways: 1, gatewaysBehind: 0 });
  one.destroy();
  other.destroy();
  await until(() => push.reports.at(-1)?.gateways.length === 0);
  t.match(push.front.server.snapshot().push, { streams: 0, opened: 2 });
});

t.test('a token that ends closes its streams and no others', async (t) => {
  const push = await start(t);
  const token = freshSecret('gateway');
  push.tokens.set(digestOf(token), 'gw_2');
  const [kept, removed] = [await push.open(), await push.open({ token })];
  push.front.server.hear('gateways', { type: 'ended', credentials: [digestOf(token)] });
  await until(() => removed.closed !== undefined);
  t.equal(removed.closed?.code, 4403);
  t.equal(kept.closed, undefined);
  const missed = await push.open({ token });
  const live = { type: 'live', credentials: [digestOf(GATEWAY_TOKEN)] };
  push.front.server.hear('gateways', live);
  await until(() => missed.closed !== undefined);
  t.equal(missed.closed?.code, 4403, 'also when the actor was down when it ended');
  t.equal(kept.closed, undefined);
});

t.test('a token has a bounded number of streams', async (t) => {
  const push = await start(t);
  await Promise.all(Array.from({ length: 100 }, () => push.open()));
  t.match(await refusal(push.open()), { status: 429, code: 'too_many_streams' });
  push.clients[0]?.destroy();
  await until(() => push.front.server.snapshot().push?.streams === 99);
  await push.open();
});

t.test('another epoch ends all streams, and they begin anew', async (t) => {
  const push = await start(t);
  push.kill('a');
  const client = await push.open();
  await until(() => client.frames.length > 0);
  push.epoch = 'fedcba9876543210';
  push.entries.clear();
  push.confirm();
  await until(() => client.closed !== undefined);
  t.equal(client.closed?.code, 1012);
  t.match(JSON.parse(client.closed?.reason ?? ''), { retryAfterMs: Number });
  const again = await push.open({ since: `0123456789abcdef.1` });
  await until(() => again.frames.length > 0);
  t.match(again.frames, [{ type: 'snapshot', epoch: push.epoch, version: 1, entries: [] }]);
});

t.test('at shutdown every stream is told when to come back', async (t) => {
  const push = await start(t);
  const clients = await Promise.all(Array.from({ length: 20 }, () => push.open()));
  await until(() => clients.every(({ frames }) => frames.length === 1));
  push.front.server.stopAccepting();
  await push.front.server.drain(1_000);
  await until(() => clients.every(({ closed }) => closed !== undefined));
  const waits = clients.map(({ closed }) => {
    t.equal(closed?.code, 1012);
    return JSON.parse(closed?.reason ?? '').retryAfterMs as number;
  });
  t.ok(waits.every((wait) => wait >= 0 && wait <= 2_000));
  t.ok(new Set(waits).size > 10, 'spread out');
});

t.test(
  'news that were missed are made up for by one list, for open streams as a delta',
  async (t) => {
    const push = await start(t);
    const client = await push.open({ list: new GatewayList() });
    await until(() => client.frames.length > 0);
    push.telling = false;
    push.kill('a', 'b');
    push.lift('a');
    push.telling = true;
    push.kill('c');
    await until(() => client.list.version === 4);
    t.same(client.list.names, ['agent/b', 'agent/c']);
    t.same(client.list.faults, []);
    t.equal(client.ofType('snapshot').length, 1);
    push.tell({ type: 'unchanged', epoch: push.epoch, version: 3, asOfMs: 1 });
    push.kill('d');
    await until(() => client.list.version === 5);
    t.same(client.list.faults, [], 'late news take nothing back');
  },
);

t.test('what was pushed is told as metrics', async (t) => {
  const push = await start(t);
  push.kill('a');
  const client = await push.open();
  await until(() => client.frames.length > 0);
  await push.open({ since: push.position });
  client.send('?');
  await until(() => client.closed !== undefined);
  const snapshot = { fronts: [push.front.server.snapshot()], actors: [], others: [] };
  const text = await renderMetrics(snapshot, new Registry());
  for (const line of [
    'halo_push_streams 1',
    'halo_push_gateways 1',
    'halo_push_gateways_behind 0',
    'halo_kill_list_version 1',
    'halo_push_streams_opened_total{resumed="true"} 1',
    'halo_push_streams_opened_total{resumed="false"} 1',
    'halo_push_closed_total{code="1008"} 1',
  ]) {
    t.match(text, line);
  }
});

t.test('whoever asks for the stream and does not upgrade is told to', async (t) => {
  const push = await start(t);
  const path = '/api/v1/kill-list/stream';
  for (const sent of [{}, { bearer: GATEWAY_TOKEN }, { headers: { upgrade: 'websocket' } }]) {
    t.match(await call(push.front.url, 'GET', path, sent), {
      status: 426,
      headers: { upgrade: 'websocket', connection: /upgrade/i },
      json: { code: 'upgrade_required' },
    });
  }
  t.match(await call(push.front.url, 'HEAD', path), { status: 426, text: '' });
  t.match(await call(push.front.url, 'DELETE', path), {
    status: 405,
    headers: { allow: 'GET, HEAD' },
  });
});
