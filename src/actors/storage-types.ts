/** The storage seam in the runtime's words. */
import type { Changes, DocumentKey, Locked, Position, StoredRecord } from '../storage/store.js';

/** The types of `Store`, as `StreamActor` wants them. */
export interface StorageTypes {
  position: Position;
  record: StoredRecord;
  locked: Locked;
  needs: { readonly kv?: readonly string[]; readonly documents?: readonly DocumentKey[] };
  changes: Changes;
}
