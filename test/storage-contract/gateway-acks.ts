/** Contract: what replicas tell each other about the gateways that are connected to them. */
import t from 'tap';
import type { ContractBackend } from '../storage-contract.js';
import { LIFE_MS, pass, storeTimeMs } from './view.js';

export function registerGatewayAcks(backend: ContractBackend): void {
  const { name } = backend;

  t.test(`${name}: what a replica writes of its gateways replaces what it wrote`, async (t) => {
    const opened = await backend.open();
    t.teardown(() => opened.close());
    const other = await opened.another();
    const facts = async () =>
      (await other.gatewayAcks()).map(({ expiresAtMs: _, ...facts }) => facts);
    t.same(await facts(), []);
    await opened.store.recordGatewayAcks('a', [], 60_000);
    const beforeMs = await storeTimeMs(opened.store);
    await opened.store.recordGatewayAcks(
      'a',
      [
        { gateway: 'g2', connections: 1, ackVersion: 0 },
        { gateway: 'g1', connections: 2, ackVersion: 7 },
      ],
      60_000,
    );
    const afterMs = await storeTimeMs(opened.store);
    await other.recordGatewayAcks('b', [{ gateway: 'g1', connections: 3, ackVersion: 5 }], 60_000);
    t.same(await facts(), [
      { gateway: 'g1', replicaStart: 'a', connections: 2, ackVersion: 7 },
      { gateway: 'g2', replicaStart: 'a', connections: 1, ackVersion: 0 },
      { gateway: 'g1', replicaStart: 'b', connections: 3, ackVersion: 5 },
    ]);
    const [row] = await other.gatewayAcks();
    const endMs = row?.expiresAtMs ?? 0;
    t.ok(endMs >= beforeMs + 60_000 - 1 && endMs <= afterMs + 60_000 + 1, 'on the store’s clock');
    await opened.store.recordGatewayAcks(
      'a',
      [{ gateway: 'g2', connections: 4, ackVersion: 9 }],
      60_000,
    );
    t.same(await facts(), [
      { gateway: 'g2', replicaStart: 'a', connections: 4, ackVersion: 9 },
      { gateway: 'g1', replicaStart: 'b', connections: 3, ackVersion: 5 },
    ]);
    await opened.store.recordGatewayAcks('a', [], 60_000);
    t.equal((await facts()).length, 1, 'the other replica’s row stays');
  });

  t.test(
    `${name}: the rows of a replica that is silent expire, those renewed do not`,
    async (t) => {
      const opened = await backend.open();
      t.teardown(() => opened.close());
      const { store } = opened;
      const acks = [{ gateway: 'g', connections: 1, ackVersion: 1 }];
      await store.recordGatewayAcks('dead', acks, LIFE_MS);
      await store.recordGatewayAcks('alive', acks, LIFE_MS);
      t.equal((await store.gatewayAcks()).length, 2);
      await pass(opened, LIFE_MS / 2);
      await store.recordGatewayAcks('alive', acks, 60_000);
      await pass(opened, LIFE_MS / 2 + 100);
      t.same(
        (await store.gatewayAcks()).map(({ replicaStart }) => replicaStart),
        ['alive'],
      );
      await store.sweep(100);
      t.equal((await store.gatewayAcks()).length, 1, 'a sweep takes nothing that lives');
    },
  );
}
