/** Gateways' tokens: who is let in, since when, and what front threads are told of it. */
import t from 'tap';
import {
  applyGatewaysRecord,
  type Gateway,
  GatewaysState,
  toGatewayAppend,
} from '../src/actors/gateways/state.js';
import type { Idempotency } from '../src/actors/idempotency.js';
import { digestOf } from '../src/actors/secrets.js';
import { codeOf } from './fixtures/device-replica.js';
import { type GatewayReplica, openGatewayReplicas } from './fixtures/gateway-replica.js';
import { keepAlive } from './fixtures/keep-alive.js';
import { until } from './fixtures/toy-actor.js';

keepAlive(t);

const EDGE = { name: 'edge', by: 'root' };
const key = (call: string, body = 'b'): { idempotency: Idempotency } => ({
  idempotency: { principal: 'admin:root', call, bodyHmac: body },
});

function ended(replica: GatewayReplica): string[] {
  return replica.news.flatMap((news) => (news.type === 'ended' ? news.credentials : []));
}

t.test('a gateway is let in by its token on every replica, and nobody else is', async (t) => {
  const { replicas } = await openGatewayReplicas(t);
  const [a, b] = replicas as [GatewayReplica, GatewayReplica];
  const one = await a.gateways.create(EDGE);
  const other = await b.gateways.create(EDGE);
  t.match(one, { id: /^gw_[0-9a-f-]{36}$/, name: 'edge', token: /^halo_gateway_[0-9A-Za-z]{49}$/ });
  t.not(one.id, other.id, 'two gateways may share a name');
  t.equal(await b.authenticate(one.token), one.id);
  t.equal(await a.authenticate(other.token), other.id);
  t.equal(await a.authenticate(`${one.token}x`), 'token_unknown');
  const { items } = await b.gateways.list({ behind: false, limit: 9 });
  t.same(
    items.map(({ id, name, connections }) => [id, name, connections]).sort(),
    [
      [one.id, 'edge', 0],
      [other.id, 'edge', 0],
    ].sort(),
  );
  t.notOk(items.some((item) => 'ackVersion' in item || 'ackAtMs' in item));
});

t.test(
  'after a rotation the new token works at once, the old one through its overlap',
  async (t) => {
    const { clock, replicas } = await openGatewayReplicas(t);
    const [a, b] = replicas as [GatewayReplica, GatewayReplica];
    const { id, token } = await a.gateways.create(EDGE);
    const rotate = (overlapSeconds: number) =>
      a.gateways.rotate({ id, overlapSeconds, by: 'root' });
    const second = (await rotate(60)).token;
    t.equal(await b.authenticate(second), id);
    t.equal(await b.authenticate(token), id);
    clock.advance(59_999);
    t.equal(await b.authenticate(token), id);
    t.same(ended(b), []);
    clock.advance(1);
    t.equal(await b.authenticate(token), 'token_unknown', 'on the store’s clock');
    await until(() => ended(b).length > 0);
    t.same(ended(b), [digestOf(token)], 'and its streams are to be closed');
    const third = (await rotate(0)).token;
    t.equal(await b.authenticate(second), 'token_unknown', 'no overlap, no second token');
    t.equal(await b.authenticate(third), id);
    t.same(ended(b), [digestOf(token), digestOf(second)]);
    const fourth = (await rotate(60)).token;
    await rotate(60);
    t.equal(await b.authenticate(third), 'token_unknown', 'at most one old token at a time');
    t.equal(await b.authenticate(fourth), id);
    const unknown = { id: 'gw_x', overlapSeconds: 1, by: 'root' };
    t.equal(await codeOf(a.gateways.rotate(unknown)), 'gateway_not_found');
  },
);

t.test('a removal is for good, on every replica, and its streams are told of', async (t) => {
  const { clock, replicas, another } = await openGatewayReplicas(t);
  const [a, b] = replicas as [GatewayReplica, GatewayReplica];
  const { id, token } = await a.gateways.create(EDGE);
  const { token: next } = await a.gateways.rotate({ id, overlapSeconds: 60, by: 'root' });
  const removed = await a.gateways.remove({ id, by: 'root' });
  t.equal(await b.authenticate(token), 'token_unknown');
  t.equal(await b.authenticate(next), 'token_unknown');
  for (const replica of [a, b]) {
    t.same(ended(replica).sort(), [digestOf(token), digestOf(next)].sort(), 'told in order');
  }
  clock.advance(1_000);
  t.same(await b.gateways.remove({ id, by: 'eve' }), removed, 'again changes nothing');
  const rotate = { id, overlapSeconds: 1, by: 'root' };
  t.equal(await codeOf(b.gateways.rotate(rotate)), 'gateway_not_found');
  t.equal(await codeOf(b.gateways.remove({ id: 'gw_x', by: 'root' })), 'gateway_not_found');
  t.same((await b.gateways.list({ behind: false, limit: 9 })).items, []);
  const fresh = await another();
  t.equal(await fresh.authenticate(next), 'token_unknown', 'nor does a replay undo it');
});

t.test('a front is told of a removal elsewhere within the poll, without traffic', async (t) => {
  const { replicas } = await openGatewayReplicas(t);
  const [a, b] = replicas as [GatewayReplica, GatewayReplica];
  const { id, token } = await a.gateways.create(EDGE);
  await a.gateways.remove({ id, by: 'root' });
  const sinceMs = Date.now();
  await until(() => ended(b).includes(digestOf(token)));
  t.ok(Date.now() - sinceMs < 1_000);
});

t.test('after each start every front is told all tokens that work, and no other', async (t) => {
  const { clock, replicas, another } = await openGatewayReplicas(t);
  const [a] = replicas as [GatewayReplica];
  const kept = await a.gateways.create(EDGE);
  const rotated = await a.gateways.create(EDGE);
  const gone = await a.gateways.create(EDGE);
  await a.gateways.remove({ id: gone.id, by: 'root' });
  const { token } = await a.gateways.rotate({ id: rotated.id, overlapSeconds: 60, by: 'root' });
  const last = await a.gateways.rotate({ id: kept.id, overlapSeconds: 1, by: 'root' });
  clock.advance(1_000);
  const fresh = await another();
  await until(() => fresh.news.some(({ type }) => type === 'live'));
  t.same(fresh.news.filter(({ type }) => type === 'live').length, 1);
  const live = fresh.news.find(({ type }) => type === 'live');
  t.same(
    [...(live?.credentials ?? [])].sort(),
    [rotated.token, token, last.token].map(digestOf).sort(),
  );
});

t.test('a call that is sent again makes nothing twice, and its token is a new one', async (t) => {
  const { replicas } = await openGatewayReplicas(t);
  const [a, b] = replicas as [GatewayReplica, GatewayReplica];
  const create = (replica: GatewayReplica, body?: string) =>
    replica.gateways.create({ ...EDGE, ...key('POST /gateways k', body) });
  const [first, again] = [await create(a), await create(b)];
  t.equal(again.id, first.id);
  t.equal(await a.authenticate(again.token), first.id);
  t.equal(await a.authenticate(first.token), 'token_unknown', 'the lost token is none any more');
  t.equal((await a.gateways.list({ behind: false, limit: 9 })).items.length, 1);
  t.equal(await codeOf(create(a, 'other')), 'idempotency_mismatch');
  const { id } = first;
  const rotate = (replica: GatewayReplica, call = 'POST /rotate k') =>
    replica.gateways.rotate({ id, overlapSeconds: 60, by: 'root', ...key(call) });
  const [lost, got] = [await rotate(a), await rotate(b)];
  t.equal(await a.authenticate(lost.token), 'token_unknown');
  t.equal(await a.authenticate(got.token), id);
  t.equal(await a.authenticate(again.token), id, 'the one before keeps its overlap');
  t.equal(await codeOf(create(a)), 'replay_superseded', 'its token was replaced since');
  await rotate(a, 'POST /rotate k2');
  t.equal(await codeOf(rotate(b)), 'replay_superseded');
  const remove = () => b.gateways.remove({ id, by: 'root', ...key('DELETE k') });
  t.same(await remove(), await remove());
  t.equal(await codeOf(rotate(a, 'POST /rotate k2')), 'replay_superseded');
});

t.test('no record of a gateway undoes its removal, in whatever order they come', async (t) => {
  const gateway: Gateway = {
    id: 'gw_1',
    name: 'edge',
    createdAtMs: 1,
    rotatedAtMs: undefined,
    digest: 'd',
    previousDigest: 'before',
    previousUntilMs: 9,
  };
  const removal = { id: 'gw_1', atMs: 2, by: 'root' };
  for (const format of [1, 2] as const) {
    const records = [
      toGatewayAppend({ type: 'gateway', gateway }, format),
      toGatewayAppend({ type: 'removal', removal }, format),
    ].map((append, index) => ({ ...append, id: index + 1, batch: 'b' }));
    for (const order of [records, records.toReversed()]) {
      const state = new GatewaysState();
      for (const record of order) applyGatewaysRecord(state, record);
      t.equal(state.byDigest.size + state.byId.size, 0);
      t.same(state.removals.get('gw_1'), removal);
    }
    const state = new GatewaysState();
    applyGatewaysRecord(state, records[0] as (typeof records)[0]);
    t.same(state.byId.get('gw_1'), gateway, `read as it was written in format ${format}`);
  }
});

t.test('a rotation and a removal that race end removed, whoever is first', async (t) => {
  const { replicas } = await openGatewayReplicas(t);
  const [a, b] = replicas as [GatewayReplica, GatewayReplica];
  for (let round = 0; round < 50; round += 1) {
    const { id } = await a.gateways.create(EDGE);
    const rotated = a.gateways
      .rotate({ id, overlapSeconds: 60, by: 'root' })
      .catch(() => undefined);
    await Promise.all([rotated, b.gateways.remove({ id, by: 'root' })]);
    const token = (await rotated)?.token;
    if (token) t.equal(await a.authenticate(token), 'token_unknown');
  }
  t.same((await a.gateways.list({ behind: false, limit: 9 })).items, []);
});

t.test('a list pages by age, and goes on where it was when what is there goes away', async (t) => {
  const { clock, replicas } = await openGatewayReplicas(t);
  const [a, b] = replicas as [GatewayReplica, GatewayReplica];
  const made: string[] = [];
  for (let index = 0; index < 5; index += 1) {
    made.push((await a.gateways.create({ name: `edge ${index}`, by: 'root' })).id);
    // The second and the third are of one millisecond, and stand in the order of their ids.
    if (index !== 1) clock.advance(1);
  }
  const [, second = '', third = ''] = made;
  if (second > third) made.splice(1, 2, third, second);
  const whole = await b.gateways.list({ behind: false, limit: 5 });
  t.same(
    whole.items.map(({ id }) => id),
    made,
  );
  t.notOk('next' in whole, 'a page that is just full is the last one');
  const first = await b.gateways.list({ behind: false, limit: 2 });
  t.same(
    first.items.map(({ id }) => id),
    made.slice(0, 2),
  );
  await a.gateways.remove({ id: made[1] ?? '', by: 'root' });
  await a.gateways.remove({ id: made[3] ?? '', by: 'root' });
  const { next: after = { createdAtMs: 0, id: '' } } = first;
  const rest = await b.gateways.list({ behind: false, limit: 2, after });
  t.same(
    rest.items.map(({ id }) => id),
    [made[2], made[4]],
  );
  t.notOk('next' in rest);
});
