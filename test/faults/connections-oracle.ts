/** Connections to the database: never more than allowed, however often they were lost. */
import { eventually } from '../fixtures/halo-server.js';
import type { Oracle, World } from './oracle.js';
import { CONNECTIONS_MAX } from './site.js';

/** What is cut or killed is gone for the database once it has looked at it. */
const GONE_WITHIN_MS = 5_000;

/** Makes no calls. */
export class ConnectionsOracle implements Oracle {
  readonly name = 'database connections';

  async settled(world: World): Promise<void> {
    const { site } = world;
    const allowed = site.replicas.length * CONNECTIONS_MAX;
    // The database knows nothing of half-open connections that the replicas gave up: they end here.
    for (const { proxy } of site.replicas) proxy.cutLost();
    let open = 0;
    await eventually(async () => {
      open = await site.databaseConnections();
      return open <= allowed;
    }, GONE_WITHIN_MS).catch(() => world.fail(`${open} connections, and ${allowed} are allowed`));
  }
}
