/** The storage seam in the runtime's words. */
import type { Changes, Locked, Position, StoredRecord } from '../storage/store.js';

/**
 * The types of `Store`, as `StreamActor` wants them. Actors here read no documents in a unit of
 * work, so `needs` has none.
 */
export interface StorageTypes {
  position: Position;
  record: StoredRecord;
  locked: Locked;
  needs: { readonly kv?: readonly string[] };
  changes: Changes;
}
