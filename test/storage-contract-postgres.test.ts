/** The contract of the storage seam on PostgreSQL, as a role that has only DML. */
import t from 'tap';
import { systemClock } from '../src/runtime/clock.js';
import { systemRandom } from '../src/runtime/random.js';
import { PostgresStore } from '../src/storage/postgres/postgres-store.js';
import { startCluster } from './fixtures/postgres-database.js';
import { registerStorageContract } from './storage-contract.js';

const cluster = await startCluster();
t.teardown(() => cluster.stop());

registerStorageContract({
  name: 'postgres',
  async open() {
    const { url } = await cluster.database();
    const stores: PostgresStore[] = [];
    const another = async (): Promise<PostgresStore> => {
      const store = new PostgresStore({
        url,
        pooled: false,
        connectionsMax: 4,
        clock: systemClock,
        random: systemRandom,
      });
      stores.push(store);
      return store;
    };
    return {
      store: await another(),
      another,
      close: async () => {
        await Promise.all(stores.map((store) => store.close()));
      },
    };
  },
});
