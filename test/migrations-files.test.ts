/** Which files are migrations, and what each must say. */
import { readdirSync } from 'node:fs';
import t from 'tap';
import { readMigrations } from '../src/storage/postgres/migrations.js';

const HEADER = '-- min-binary-schema: 1\nSELECT 1;\n';

t.test('this binary has migrations from 1 on, each with a header', async (t) => {
  const migrations = readMigrations();
  t.ok(migrations.length >= 1);
  t.same(
    migrations.map(({ version }) => version),
    migrations.map((_, index) => index + 1),
  );
  for (const { minBinary, version } of migrations) t.ok(minBinary >= 1 && minBinary <= version);
  const files = readdirSync(new URL('../../migrations/', import.meta.url));
  t.equal(files.length, migrations.length, 'and nothing else lies beside them');
});

t.test('a file that is misnamed, missing or headless is refused', async (t) => {
  const bad: Record<string, Record<string, string>> = {
    gap: { '0001_a.sql': HEADER, '0003_c.sql': HEADER },
    twice: { '0001_a.sql': HEADER, '0001_b.sql': HEADER },
    start: { '0002_a.sql': HEADER },
    name: { '1_a.sql': HEADER },
    kind: { '0001_a.sql': HEADER, 'README.md': HEADER },
    header: { '0001_a.sql': 'SELECT 1;\n' },
    late: { '0001_a.sql': `\n${HEADER}` },
    zero: { '0001_a.sql': '-- min-binary-schema: 0\n' },
    future: { '0001_a.sql': '-- min-binary-schema: 2\n' },
    empty: {},
  };
  for (const [name, files] of Object.entries(bad)) {
    const folder = t.testdir({ [name]: files });
    t.throws(() => readMigrations(`${folder}/${name}`), { code: 'migration_invalid' }, name);
  }
});

t.test('the header and the name are read', async (t) => {
  const folder = t.testdir({
    '0001_init.sql': HEADER,
    '0002_more_tables.sql': '-- min-binary-schema: 2\nSELECT 2;\n',
  });
  t.match(readMigrations(folder), [
    { version: 1, name: 'init', minBinary: 1 },
    { version: 2, name: 'more_tables', minBinary: 2, sql: /SELECT 2/ },
  ]);
});
