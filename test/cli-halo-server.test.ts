/** The command line of `halo-server`: help, version and wrong usage, without starting a server. */
import { readFileSync } from 'node:fs';
import t from 'tap';
import { environmentName } from '../src/cli/option-table.js';
import { SERVE_OPTIONS } from '../src/cli/serve-options.js';
import { runHaloServer } from '../src/cli/server-program.js';

async function run(
  args: readonly string[],
  environment: Record<string, string> = {},
): Promise<{ exitCode: number; out: string; err: string }> {
  let out = '';
  let err = '';
  const exitCode = await runHaloServer(args, {
    environment,
    out: (text) => {
      out += text;
    },
    err: (text) => {
      err += text;
    },
  });
  return { exitCode, out, err };
}

/** The options that API.md promises; the document itself stands outside the project. */
const PROMISED = [
  'dev',
  'listen',
  'metrics-listen',
  'data-dir',
  'database-url-file',
  'auto-migrate',
  'checkpoint-file',
  'database-direct-url-file',
  'database-pooled',
  'database-max-conns',
  'database-insecure-tls',
  'admin-token-file',
  'signing-key-file',
  'policy-dir',
  'audit-sinks-file',
  'front-threads',
  'actor-threads',
  'trusted-proxies',
  'lease-ttl',
  'shutdown-grace',
  'log-level',
  'ready-file',
];

t.test('help of serve names every option and the environment', async (t) => {
  const { exitCode, out, err } = await run(['serve', '--help']);
  t.equal(exitCode, 0);
  t.equal(err, '');
  for (const name of PROMISED) t.match(out, new RegExp(`  --${name}\\b`), name);
  t.match(out, /HALO_LISTEN for --listen/);
  t.match(out, /Exit codes: 0 done, 1 failed, 2 wrong usage, 3 refused/);
  t.same(SERVE_OPTIONS.map(({ name }) => name).sort(), [...PROMISED].sort());
  t.equal(environmentName('database-max-conns'), 'HALO_DATABASE_MAX_CONNS');
});

t.test('the version is that of the package', async (t) => {
  const { version } = JSON.parse(readFileSync('package.json', 'utf8')) as { version: string };
  t.same(await run(['--version']), { exitCode: 0, out: `${version}\n`, err: '' });
});

t.test('a wrong command line of halo-server ends with 2 and says why', async (t) => {
  const secret = 'postgres://halo:hunter2@db/halo';
  const wrong: ReadonlyArray<readonly [string[], RegExp]> = [
    [[], /Usage: halo-server/],
    [['bogus'], /unknown command/],
    [['serve'], /say where the data lives/],
    [['serve', '--bogus'], /unknown option/],
    [['serve', '--listen'], /argument missing/],
    [['serve', '--dev', 'extra'], /too many arguments/],
    [['serve', '--dev', '--lease-ttl', '15'], /--lease-ttl/],
    [['serve', '--database-url-file', 'f'], /needs --signing-key-file/],
    [['serve', '--database-url-file', secret], /never a URL/],
    [['serve', `--database-url=${secret}`], /unknown option/],
    [['serve', '--dev', secret], /too many arguments/],
    [[secret], /unknown command/],
  ];
  for (const [args, message] of wrong) {
    const { exitCode, out, err } = await run(args);
    t.equal(exitCode, 2, args.join(' '));
    t.equal(out, '');
    t.match(err, message);
    t.notMatch(err, /hunter2/);
  }
  const fromEnvironment = await run(['serve'], { HALO_DATABASE_URL_FILE: 'f' });
  t.match(fromEnvironment, { exitCode: 2, err: /needs --signing-key-file/ });
});
