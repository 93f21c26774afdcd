/**
 * What the migrations make, compared with test/schema.sql, so that a change of the schema is read
 * by whoever reviews it. After a new migration, write it anew with
 * `HALO_UPDATE_SCHEMA=1 node dist/test/migrations-schema.test.js`.
 */
import { readFileSync, writeFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import t from 'tap';
import { migrate } from '../src/storage/postgres/migrate.js';
import { readMigrations } from '../src/storage/postgres/migrations.js';
import { hasPostgres } from './fixtures/postgres-binaries.js';
import { startCluster } from './fixtures/postgres-database.js';
import { dumpSchema } from './fixtures/schema-dump.js';

const EXPECTED = fileURLToPath(new URL('../../test/schema.sql', import.meta.url));
const HEAD = '-- The schema after all migrations, as test/migrations-schema.test.ts reads it.\n\n';

for (const version of ['18', '15'] as const) {
  if (!hasPostgres(version)) continue;
  t.test(`the schema after all migrations is test/schema.sql on ${version}`, async (t) => {
    const cluster = await startCluster({ version });
    t.teardown(() => cluster.stop());
    const { ownerUrl } = await cluster.database();
    const schema = HEAD + (await dumpSchema(ownerUrl));
    if (process.env.HALO_UPDATE_SCHEMA === '1') writeFileSync(EXPECTED, schema);
    t.equal(schema, readFileSync(EXPECTED, 'utf8'));
  });
}

t.test('one migration after the other comes to the same as all at once', async (t) => {
  const cluster = await startCluster();
  t.teardown(() => cluster.stop());
  const { ownerUrl: url } = await cluster.emptyDatabase();
  const all = readMigrations();
  for (const { version } of all) await migrate({ url, migrations: all.slice(0, version) });
  t.equal(HEAD + (await dumpSchema(url)), readFileSync(EXPECTED, 'utf8'));
});
