/** The contract of the storage seam on PostgreSQL, as a role that has only DML. */
import t from 'tap';
import { contractBackend } from './fixtures/postgres-contract.js';
import { startCluster } from './fixtures/postgres-database.js';
import { registerStorageContract } from './storage-contract.js';

const cluster = await startCluster();
t.teardown(() => cluster.stop());

// Most of the time is spent waiting for something to expire, and each test has its own database.
t.jobs = 4;
registerStorageContract(contractBackend('postgres', cluster));
