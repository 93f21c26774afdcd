/** Halos on a PostgreSQL of the run, as most profiles need it. */
import { LoadDatabases } from './databases.js';
import { type HaloServers, startHalo } from './halo-servers.js';
import { makeHaloStorage } from './halo-store.js';
import type { LoadOptions } from './options.js';
import { HALOS } from './report.js';
import type { RunContext } from './run-context.js';

/** Replicas with the database that they share. */
export interface HaloOnPostgres extends HaloServers {
  readonly databases: LoadDatabases;
}

/** All of it ends with the run. */
export async function startOnPostgres(
  { serverArgs }: LoadOptions,
  context: RunContext,
  replicas: number,
  extraArgs: readonly string[] = [],
): Promise<HaloOnPostgres> {
  const { directory } = context;
  const databases = await LoadDatabases.start(directory);
  context.onEnd(() => databases.stop());
  const halo = await startHalo({
    name: HALOS,
    directory,
    storage: await makeHaloStorage('postgres', HALOS, directory, databases),
    replicas,
    extraArgs: [...extraArgs, ...serverArgs],
  });
  for (const server of halo.servers) context.onEnd(() => server.stop());
  return { ...halo, databases };
}
