/** The storage seam in the runtime's words: the types that every stream actor here works with. */
import type { Changes, Locked, Position, StoredRecord } from '../storage/store.js';

export interface StorageTypes {
  position: Position;
  record: StoredRecord;
  locked: Locked;
  needs: { readonly kv?: readonly string[] };
  changes: Changes;
}
