/** The contract of the storage seam on the older of the two releases that are tried. */
import t from 'tap';
import { hasPostgres } from './fixtures/postgres-binaries.js';
import { contractBackend } from './fixtures/postgres-contract.js';
import { startCluster } from './fixtures/postgres-database.js';
import { registerStorageContract } from './storage-contract.js';

if (hasPostgres('15')) {
  const cluster = await startCluster({ version: '15' });
  t.teardown(() => cluster.stop());
  t.jobs = 4;
  registerStorageContract(contractBackend('postgres 15', cluster));
} else {
  t.pass('PostgreSQL 15 is not installed: only 18 was tried');
}
