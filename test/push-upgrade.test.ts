/**
 * How streams are upgraded: never inside a cork of their own response, which in this build of the
 * library closes a few of them at once (src/http/push/upgrade-batch.ts).
 */

import type { HttpResponse, us_socket_context_t, WebSocket } from 'uWebSockets.js';
import t from 'tap';
import type { KillStream, StreamSocketData } from '../src/http/push/kill-stream.js';
import { UpgradeBatch } from '../src/http/push/upgrade-batch.js';
import { systemClock } from '../src/runtime/clock.js';
import { type Asked, startFront, until } from './fixtures/http-front.js';
import { GATEWAY_TOKEN, PushFront } from './fixtures/push-front.js';
import { type NotUpgraded, StreamClient } from './fixtures/stream-client.js';

t.setTimeout(120_000);

/** Of one token on one front thread (`STREAMS_PER_TOKEN_MAX`). */
const STREAMS = 100;
const WAVES = 10;

const HANDSHAKE = { key: 'k', extensions: '', context: {} as us_socket_context_t };
const DATA: StreamSocketData = { stream: { credential: 'c' } as KillStream };

t.test(
  'a response is upgraded outside its cork, within a callback of another stream',
  async (t) => {
    const events: string[] = [];
    const noted = (name: string): HttpResponse => {
      const res = {
        upgrade: () => events.push(`upgrade ${name}`),
        cork: (work: () => void) => {
          events.push(`cork ${name}`);
          work();
          return res;
        },
      };
      return res as unknown as HttpResponse;
    };
    const helperOf = (of: UpgradeBatch): WebSocket<StreamSocketData> => {
      const subscribe = (): void => {
        events.push('subscribing');
        of.subscribed();
        events.push('subscribed');
      };
      return { subscribe, unsubscribe: () => undefined } as never;
    };
    const batch: UpgradeBatch = new UpgradeBatch(() => helperOf(batch));
    for (const name of ['a', 'b']) batch.add(noted(name), HANDSHAKE, DATA);
    t.same(events, [], 'not yet: the batch is what one turn brings');
    await Promise.resolve();
    t.same(events, ['subscribing', 'upgrade a', 'upgrade b', 'subscribed']);
    events.length = 0;
    let open: WebSocket<StreamSocketData> | undefined;
    const lonely: UpgradeBatch = new UpgradeBatch(() => open);
    const opening = {
      upgrade: () => {
        open = helperOf(lonely);
        events.push('upgrade first');
      },
    };
    lonely.add(opening as unknown as HttpResponse, HANDSHAKE, DATA);
    for (const name of ['second', 'third']) lonely.add(noted(name), HANDSHAKE, DATA);
    await Promise.resolve();
    t.same(
      events,
      ['upgrade first', 'subscribing', 'upgrade second', 'upgrade third', 'subscribed'],
      'the first of a thread helps those that came with it',
    );
    events.length = 0;
    new UpgradeBatch(() => undefined).add(noted('first'), HANDSHAKE, DATA);
    await Promise.resolve();
    t.same(events, ['upgrade first'], 'alone it has no other to help it');
  },
);

t.test('of a thousand streams opened in waves of a hundred not one is lost', async (t) => {
  const push = await PushFront.start();
  t.teardown(() => push.close());
  await until(() => push.front.server.snapshot().push?.version === 0);
  push.kill('a');
  const lost: string[] = [];
  for (let wave = 0; wave < WAVES; wave += 1) {
    const opened = await Promise.allSettled(
      Array.from({ length: STREAMS }, () =>
        StreamClient.open(push.front.url, { token: GATEWAY_TOKEN, acks: true }),
      ),
    );
    const clients = opened.flatMap((result) =>
      result.status === 'fulfilled' ? [result.value] : [],
    );
    for (const result of opened) {
      if (result.status === 'rejected') lost.push(`wave ${wave}: ${result.reason}`);
    }
    push.kill(`wave-${wave}`);
    const { version } = push;
    await until(() =>
      clients.every(({ list, closed }) => list.version === version || closed !== undefined),
    );
    for (const { closed, list } of clients) {
      if (closed !== undefined) lost.push(`wave ${wave}: closed with ${closed.code}`);
      lost.push(...list.faults);
    }
    for (const client of clients) client.destroy();
    await until(() => push.front.server.snapshot().push?.streams === 0);
  }
  t.same(lost, []);
});

t.test(
  'of several hundred admitted in one turn, one token gets as many as it may have',
  async (t) => {
    const asked: Asked[] = [];
    const front = await startFront({
      gateways: (one) => {
        if (one.kind === 'authenticate') asked.push(one);
        return one.kind === 'report' ? { answer: true } : undefined;
      },
    });
    t.teardown(() => front.close());
    await until(() => front.server.snapshot().push?.version === 7);
    const opening = Array.from({ length: 4 * STREAMS }, () =>
      StreamClient.open(front.url, { token: GATEWAY_TOKEN }),
    );
    const opened = Promise.allSettled(opening);
    await until(() => asked.length === opening.length);
    // As the channel does: all answers of one message in one turn.
    for (const { sink } of asked) sink.answered('gw_1', systemClock.monotonicMs());
    const clients: StreamClient[] = [];
    const codes: string[] = [];
    for (const result of await opened) {
      if (result.status === 'fulfilled') clients.push(result.value);
      else codes.push((result.reason as NotUpgraded).code);
    }
    t.equal(clients.length, STREAMS);
    t.same(codes, Array(3 * STREAMS).fill('too_many_streams'));
    t.equal(front.server.snapshot().push?.streams, STREAMS);
    for (const client of clients) client.destroy();
    await until(() => front.server.snapshot().push?.streams === 0);
  },
);
