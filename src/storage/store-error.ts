/** The errors of the storage seam. */
import { CodedError } from '../runtime/failure.js';

/** Every way in which a store may fail; what each means for what was asked, and what helps. */
export const STORE_CODES = [
  /** The store cannot be reached or written. Nothing of the call was done. Retry later. */
  'store_unavailable',
  /** The commit was sent and its answer was lost. The next catch-up tells. */
  'outcome_unknown',
  /** The position is not of the store's history (a restore, a failover). Replay from zero. */
  'history_changed',
  /** The store refused a statement of the unit. Nothing was written. */
  'write_refused',
  /** The unit's fence is not the lease's any more: its term is over. Nothing was written. */
  'fenced',
  /** A record, format or schema that this binary does not know. Use a newer binary. */
  'incompatible',
  /** Stored bytes are not what was written. The message has file, line and byte offset. */
  'damaged',
  /** Another process uses the data directory. */
  'directory_held',
] as const;
/** The same codes as a type, so that the HTTP catalogue cannot leave one of them out. */
export type StoreCode = (typeof STORE_CODES)[number];

/** What every backend throws and rejects with. Anything else that comes out of a store is a bug. */
export class StoreError extends CodedError {
  constructor(
    override readonly code: StoreCode,
    message: string,
    options: { cause?: unknown; retryAfterSeconds?: number } = {},
  ) {
    super(code, message, options);
    this.name = 'StoreError';
  }
}
