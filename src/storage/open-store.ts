/** Opens the store of one thread, whichever backend the process has. */
import type { Clock } from '../runtime/clock.js';
import type { Log } from '../runtime/log.js';
import type { Random } from '../runtime/random.js';
import { FileStore } from './file/file-store.js';
import type { FileStoreConnection } from './file/protocol.js';
import { openPostgresStore } from './postgres/postgres-store.js';
import type { Store } from './store.js';

/** Where a thread's store comes from: plain data and ports, so that it can cross threads. */
export type StoreSource =
  | { readonly backend: 'file'; readonly connection: FileStoreConnection }
  | {
      readonly backend: 'postgres';
      readonly url: string;
      /** A way past the pooler for this thread's reader; without it reads go the same way. */
      readonly directUrl?: string;
      readonly pooled: boolean;
      readonly insecureTls: boolean;
      /** This thread's share of the process's connections. */
      readonly connectionsMax: number;
    };

/** What a store takes from the thread that it is opened in. */
export interface StoreEnvironment {
  readonly clock: Clock;
  readonly random: Random;
  readonly log: Log;
}

/** Does not wait for the store: it connects when it is first asked. */
export function openStore(source: StoreSource, environment: StoreEnvironment): Store {
  switch (source.backend) {
    case 'file':
      return new FileStore(source.connection, environment.clock);
    case 'postgres': {
      const { backend: _, ...options } = source;
      return openPostgresStore({ ...options, ...environment });
    }
  }
}
