/**
 * `npm run dev:cluster`: a real PostgreSQL and two replicas on it, to see what is killed on one
 * arrive on the other. Everything is gone when it ends.
 */
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { LoadDatabases } from './databases.js';
import { postJson } from './devices.js';
import { startHalo } from './halo-servers.js';

const halo = `node ${fileURLToPath(new URL('../src/cli/halo.js', import.meta.url))}`;

function commands([one, other]: readonly string[], adminFile: string, gatewayFile: string): string {
  return [
    `Two replicas on one PostgreSQL: ${one} and ${other}`,
    '',
    'Watch the second one, as a gateway does:',
    `  ${halo} gateway watch --url ${other} --token-file ${gatewayFile}`,
    'Kill on the first one, in another terminal, and lift it again:',
    `  ${halo} kill agent demo --reason demo --url ${one} --token-file ${adminFile}`,
    `  ${halo} lift agent demo --url ${one} --token-file ${adminFile}`,
    'Ask both who is behind:',
    `  ${halo} gateway list --url ${one} --token-file ${adminFile}`,
    '',
    'Ctrl-C ends everything.',
    '',
  ].join('\n');
}

async function main(): Promise<void> {
  const directory = mkdtempSync(join(tmpdir(), 'halos-dev-cluster-'));
  process.on('exit', () => rmSync(directory, { recursive: true, force: true }));
  const stopped = new Promise<void>((resolve) => {
    for (const signal of ['SIGINT', 'SIGTERM'] as const) process.once(signal, () => resolve());
  });
  process.stderr.write('Starting PostgreSQL and two replicas …\n');
  const databases = await LoadDatabases.start(directory);
  const { servers, adminToken } = await startHalo({
    name: 'dev',
    directory,
    storage: { backend: 'postgres', databaseUrlFile: await databases.create('halo') },
    replicas: 2,
    extraArgs: [],
  });
  const urls = servers.map(({ url }) => url);
  const { token } = await postJson<{ token: string }>(
    `${urls[0]}/api/v1/gateways`,
    { name: 'dev-cluster' },
    adminToken,
  );
  const adminFile = join(directory, 'admin-token');
  const gatewayFile = join(directory, 'gateway-token');
  writeFileSync(adminFile, `${adminToken}\n`, { mode: 0o600 });
  writeFileSync(gatewayFile, `${token}\n`, { mode: 0o600 });
  process.stdout.write(commands(urls, adminFile, gatewayFile));
  await stopped;
  await Promise.all(servers.map((server) => server.stop()));
  await databases.stop();
}

await main();
process.exit(0);
