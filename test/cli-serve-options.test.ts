/** What `halo-server serve` accepts, from the command line and the environment, and refuses. */
import { Command } from 'commander';
import t from 'tap';
import { UsageError } from '../src/cli/exit-codes.js';
import { declareOptions, gatherOptions } from '../src/cli/option-table.js';
import {
  formatDuration,
  parseDurationMs,
  parseListenAddress,
  parseNetworks,
} from '../src/cli/option-values.js';
import {
  readServeOptions,
  SERVE_OPTIONS,
  type ServeOptionName,
  type ServeOptions,
} from '../src/cli/serve-options.js';

function read(line: string, environment: Record<string, string> = {}): ServeOptions {
  const command = new Command('serve').exitOverride().configureOutput({ writeErr: () => {} });
  declareOptions(command, SERVE_OPTIONS);
  command.parse(line.split(' ').filter(Boolean), { from: 'user' });
  return readServeOptions(gatherOptions<ServeOptionName>(command, SERVE_OPTIONS, environment));
}

const POSTGRES = '--database-url-file url --signing-key-file key --admin-token-file tokens';

t.test('--dev needs nothing else: files in ./.halos on loopback', async (t) => {
  t.same(read('--dev'), {
    dev: true,
    listen: { host: '127.0.0.1', port: 8080 },
    metricsListen: { host: '127.0.0.1', port: 9464 },
    backend: { kind: 'file', dataDir: './.halos' },
    adminTokenFile: '.halos/admin-token',
    signingKeyFile: '.halos/signing-key.pem',
    makeSigningKey: true,
    policyDir: null,
    auditSinksFile: null,
    checkpointFile: '.halos/published-checkpoints.json',
    frontThreads: null,
    actorThreads: null,
    trustedProxies: [],
    leaseTtlMs: 15_000,
    shutdownGraceMs: 10_000,
    logLevel: 'info',
    readyFile: null,
  });
});

t.test('every option of serve that is built has an effect', async (t) => {
  const all = read(
    `${POSTGRES} --listen [::1]:0 --metrics-listen 0.0.0.0:9000 --database-direct-url-file direct` +
      ' --database-pooled --database-max-conns 32 --database-insecure-tls --auto-migrate' +
      ' --front-threads 2 --actor-threads 3 --trusted-proxies 10.1.2.3/8,::1' +
      ' --lease-ttl 3s --shutdown-grace 500ms --log-level debug --ready-file ready' +
      ' --checkpoint-file checkpoints --policy-dir policy --audit-sinks-file sinks',
  );
  t.same(all, {
    dev: false,
    listen: { host: '::1', port: 0 },
    metricsListen: { host: '0.0.0.0', port: 9000 },
    backend: {
      kind: 'postgres',
      urlFile: 'url',
      directUrlFile: 'direct',
      pooled: true,
      connectionsMax: 32,
      insecureTls: true,
      autoMigrate: true,
    },
    adminTokenFile: 'tokens',
    signingKeyFile: 'key',
    makeSigningKey: false,
    policyDir: 'policy',
    auditSinksFile: 'sinks',
    checkpointFile: 'checkpoints',
    frontThreads: 2,
    actorThreads: 3,
    trustedProxies: ['10.0.0.0/8', '::1/128'],
    leaseTtlMs: 3_000,
    shutdownGraceMs: 500,
    logLevel: 'debug',
    readyFile: 'ready',
  });
});

t.test('an option comes from the environment when the command line is silent', async (t) => {
  const environment = {
    HALO_DATA_DIR: 'from-environment',
    HALO_LISTEN: '127.0.0.1:1',
    HALO_SHUTDOWN_GRACE: '9s',
    HALO_DEV: 'false',
    HALO_READY_FILE: '',
  };
  const options = read('--listen 127.0.0.1:2', environment);
  t.same(options.backend, { kind: 'file', dataDir: 'from-environment' });
  t.equal(options.listen.port, 2, 'the command line wins');
  t.equal(options.shutdownGraceMs, 9_000);
  t.equal(options.dev, false, 'a switch in the environment can be off');
  t.equal(options.readyFile, null, 'an empty variable counts as not set');
  t.equal(read('', { HALO_DEV: '1' }).dev, true);
  t.throws(
    () => read('--dev', { HALO_DATABASE_POOLED: 'yes' }),
    /HALO_DATABASE_POOLED is a switch/,
  );
});

t.test('a lease lives as long as was said, within the bounds of the elector', async (t) => {
  t.equal(read('--dev').leaseTtlMs, 15_000);
  t.equal(read(`${POSTGRES} --lease-ttl 3s`).leaseTtlMs, 3_000);
  t.equal(read('--dev', { HALO_LEASE_TTL: '5m' }).leaseTtlMs, 300_000);
  for (const wrong of ['999ms', '301s', '0', 'soon']) {
    t.throws(() => read(`--dev --lease-ttl ${wrong}`), /^--lease-ttl/, wrong);
  }
});

t.test('a server on a free port has its metrics on a free port too', async (t) => {
  t.equal(read('--dev --listen 127.0.0.1:0').metricsListen.port, 0);
  const both = read('--dev --listen 127.0.0.1:0 --metrics-listen 127.0.0.1:9000');
  t.equal(both.metricsListen.port, 9000);
});

t.test('contradictions on the command line are wrong usage', async (t) => {
  const refused: ReadonlyArray<readonly [string, RegExp]> = [
    ['', /say where the data lives/],
    ['--data-dir d --database-url-file u', /--data-dir and --database-url-file exclude/],
    [`--dev ${POSTGRES}`, /--dev and --database-url-file exclude/],
    ['--data-dir d --auto-migrate', /--auto-migrate needs --database-url-file/],
    ['--dev --database-max-conns 8', /--database-max-conns needs --database-url-file/],
    ['--dev --database-direct-url-file f', /needs --database-url-file/],
    ['--database-url-file u --admin-token-file a', /needs --signing-key-file/],
    ['--database-url-file u --signing-key-file k', /needs --admin-token-file/],
  ];
  for (const [line, message] of refused) {
    t.throws(() => read(line), new UsageError(''), line);
    t.throws(() => read(line), message, line);
  }
  t.throws(
    () => read('--database-url-file u', { HALO_DATA_DIR: 'd' }),
    /HALO_DATA_DIR and --database-url-file/,
    'the message names the variable that is in the way',
  );
});

t.test('a value that cannot be meant is refused with its option', async (t) => {
  const refused = [
    '--listen 8080',
    '--listen 127.0.0.1',
    '--listen 127.0.0.1:65536',
    '--listen 300.0.0.1:80',
    '--listen ::1:80',
    '--listen :8080',
    '--metrics-listen x',
    '--front-threads 0',
    '--front-threads 65',
    '--actor-threads 1.5',
    '--actor-threads -1',
    '--shutdown-grace forever',
    '--shutdown-grace 15',
    '--shutdown-grace 10m',
    '--log-level verbose',
    '--trusted-proxies 10.0.0.0/33',
    '--trusted-proxies 10.0.0/8',
    '--trusted-proxies 10.0.0.0/8,,::1',
    '--trusted-proxies fe80::/129',
    '--trusted-proxies proxy.example',
  ];
  for (const line of refused) {
    const option = line.slice(0, line.indexOf(' '));
    t.throws(() => read(`--dev ${line}`), new RegExp(`^${option} takes `), line);
  }
  t.throws(() => read(`${POSTGRES} --database-max-conns 3`), /from 4 to 1000/);
});

t.test('a URL in place of a file is refused and never repeated', async (t) => {
  const secret = 'postgres://halo:hunter2@db/halo';
  for (const option of ['database-url-file', 'database-direct-url-file', 'signing-key-file']) {
    try {
      read(`${POSTGRES} --${option} ${secret}`);
      t.fail(`${option} took a URL`);
    } catch (error) {
      t.match(error, { message: /never a URL/ });
      t.notMatch(String(error), /hunter2/);
    }
  }
});

t.test('addresses, durations and networks are read as they are written', async (t) => {
  t.same(parseListenAddress('--x', 'localhost:80'), { host: 'localhost', port: 80 });
  t.same(parseListenAddress('--x', '[2001:db8::1]:443'), { host: '2001:db8::1', port: 443 });
  const bounds = { minMs: 0, maxMs: 86_400_000 };
  for (const [text, ms] of [
    ['0ms', 0],
    ['250ms', 250],
    ['90s', 90_000],
    ['1d', 86_400_000],
  ] as const) {
    t.equal(parseDurationMs('--x', text, bounds), ms);
    t.equal(parseDurationMs('--x', formatDuration(ms), bounds), ms, 'and written back');
  }
  t.equal(formatDuration(90_000), '90s');
  t.equal(parseDurationMs('--x', '24h', bounds), 86_400_000);
  t.same(parseNetworks('--x', '192.168.1.77/24, 2001:db8::ffff/32,127.0.0.1'), [
    '192.168.1.0/24',
    '2001:db8::/32',
    '127.0.0.1/32',
  ]);
});
