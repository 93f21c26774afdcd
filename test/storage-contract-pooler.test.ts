/** The contract of the storage seam behind a pooler in transaction mode. */
import t from 'tap';
import { hasPgbouncer, startPgbouncer } from './fixtures/pgbouncer.js';
import { contractBackend } from './fixtures/postgres-contract.js';
import { startCluster } from './fixtures/postgres-database.js';
import { registerStorageContract } from './storage-contract.js';

if (hasPgbouncer()) {
  const cluster = await startCluster();
  const pooler = await startPgbouncer(cluster.server, ['halo_serving']);
  t.teardown(async () => {
    await pooler.stop();
    await cluster.stop();
  });
  t.jobs = 4;
  const urlOf = ({ url }: { url: string }): string => pooler.urlOf(url);
  registerStorageContract(contractBackend('pooler', cluster, { urlOf, pooled: true }));
} else {
  t.not(process.env.CI, 'true', 'pgbouncer is not installed: the pooler was not tried');
}
