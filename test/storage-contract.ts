/**
 * The contract of the storage seam (src/storage/store.ts, DESIGN §3), run unchanged against every
 * backend: `registerStorageContract({name, open})` in a test file of the backend's own. Nothing in
 * it knows a backend; what a backend cannot do is an absent member of `ContractStore`.
 */
import t from 'tap';
import type { LeaseStore } from '../src/runtime/lease.js';
import type { Store } from '../src/storage/store.js';
import { registerCounting } from './storage-contract/counting.js';
import { registerEvidence } from './storage-contract/evidence.js';
import { registerGatewayAcks } from './storage-contract/gateway-acks.js';
import { registerHistory } from './storage-contract/history.js';
import { registerInterleavings } from './storage-contract/interleavings.js';
import { registerJournal } from './storage-contract/journal.js';
import { registerKeyValue } from './storage-contract/key-value.js';
import { registerLeases } from './storage-contract/leases.js';
import { registerTables } from './storage-contract/tables.js';
import { registerUnitOfWork } from './storage-contract/unit-of-work.js';

export interface ContractBackend {
  /** Begins the name of every test. */
  readonly name: string;
  /**
   * A store on data of its own: no test sees what another wrote. Evidence is made with the keys of
   * `fixtures/contract-evidence.ts`.
   */
  open(): Promise<ContractStore>;
}

export interface ContractStore {
  readonly store: Store;
  /** A second store on the same data, as another replica or another thread has. */
  another(): Promise<Store>;
  /** The leases of the same data, as another process's elector has them. */
  leases(): LeaseStore;
  /** Moves the store's clock on. Absent: the tests wait for the real one. */
  advance?(ms: number): void | Promise<void>;
  /**
   * Remembers the data as it is and returns what brings it back to that, as a restored backup
   * does, under the open stores. Absent: the backend cannot be restored while it is open.
   */
  rememberForRestore?(): Promise<() => Promise<void>>;
  /** Closes every store it gave out, and removes the data. */
  close(): Promise<void>;
}

/** Fifty tests, of which some wait for a real expiry, on a machine that does other work beside. */
const SUITE_TIMEOUT_MS = 240_000;

export function registerStorageContract(backend: ContractBackend): void {
  t.setTimeout(SUITE_TIMEOUT_MS);
  registerJournal(backend);
  registerUnitOfWork(backend);
  registerKeyValue(backend);
  registerTables(backend);
  registerCounting(backend);
  registerGatewayAcks(backend);
  registerEvidence(backend);
  registerLeases(backend);
  registerHistory(backend);
  registerInterleavings(backend);
}
