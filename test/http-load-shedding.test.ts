/** What a front thread does with more than it can serve: one turn of its loop, held open here. */
import t, { type Test } from 'tap';
import { ROUTE_WEIGHT, TURN_TAKES_MIN, TURN_TAKES_MS } from '../src/http/load-shedding.js';
import type { Clock } from '../src/runtime/clock.js';
import { systemClock } from '../src/runtime/clock.js';
import { call, type Received } from './fixtures/http-client.js';
import {
  ADMIN_TOKEN,
  CREDENTIAL,
  DEVICE_ID,
  type Front,
  freshSecret,
  startFront,
} from './fixtures/http-front.js';

const AUTH = '/api/v1/auth/device';
const DEVICE = `/api/v1/devices/${DEVICE_ID}`;

/** A clock whose turns end only when the test says so, and that can be made to have moved on. */
class HeldClock implements Clock {
  private readonly held: (() => void)[] = [];
  private aheadMs = 0;
  private standsAtMs: number | undefined;

  wallMs = (): number => systemClock.wallMs();
  schedule = systemClock.schedule;
  monotonicMs = (): number => this.standsAtMs ?? systemClock.monotonicMs() + this.aheadMs;
  afterTurn = (callback: () => void): void => {
    this.held.push(callback);
  };

  move(ms: number): void {
    if (this.standsAtMs !== undefined) this.standsAtMs += ms;
  }

  stand(): void {
    this.standsAtMs = this.monotonicMs();
  }

  pass(ms: number): void {
    this.aheadMs += ms;
  }

  endTurn(): void {
    for (const callback of this.held.splice(0)) callback();
  }
}

async function start(t: Test): Promise<{ front: Front; clock: HeldClock }> {
  const clock = new HeldClock();
  const front = await startFront({ clock });
  t.teardown(() => front.close());
  return { front, clock };
}

function authenticate({ url }: Front, headers: Record<string, string> = {}): Promise<Received> {
  return call(url, 'GET', AUTH, { bearer: CREDENTIAL, headers });
}

async function take(front: Front, count: number): Promise<Received[]> {
  const answers: Received[] = [];
  for (let at = 0; at < count; at += 1) answers.push(await authenticate(front));
  return answers;
}

/** Takes requests until the turn refuses one. */
async function spend(front: Front, clock: HeldClock): Promise<Received> {
  await take(front, TURN_TAKES_MIN);
  clock.pass(TURN_TAKES_MS + 1);
  for (let more = 0; more < 100; more += 1) {
    const answer = await authenticate(front);
    if (answer.status === 503) return answer;
  }
  throw new Error('no request was refused');
}

t.test('a turn that lasts too long with many requests refuses the rest at once', async (t) => {
  const { front, clock } = await start(t);
  const asked = front.actor.asked.length;
  const refused = await spend(front, clock);
  t.match(refused.json, { status: 503, code: 'overloaded', retryable: true });
  t.match(refused.headers, {
    'content-type': 'application/problem+json',
    'cache-control': 'no-store',
    'retry-after': /^\d+$/,
    'x-request-id': refused.json.requestId,
  });
  const taken = front.actor.asked.length - asked;
  t.ok(taken >= TURN_TAKES_MIN && taken < TURN_TAKES_MIN + 20, `${taken} were taken`);
  const own = await authenticate(front, { 'x-request-id': 'mine-1' });
  t.same([own.status, own.json.requestId], [503, 'mine-1'], 'the caller’s own id is repeated');
  const odd = await authenticate(front, { 'x-request-id': 'a b"c' });
  t.not(odd.json.requestId, 'a b"c', 'unless it is not sane');
  clock.endTurn();
  t.equal((await authenticate(front)).status, 200, 'the next turn takes requests again');
});

t.test('what was taken goes to its actors before the rest is refused, once a turn', async (t) => {
  const clock = new HeldClock();
  let sent = 0;
  const sendAsks = (): void => {
    sent += 1;
  };
  const front = await startFront({ clock, sendAsks });
  t.teardown(() => front.close());
  await take(front, 3);
  t.equal(sent, 0, 'a turn that refuses nothing sends at its end');
  await spend(front, clock);
  await authenticate(front);
  t.equal(sent, 1);
  clock.endTurn();
  await spend(front, clock);
  t.equal(sent, 2);
});

t.test('few requests are never refused, however long the turn lasts', async (t) => {
  const { front, clock } = await start(t);
  await take(front, 1);
  // Less than would make what is known too old to let anybody in.
  clock.pass(500);
  t.ok(TURN_TAKES_MIN >= 256, 'a client with many connections is never refused');
  const answers = await take(front, TURN_TAKES_MIN - 1);
  t.ok(answers.every(({ status }) => status === 200));
});

t.test('many requests in a short turn are all taken', async (t) => {
  const { front, clock } = await start(t);
  clock.stand();
  const answers = await take(front, TURN_TAKES_MIN * 2);
  t.ok(answers.every(({ status }) => status === 200));
});

t.test('who may end an overload, and who asks for health, is served all the same', async (t) => {
  const { front, clock } = await start(t);
  await spend(front, clock);
  const body = { reason: 'lost' };
  const revoked = await call(front.url, 'POST', `${DEVICE}/revoke`, { bearer: ADMIN_TOKEN, body });
  t.equal(revoked.status, 200, 'a revocation');
  const killed = await call(front.url, 'PUT', '/api/v1/kill-list/agent/a', {
    bearer: ADMIN_TOKEN,
    body,
  });
  t.equal(killed.status, 200, 'a kill');
  for (const path of ['/healthz', '/readyz', '/openapi.json']) {
    t.equal((await call(front.url, 'GET', path)).status, 200, path);
  }
  const listed = await call(front.url, 'GET', DEVICE, { bearer: ADMIN_TOKEN });
  t.match(listed, { status: 503, json: { code: 'overloaded' } }, 'but not who only looks');
  const head = await call(front.url, 'HEAD', AUTH, { bearer: CREDENTIAL });
  t.match(head, { status: 200, text: '' }, 'a HEAD has no short way');
});

t.test('refusals are counted one by one and logged together', async (t) => {
  const { front, clock } = await start(t);
  await spend(front, clock);
  for (let more = 0; more < 20; more += 1) await authenticate(front);
  await call(front.url, 'GET', DEVICE, { bearer: ADMIN_TOKEN });
  const body = { token: freshSecret('enroll'), name: 'laptop', platform: 'linux' };
  const enrolling = await call(front.url, 'POST', '/api/v1/enroll', { body });
  t.match(enrolling, { status: 503, json: { code: 'overloaded' } }, 'who may come later waits');
  const { requests, failures, inFlight } = front.server.snapshot();
  const shed = requests.filter(({ status }) => status === 503);
  t.equal(
    shed.reduce((sum, { count }) => sum + count, 0),
    23,
  );
  t.match(failures, [{ code: 'overloaded', count: 23 }]);
  t.equal(inFlight, 0);
  const lines = (): unknown[] => front.log.lines.filter(({ level }) => level === 'warn');
  t.match(lines(), [{ refused: 1 }], 'the first one at once');
  clock.pass(1_500);
  await authenticate(front);
  t.match(lines(), [{ refused: 1 }, { refused: 23 }], 'the others a second later');
  t.equal(front.log.lines.filter(({ status }) => status === 503).length, 0, 'no line for each');
});

t.test('what is dearer than an authentication counts for several', async (t) => {
  const { front, clock } = await start(t);
  clock.stand();
  const look = (): Promise<Received> => call(front.url, 'GET', DEVICE, { bearer: ADMIN_TOKEN });
  for (let at = 0; at < TURN_TAKES_MIN / ROUTE_WEIGHT; at += 1) {
    if ((await look()).status !== 200) t.fail('taken within the share of such requests');
  }
  clock.move(TURN_TAKES_MS + 1);
  const statuses = [(await look()).status, (await look()).status];
  t.same(statuses.at(-1), 503, 'and no more than that');
});
