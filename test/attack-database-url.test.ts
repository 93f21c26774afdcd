/** A database URL that is almost right is refused at once, rather than read as another one. */
import t from 'tap';
import { clientConfig } from '../src/storage/postgres/connection.js';
import { DatabaseError } from '../src/storage/postgres/database-error.js';

function refusal(url: string): string {
  try {
    clientConfig({ url });
    return 'accepted';
  } catch (error) {
    return error instanceof DatabaseError ? error.code : String(error);
  }
}

t.test('a port that is none is refused, where the default would be somebody else’s', async (t) => {
  for (const port of [
    'abc',
    '0',
    '-1',
    '65536',
    '99999',
    '1.5',
    '5432x',
    '%205432',
    '0x10',
    '1e3',
  ]) {
    t.equal(refusal(`postgres://u@127.0.0.1/x?port=${port}`), 'database_url_invalid', port);
  }
  for (const port of ['0', '65536', 'abc']) {
    t.equal(refusal(`postgres://u@127.0.0.1:${port}/x`), 'database_url_invalid', port);
  }
  t.equal(clientConfig({ url: 'postgres://u@127.0.0.1/x?port=65535' }).port, 65_535);
  t.equal(clientConfig({ url: 'postgres://u@127.0.0.1:1/x' }).port, 1);
  t.equal(clientConfig({ url: 'postgres://u@127.0.0.1/x?port=' }).port, 5432);
});

t.test('a NUL, with which a name could become another setting, is refused', async (t) => {
  for (const url of [
    'postgres://u%00x@127.0.0.1/d',
    'postgres://u:p%00x@127.0.0.1/d',
    'postgres://u@127.0.0.1/d%00options%00-c%20fsync=off',
    'postgres://u@127.0.0.1/d?application_name=a%00b',
    'postgres://u@127.0.0.1/d?options=%00',
    'postgres://u@/d?host=/tmp%00',
  ]) {
    t.equal(refusal(url), 'database_url_invalid', url);
  }
});

t.test('certificates are not named in vain', async (t) => {
  for (const name of ['sslrootcert', 'sslcert', 'sslkey']) {
    for (const mode of ['', '&sslmode=disable']) {
      const url = `postgres://u@127.0.0.1/d?${name}=/etc/x.pem${mode}`;
      t.equal(refusal(url), 'database_url_invalid', url);
    }
  }
});

t.test('a role or a database may have any name', async (t) => {
  for (const name of ['ro le"x', "o'x", 'рöле', 'a@b:c/d?e#f&g', '%41', 'UPPER', '😀', '..']) {
    const url = `postgres://${encodeURIComponent(name)}:p@127.0.0.1/${encodeURIComponent(name)}`;
    const { user, database } = clientConfig({ url });
    t.same([user, database], [name, name]);
  }
});
