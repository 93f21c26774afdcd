/** What gateways acknowledged, over all front threads and replicas. */
import t from 'tap';
import { ACK_TTL_MS } from '../src/actors/gateways/open-streams.js';
import { type GatewayReplica, openGatewayReplicas } from './fixtures/gateway-replica.js';
import { keepAlive } from './fixtures/keep-alive.js';
import { until } from './fixtures/toy-actor.js';

keepAlive(t);

const EDGE = { name: 'edge', by: 'root' };
const KILL = { kind: 'agent', id: 'a', reason: 'r', by: 'root' };

async function open(t: Parameters<typeof openGatewayReplicas>[0]) {
  const { clock, database, replicas, another } = await openGatewayReplicas(t);
  const [a, b] = replicas as [GatewayReplica, GatewayReplica];
  for (const id of ['a', 'b', 'c']) await a.kills.kill({ ...KILL, id });
  const { id: gateway } = await a.gateways.create(EDGE);
  const { epoch } = await a.kills.version();
  const report = (
    replica: GatewayReplica,
    front: string,
    connections: number,
    ackVersion: number,
    of = epoch,
  ) =>
    replica.gateways.report({ front, epoch: of, gateways: [{ gateway, connections, ackVersion }] });
  const seenBy = async (replica: GatewayReplica) => {
    const { items } = await replica.gateways.list({ behind: false, limit: 9 });
    return items.find(({ id }) => id === gateway);
  };
  /** Resolves once that replica sees so much. */
  const sees = async (replica: GatewayReplica, connections: number, ackVersion?: number) => {
    let seen = await seenBy(replica);
    const deadlineMs = Date.now() + 5_000;
    while (seen?.connections !== connections || seen.ackVersion !== ackVersion) {
      if (Date.now() > deadlineMs) throw new Error(`it saw ${JSON.stringify(seen)}`);
      await new Promise((resolve) => setTimeout(resolve, 20));
      seen = await seenBy(replica);
    }
    return seen;
  };
  return { clock, database, a, b, gateway, epoch, report, seenBy, sees, another };
}

t.test('connections are summed and the least counts, over fronts and replicas', async (t) => {
  const { clock, a, b, report, seenBy, sees } = await open(t);
  await report(a, 'front-0', 2, 3);
  await report(a, 'front-1', 1, 2);
  t.match(await seenBy(a), { connections: 3, ackVersion: 2 }, 'at once where it was reported');
  const seen = await sees(b, 3, 2);
  t.ok(Math.abs((seen.ackAtMs ?? 0) - clock.wallMs()) <= 1_000, 'and when that was so');
  await report(b, 'front-0', 1, 0);
  await sees(a, 4, 0);
  await report(b, 'front-0', 1, 3);
  await report(a, 'front-1', 1, 3);
  await sees(b, 4, 3);
  await a.gateways.report({
    front: 'front-0',
    epoch: (await a.kills.version()).epoch,
    gateways: [],
  });
  await sees(b, 2, 3);
});

t.test('those behind are connected ones below the version', async (t) => {
  const { a, b, gateway, epoch, report } = await open(t);
  await a.gateways.create({ ...EDGE, name: 'never connected' });
  const behind = async () =>
    (await a.gateways.list({ behind: true, limit: 9 })).items.map(({ id }) => id);
  t.same(await behind(), []);
  await report(a, 'f', 1, 2);
  t.same(await behind(), [gateway]);
  await report(a, 'f', 1, 3);
  t.same(await behind(), []);
  const { version } = await b.kills.kill({ ...KILL, id: 'd' });
  t.same(await behind(), [gateway], 'a kill made on another replica puts it behind at once');
  await report(a, 'f', 1, version);
  t.match(await a.gateways.list({ behind: true, limit: 9 }), { items: [], epoch, version });
});

t.test('nobody has acknowledged more than there is, nor another epoch', async (t) => {
  const { a, gateway, report, seenBy } = await open(t);
  await report(a, 'f', 1, 99);
  t.match(await seenBy(a), { connections: 1, ackVersion: 3 });
  await a.kills.kill({ ...KILL, id: 'd' });
  const { items } = await a.gateways.list({ behind: true, limit: 9 });
  t.same(
    items.map(({ id }) => id),
    [gateway],
    'who acknowledged the future is behind all the same',
  );
  await report(a, 'f', 1, 4, 'ffffffffffffffff');
  t.match(await seenBy(a), { connections: 0 });
});

t.test('a replica that dies is forgotten after 10 s, one that stops at once', async (t) => {
  const { clock, a, b, epoch, gateway, report, seenBy, sees } = await open(t);
  await b.store.recordGatewayAcks(
    `${epoch}.dead`,
    [{ gateway, connections: 5, ackVersion: 1 }],
    ACK_TTL_MS,
  );
  const other = '0000000000000000.old';
  await b.store.recordGatewayAcks(other, [{ gateway, connections: 7, ackVersion: 9 }], ACK_TTL_MS);
  t.match(await seenBy(a), { connections: 5, ackVersion: 1 }, 'of this epoch only');
  clock.advance(ACK_TTL_MS - 1);
  t.match(await seenBy(a), { connections: 5 });
  clock.advance(1);
  t.match(await seenBy(a), { connections: 0, ackVersion: undefined });
  await report(b, 'f', 1, 3);
  await sees(a, 1, 3);
  await b.host.close();
  t.match(await seenBy(a), { connections: 0 });
});

t.test(
  'while nothing is open nothing is written, and a front that falls silent is gone',
  async (t) => {
    let writes = 0;
    const counting = {
      before: (operation: string) => {
        if (operation === 'gatewayAcks') writes += 1;
      },
    };
    const { replicas } = await openGatewayReplicas(t, [counting]);
    const [a] = replicas as [GatewayReplica];
    let polls = 0;
    const timer = setInterval(() => {
      polls += 1;
    }, 100);
    t.teardown(() => clearInterval(timer));
    await until(() => polls >= 15);
    t.equal(writes, 0);
    const { epoch } = await a.kills.version();
    const { id } = await a.gateways.create(EDGE);
    await a.gateways.report({
      front: 'f',
      epoch,
      gateways: [{ gateway: id, connections: 1, ackVersion: 0 }],
    });
    await until(() => writes > 1);
    const rows = async () => (await a.store.gatewayAcks()).length;
    t.equal(await rows(), 1);
    const silentSinceMs = Date.now();
    while ((await rows()) > 0 && Date.now() - silentSinceMs < 9_000) {
      await new Promise((resolve) => setTimeout(resolve, 100));
    }
    t.equal(await rows(), 0);
  },
);
