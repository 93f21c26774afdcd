/** The PostgreSQL of the tests starts anywhere, and never outlives the process that started it. */
import { type ChildProcess, spawn } from 'node:child_process';
import { chmodSync, existsSync, mkdtempSync, readdirSync, rmSync } from 'node:fs';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import pg from 'pg';
import t, { type Test } from 'tap';
import { until } from './fixtures/postgres-stores.js';

interface Holder {
  readonly process: ChildProcess;
  readonly pid: number;
  readonly dataDir: string;
  readonly url: string;
}

const HOLDER = fileURLToPath(new URL('./fixtures/postgres-holder.js', import.meta.url));

async function startHolder(t: Test, environment: NodeJS.ProcessEnv = {}): Promise<Holder> {
  const child = spawn(process.execPath, [HOLDER], {
    env: { ...process.env, ...environment },
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  t.teardown(() => child.kill('SIGKILL'));
  const { value } = await createInterface({ input: child.stdout })[Symbol.asyncIterator]().next();
  return { process: child, ...(JSON.parse(value) as Omit<Holder, 'process'>) };
}

function lives(pid: number): boolean {
  try {
    return process.kill(pid, 0);
  } catch {
    return false;
  }
}

/** A folder for everything that is made once a machine, so that it is made again. */
function freshFolder(t: Test, mode: number): string {
  const folder = mkdtempSync('/tmp/halos-fixture-');
  chmodSync(folder, mode);
  t.teardown(() => rmSync(folder, { recursive: true, force: true }));
  return folder;
}

t.test('a server ends with the process that started it, even by SIGKILL', async (t) => {
  const holder = await startHolder(t);
  t.ok(lives(holder.pid));
  holder.process.kill('SIGKILL');
  await until('the server has ended', () => !lives(holder.pid));
  await until('its data are gone', () => !existsSync(holder.dataDir));
});

t.test('processes that need the binaries at once on a new machine all get them', async (t) => {
  const TMPDIR = freshFolder(t, 0o777);
  const holders = await Promise.all([1, 2].map(() => startHolder(t, { TMPDIR })));
  for (const { url } of holders) {
    const client = new pg.Client({ connectionString: url });
    await client.connect();
    t.match((await client.query('SHOW server_version')).rows, [{ server_version: /^18/ }]);
    await client.end();
  }
  for (const holder of holders) {
    holder.process.kill('SIGKILL');
    await until('its data are gone', () => !existsSync(holder.dataDir));
  }
  const [cache = ''] = readdirSync(TMPDIR);
  const made = readdirSync(`${TMPDIR}/${cache}`).sort();
  t.equal(made.length, 2, `no copy is left over: ${made.join(', ')}`);
});

t.test('a temporary folder that only this user may enter is no hindrance', async (t) => {
  const TMPDIR = freshFolder(t, 0o700);
  const holder = await startHolder(t, { TMPDIR, HOME: TMPDIR });
  t.ok(lives(holder.pid));
  holder.process.kill('SIGKILL');
  await until('its data are gone', () => !existsSync(holder.dataDir));
});
