/**
 * Runs a contract check from outside against one server on files and against two replicas on
 * PostgreSQL: `node dist/load/acceptance.js CONTRACT.mjs PART`. Exits with 1 if either fails.
 */
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { exitOf, spawnTracked } from './child-processes.js';
import { LoadDatabases } from './databases.js';
import { type HaloSpec, startHalo } from './halo-servers.js';

async function checkServers(
  contract: readonly string[],
  spec: Pick<HaloSpec, 'name' | 'directory' | 'storage' | 'replicas'>,
): Promise<boolean> {
  process.stdout.write(`# ${spec.name}\n`);
  const { servers, adminToken } = await startHalo({
    ...spec,
    extraArgs: [],
  });
  try {
    const tokenFile = join(spec.directory, `${spec.name}.admin`);
    writeFileSync(tokenFile, `${adminToken}\n`, { mode: 0o600 });
    const args = ['--experimental-websocket', '--no-warnings', ...contract];
    const urls = servers.map((server) => server.url);
    const [url = '', ...others] = urls;
    const child = spawnTracked(process.execPath, [...args, url, tokenFile, ...others], {
      stdio: ['ignore', 'inherit', 'inherit'],
    });
    return (await exitOf(child)) === 0;
  } finally {
    for (const server of servers) await server.stop();
  }
}

async function checkBoth(contract: readonly string[]): Promise<boolean> {
  const directory = mkdtempSync(join(tmpdir(), 'halos-acceptance-'));
  const databases = await LoadDatabases.start(directory);
  try {
    const onFiles = await checkServers(contract, {
      name: 'files',
      directory,
      storage: { backend: 'file', dataDir: join(directory, 'data') },
      replicas: 1,
    });
    const onPostgres = await checkServers(contract, {
      name: 'replicas',
      directory,
      storage: { backend: 'postgres', databaseUrlFile: await databases.create('halo') },
      replicas: 2,
    });
    return onFiles && onPostgres;
  } finally {
    await databases.stop();
    rmSync(directory, { recursive: true, force: true });
  }
}

const [contract, part] = process.argv.slice(2);
if (contract === undefined || part === undefined) {
  process.stderr.write('usage: acceptance.js CONTRACT.mjs PART\n');
  process.exitCode = 2;
} else {
  process.exitCode = (await checkBoth([contract, part])) ? 0 : 1;
}
