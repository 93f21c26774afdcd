/** How a gateway follows the kill list over connections that fail in every way. */
import t, { type Test } from 'tap';
import { followKillList } from '../src/client/gateway.js';
import { PAUSE_MAX_MS, PAUSE_MIN_MS, ReconnectPause } from '../src/client/reconnect-pause.js';
import { seededRandom } from '../src/runtime/random.js';
import { keepAlive } from './fixtures/keep-alive.js';
import {
  delta,
  EPOCH,
  follow,
  heartbeat,
  snapshot,
  startScripted,
} from './fixtures/scripted-kill-list.js';
import { until } from './fixtures/toy-actor.js';

keepAlive(t);

async function open(t: Test) {
  const server = await startScripted();
  const { follower, events, clock } = follow([server.url]);
  t.teardown(async () => {
    follower.close();
    await server.close();
  });
  const types = () => events.map(({ type }) => type);
  const last = (type: string) => events.findLast((event) => event.type === type);
  return { server, follower, events, clock, types, last };
}

t.test('it asks for the protocol with its token, and acknowledges what it has', async (t) => {
  const { server, follower, types } = await open(t);
  const first = await server.connection(0);
  t.equal(first.request.headers.authorization, 'Bearer secret');
  t.equal(first.request.headers['sec-websocket-protocol'], 'halo.kill-list.v1');
  t.equal(first.since, null, 'it holds nothing');
  first.send(snapshot(1, ['a'], true));
  first.send(snapshot(1, ['b']));
  first.send(delta(1, 2, ['c']));
  first.send(heartbeat(2));
  first.send(delta(1, 2, ['c']));
  first.send(heartbeat(2));
  await until(() => types().length >= 5);
  await until(() => first.acked.length >= 2);
  t.same(first.acked, [1, 2], 'each version once, no half list');
  t.same(types(), ['connected', 'list', 'change', 'heartbeat', 'heartbeat']);
  t.equal(follower.copy.version, 2);
});

t.test('it resumes where it is, and acknowledges to the next connection too', async (t) => {
  const { server, follower, last } = await open(t);
  const first = await server.connection(0);
  first.send(snapshot(7, ['a']));
  await until(() => first.acked.length > 0);
  first.socket.terminate();
  const second = await server.connection(1);
  t.equal(second.since, `${EPOCH}.7`);
  t.ok(follower.copy.find('agent', 'a', 0, 0), 'the list stays through the outage');
  second.send(heartbeat(7));
  await until(() => second.acked.length > 0);
  t.same(second.acked, [7]);
  t.match(last('disconnected'), { code: 1006 });
});

for (const [what, frames] of [
  ['a delta that skips', [delta(9, 10, ['x'])]],
  ['a heartbeat from ahead', [heartbeat(8)]],
  ['a heartbeat from behind', [heartbeat(6)]],
  ['an older snapshot', [snapshot(6, ['old'])]],
  ['what is no frame', [{ type: 'surprise', version: 8 }]],
] as const) {
  t.test(`after ${what} it connects again from where it is`, async (t) => {
    const { server, follower, types } = await open(t);
    const first = await server.connection(0);
    first.send(snapshot(7, ['a']));
    for (const frame of frames) first.send(frame);
    first.send(delta(7, 8, ['after']));
    const second = await server.connection(1);
    t.equal(second.since, `${EPOCH}.7`, 'and nothing that came later was taken');
    await until(() => first.closed() !== undefined);
    t.equal(first.closed(), 4000);
    t.equal(types().includes('gap'), what !== 'what is no frame');
    second.send(delta(7, 9, ['b']));
    await until(() => second.acked.includes(9));
    t.equal(follower.copy.version, 9);
  });
}

t.test('another epoch starts over', async (t) => {
  const { server, follower } = await open(t);
  const first = await server.connection(0);
  first.send(snapshot(7, ['a']));
  await until(() => first.acked.length > 0);
  first.socket.close(1012);
  const second = await server.connection(1);
  second.send(snapshot(2, ['b'], false, 'fedcba9876543210'));
  await until(() => second.acked.length > 0);
  t.same([follower.copy.epoch, follower.copy.version], ['fedcba9876543210', 2]);
  t.notOk(follower.copy.find('agent', 'a', 0, 0));
});

t.test('closes are followed by the pause that their code asks for', async (t) => {
  const { server, events, clock } = await open(t);
  const paused = async (index: number, code: number, reason = '') => {
    const connection = await server.connection(index);
    connection.send(snapshot(index + 1, []));
    await until(() => connection.acked.length > 0);
    clock.advance(10_000);
    const before = events.length;
    connection.socket.close(code, reason);
    await until(() => events.length > before);
    const told = events[before];
    return { type: told?.type, ms: told && 'retryInMs' in told ? told.retryInMs : -1 };
  };
  const restart = await paused(0, 1012, '{"retryAfterMs":5000}');
  t.ok(restart.ms >= 5_000 && restart.ms <= 5_250, `1012 when it was told: ${restart.ms}`);
  for (const [index, code] of [1012, 1013, 4408, 1008].entries()) {
    const { type, ms } = await paused(index + 1, code);
    t.equal(type, 'disconnected');
    t.ok(ms >= 100 && ms <= PAUSE_MIN_MS, `${code} soon: ${ms}`);
  }
  const out = await paused(5, 4403);
  t.equal(out.type, 'refused');
  t.ok(out.ms >= 60_000 && out.ms <= 90_000, `4403 rarely: ${out.ms}`);
  const odd = await paused(6, 1013, '{"retryAfterMs":1e12}');
  t.ok(odd.ms <= 61_000, 'nobody is sent away for ever');
});

t.test('a refused upgrade is tried again, a refused token rarely', async (t) => {
  const { server, follower, last } = await open(t);
  const first = await server.connection(0);
  first.send(snapshot(7, ['a']));
  await until(() => first.acked.length > 0);
  server.refusal = { status: 503, headers: { 'retry-after': '2' } };
  first.socket.terminate();
  await until(() => server.refused > 1);
  const told = last('disconnected') as { code: number; retryInMs: number };
  t.equal(told.code, 503);
  t.ok(told.retryInMs >= 2_000 && told.retryInMs <= 2_250, `${told.retryInMs}`);
  server.refusal = { status: 401 };
  await until(() => last('refused') !== undefined);
  t.ok((last('refused') as { retryInMs: number }).retryInMs >= 60_000);
  t.ok(follower.copy.find('agent', 'a', 0, 0), 'what is killed stays killed');
  server.refusal = undefined;
  t.equal((await server.connection(1)).since, `${EPOCH}.7`);
});

t.test('a server that falls silent is left', async (t) => {
  const { server, clock, follower } = await open(t);
  const first = await server.connection(0);
  first.send(snapshot(7, []));
  await until(() => first.acked.length > 0);
  first.socket.pause();
  clock.advance(14_000);
  t.equal(follower.isConnected, true);
  clock.advance(2_000);
  await server.connection(1);
});

t.test('several servers are tried in turn, and the token is asked for each time', async (t) => {
  const servers = [await startScripted(), await startScripted()];
  let asked = 0;
  const { follower } = follow(
    servers.map(({ url }) => url),
    async () => {
      asked += 1;
      if (asked === 2) throw new Error('the file is being replaced');
      return `token-${asked}`;
    },
  );
  t.teardown(async () => {
    follower.close();
    for (const server of servers) await server.close();
  });
  const first = await servers[0]!.connection(0);
  first.socket.terminate();
  const second = await servers[0]!.connection(1);
  t.equal(second.request.headers.authorization, 'Bearer token-3', 'a token that cannot be read');
  second.socket.terminate();
  const third = await servers[1]!.connection(0);
  t.equal(third.request.headers.authorization, 'Bearer token-4');
});

t.test('pauses grow to their bound, are spread, and start over after a stable time', async (t) => {
  const pause = new ReconnectPause(seededRandom(3));
  const grown: number[] = [];
  for (let failure = 1; failure <= 12; failure += 1) {
    pause.ended(0);
    grown.push(pause.nextMs());
  }
  grown.forEach((ms, index) => {
    const most = Math.min(PAUSE_MAX_MS, PAUSE_MIN_MS * 2 ** index);
    t.ok(ms >= most / 2 && ms <= most, `${index}: ${ms}`);
  });
  t.ok(new Set(grown).size === grown.length);
  pause.ended(5_000);
  t.ok(pause.nextMs() <= PAUSE_MIN_MS);
});

t.test('an address that is none is refused at once, also one that is not set', async (t) => {
  const follow = (url: unknown) => followKillList({ url: url as string, token: 'x' });
  for (const url of [undefined, null, '', 'halos.example', 'ws://x', [], ['http://x', undefined]]) {
    t.throws(() => follow(url), /^url must be an address/);
  }
});
