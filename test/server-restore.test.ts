import t from 'tap';
import { startHaloCluster } from './fixtures/halo-cluster.js';
import { eventually, type HaloServer } from './fixtures/halo-server.js';

// Real servers, and faults that take their time.
t.setTimeout(240_000);

t.test(
  'after a restore to an older state: unready, a replay, right answers, no mixture',
  async (t) => {
    const halo = await startHaloCluster(2);
    t.teardown(() => halo.stop());
    const { cluster, database } = halo;
    const [a, b] = halo.servers as [HaloServer, HaloServer];
    const epochOf = async (server: HaloServer): Promise<string> =>
      (await server.admin('GET', '/v1/status')).json.epoch;
    const kept = await a.enrol();
    const revokedLater = await a.enrol();
    await database.sql('CREATE TABLE backup_journal AS SELECT * FROM halo_journal');
    await database.sql('CREATE TABLE backup_kv AS SELECT * FROM halo_kv');
    await database.sql('CREATE TABLE backup_store AS SELECT * FROM halo_store');
    const lost = await b.enrol();
    await a.admin('POST', `/api/v1/devices/${revokedLater.id}/revoke`, { reason: 'lost' });
    t.equal(await b.authenticate(lost.credential), 'in');
    t.equal(await b.authenticate(revokedLater.credential), 'device_revoked');
    await eventually(async () => (await epochOf(a)) !== '', 3_000);
    const before = await epochOf(a);

    await database.sql(`BEGIN;
    DELETE FROM halo_journal; INSERT INTO halo_journal OVERRIDING SYSTEM VALUE
      SELECT * FROM backup_journal;
    DELETE FROM halo_kv; INSERT INTO halo_kv SELECT * FROM backup_kv;
    DELETE FROM halo_store; INSERT INTO halo_store SELECT * FROM backup_store;
    COMMIT`);
    await cluster.server.sql('SELECT 1');
    for (const server of [a, b]) {
      const seen = new Set<string>();
      await eventually(
        async () => {
          const code = await server.authenticate(lost.credential);
          seen.add(code);
          return code === 'device_unknown';
        },
        10_000,
        'the replay',
      );
      t.notOk(seen.has('in'), 'a lost device is not let in from the old view');
      t.equal(await server.authenticate(kept.credential), 'in');
      t.equal(
        await server.authenticate(revokedLater.credential),
        'in',
        'as the restored store says',
      );
    }
    await eventually(async () => (await epochOf(a)) !== before, 5_000, 'another epoch');
    await eventually(
      async () => (await epochOf(a)) === (await epochOf(b)),
      5_000,
      'the same epoch',
    );
    const next = await a.enrol();
    t.equal(await b.authenticate(next.credential), 'in');
  },
);
