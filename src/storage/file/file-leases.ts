/**
 * The leases of a data directory, which has one process: they are in the memory of its storage
 * thread, gone with it, and nobody else's ever.
 */
import type { LeaseStore } from '../../runtime/lease.js';
import type { StorageCalls } from './storage-calls.js';

/** For the elector, on a connection of its thread. */
export function fileLeases(calls: StorageCalls): LeaseStore {
  return {
    isHinted: false,
    claim: (claims, ttlMs) => calls.call('claimLeases', { claims, ttlMs }),
    release: async (fences) => {
      await calls.call('releaseLeases', { fences });
    },
    onHint: () => {
      // Nobody else can hold one, so there is nothing to be told of.
    },
    close: async () => {
      // The connection is its thread's.
    },
  };
}
