/** Opens the store of one thread, whichever backend the process has. */
import type { Clock } from '../runtime/clock.js';
import type { Log } from '../runtime/log.js';
import type { Random } from '../runtime/random.js';
import type { ChainLinker } from './evidence-store.js';
import { FileStore } from './file/file-store.js';
import type { FileStoreConnection } from './file/protocol.js';
import { clientConfig } from './postgres/connection.js';
import type { OutboxSeal } from './postgres/evidence-outbox.js';
import { HintListener } from './postgres/listener.js';
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

/** What a thread's store makes and chains evidence with, where that is not the backend's own. */
export interface StoreEvidence {
  readonly seal: OutboxSeal;
  readonly linker: ChainLinker;
  /** Called after each commit that enqueued something. */
  readonly onEnqueued: () => void;
}

/** Does not wait for the store: it connects when it is first asked. */
export function openStore(
  source: StoreSource,
  environment: StoreEnvironment,
  evidence?: StoreEvidence,
): Store {
  switch (source.backend) {
    case 'file':
      return new FileStore(source.connection, environment.clock);
    case 'postgres': {
      const { backend: _, ...options } = source;
      const evidenced = evidence === undefined ? {} : { evidence };
      return openPostgresStore({ ...options, ...environment, ...evidenced });
    }
  }
}

/** Hints that other replicas have changed something; see `Changes.hints`. */
export interface Hints {
  readonly isListening: boolean;
  /** Connections that it holds now. */
  readonly open: number;
  close(): Promise<void>;
}

/** Whether a store's changes can be hinted at: by a database that is reached directly. */
export function canHint(source: StoreSource): boolean {
  return source.backend === 'postgres' && (source.directUrl !== undefined || !source.pooled);
}

/**
 * Listens from now on; undefined where `canHint` says no. `onHint` gets the stream, or undefined
 * when any may have changed. Takes one connection beside the store's share.
 */
export function openHints(
  source: StoreSource,
  environment: StoreEnvironment,
  onHint: (stream: string | undefined) => void,
): Hints | undefined {
  if (source.backend !== 'postgres' || !canHint(source)) return undefined;
  const { url, directUrl, insecureTls } = source;
  const config = clientConfig({ url: directUrl ?? url, insecureTls });
  const listener = new HintListener({ config, ...environment, onHint });
  listener.start();
  return listener;
}
