/** What a database URL may say, and that a verified server really is verified. */
import { chownSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import pg from 'pg';
import t from 'tap';
import { clientConfig } from '../src/storage/postgres/connection.js';
import { selfSigned } from './fixtures/certificate.js';
import { makeDataFolder, postgresIdentity } from './fixtures/postgres-binaries.js';
import { type PostgresServer, startPostgres } from './fixtures/postgres-server.js';

const SECRET = 'pass-w0rd';

function codeOf(url: string, insecureTls = false): string {
  try {
    clientConfig({ url, insecureTls });
    return 'accepted';
  } catch (error) {
    const { code, message } = error as { code: string; message: string };
    t.notMatch(message, SECRET, 'no message repeats the password');
    t.notMatch(message, 'db.example', 'nor the host');
    return code;
  }
}

t.test('a URL to another host must say verify-full', async (t) => {
  const away = `postgres://u:${SECRET}@db.example:5433/halos`;
  for (const query of ['', '?sslmode=disable', '?sslmode=require', '?sslmode=verify-ca']) {
    t.equal(codeOf(away + query), 'database_tls_required', query);
  }
  for (const host of [
    '10.0.0.1',
    '[2001:db8::1]',
    '0.0.0.0',
    'localhost.example',
    '127.0.0.1.example',
  ]) {
    t.equal(codeOf(`postgres://u@${host}/halos`), 'database_tls_required', host);
  }
  t.equal(codeOf(`${away}?sslmode=verify-full`), 'accepted');
  t.equal(codeOf(away, true), 'accepted', 'unless the operator insists');
  t.equal(codeOf(`${away}?sslmode=require`, true), 'accepted');
});

t.test('a URL to this machine may do without TLS', async (t) => {
  for (const host of ['localhost', '127.0.0.1', '127.9.9.9', '[::1]', '[::ffff:127.0.0.1]', '']) {
    t.equal(codeOf(`postgres://u@${host}/halos`), 'accepted', host);
  }
  t.equal(codeOf('postgres://u@/halos?host=/var/run/postgresql'), 'accepted');
  t.equal(
    codeOf('postgres://u@127.0.0.1/halos?host=db.example'),
    'database_tls_required',
    'the parameter is what counts',
  );
});

t.test('a URL that cannot be read is refused without being repeated', async (t) => {
  const bad = [
    `not a url ${SECRET}`,
    `mysql://u:${SECRET}@localhost/x`,
    `postgres://localhost/x?password=${SECRET}`,
    `postgres://u:${SECRET}@localhost/x?sslmode=prefer`,
    `postgres://u:${SECRET}@localhost/x?sslmode=verify-full&sslmode=disable`,
    `postgres://u:${SECRET}@localhost/x?sslmode=verify-full&uselibpqcompat=true`,
    `postgres://u:${SECRET}%zz@localhost/x`,
    `postgres://u:${SECRET}@localhost/x?sslmode=verify-ca`,
    `postgres://u:${SECRET}@localhost/x?sslmode=verify-full&sslrootcert=/nowhere/root.pem`,
    `postgres://u:${SECRET}@one,two/x?sslmode=verify-full`,
    `postgres://:${SECRET}@localhost/x`,
  ];
  for (const url of bad) t.equal(codeOf(url), 'database_url_invalid', url);
});

t.test('the environment changes nothing about where and how to connect', async (t) => {
  const before = { ...process.env };
  t.teardown(() => {
    process.env = before;
  });
  process.env.PGHOST = 'db.example';
  process.env.PGSSLMODE = 'no-verify';
  process.env.PGPORT = '1';
  process.env.PGDATABASE = 'other';
  const client = new pg.Client(clientConfig({ url: `postgres://u%40x:p%3A1@/halos` }));
  t.same(
    [client.host, client.port, client.database, client.user, client.password, client.ssl],
    ['localhost', 5432, 'halos', 'u@x', 'p:1', false],
  );
});

async function startWithCertificate(
  host: string,
): Promise<{ server: PostgresServer; root: string }> {
  const dataDir = makeDataFolder();
  const { certificate, key } = selfSigned(host);
  const root = join(dataDir, 'server.crt');
  writeFileSync(root, certificate, { mode: 0o644 });
  writeFileSync(join(dataDir, 'server.key'), key, { mode: 0o600 });
  const { uid, gid } = postgresIdentity();
  for (const file of uid === undefined ? [] : ['server.crt', 'server.key']) {
    chownSync(join(dataDir, file), uid ?? 0, gid ?? 0);
  }
  return { server: await startPostgres({ dataDir, settings: ['ssl = on'] }), root };
}

async function connects(server: PostgresServer, query: string): Promise<string> {
  const url = `${server.superuserUrl()}?${query}`;
  const client = new pg.Client(clientConfig({ url }));
  client.on('error', () => undefined);
  try {
    await client.connect();
    const { rows } = await client.query<{ ssl: boolean }>(
      'SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()',
    );
    return rows[0]?.ssl === true ? 'encrypted' : 'plain';
  } catch (error) {
    return String((error as { code?: unknown }).code);
  } finally {
    await client.end();
  }
}

t.test('verify-full checks the certificate and the name in it', async (t) => {
  const right = await startWithCertificate('127.0.0.1');
  const wrong = await startWithCertificate('other.example');
  t.teardown(() => Promise.all([right.server.stop(), wrong.server.stop()]));
  t.equal(await connects(right.server, 'sslmode=disable'), 'plain');
  t.equal(
    await connects(right.server, `sslmode=verify-full&sslrootcert=${right.root}`),
    'encrypted',
  );
  t.equal(await connects(right.server, 'sslmode=verify-full'), 'DEPTH_ZERO_SELF_SIGNED_CERT');
  t.equal(
    await connects(wrong.server, `sslmode=verify-full&sslrootcert=${wrong.root}`),
    'ERR_TLS_CERT_ALTNAME_INVALID',
  );
  t.equal(await connects(wrong.server, `sslmode=verify-ca&sslrootcert=${wrong.root}`), 'encrypted');
  t.equal(await connects(wrong.server, `sslmode=require`), 'encrypted');
  t.equal(
    await connects(wrong.server, `sslmode=require&sslrootcert=${right.root}`),
    'DEPTH_ZERO_SELF_SIGNED_CERT',
  );
});
