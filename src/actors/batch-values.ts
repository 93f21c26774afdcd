/** The KV rows that a batch of writes read under the lock, as they change within the batch. */
import type { KvChange, KvEntry, Locked } from '../storage/store.js';
import {
  type Idempotency,
  idempotencyChange,
  idempotencyKvKey,
  storedAnswer,
} from './idempotency.js';

/** One batch's rows; what it does with idempotent calls is here, the same for every actor. */
export class BatchValues {
  /** In the order in which they were made. */
  readonly changes: KvChange[] = [];
  private readonly entries = new Map<string, KvEntry | undefined>();

  constructor(private readonly locked: Pick<Locked, 'kv' | 'storeTimeMs'>) {}

  /** A live row as it is now within this batch; undefined when absent, expired or deleted. */
  get(key: string): KvEntry | undefined {
    return this.entries.has(key) ? this.entries.get(key) : this.locked.kv.get(key);
  }

  change(change: KvChange): void {
    this.changes.push(change);
    const { key } = change;
    if (change.op === 'put') {
      this.entries.set(key, { value: change.value, expiresAtMs: change.expiresAtMs });
    } else {
      this.entries.set(key, undefined);
    }
  }

  /** What the same call was answered before; undefined for a new one. Throws as `storedAnswer`. */
  answered<Answer>(idempotency: Idempotency | undefined): Answer | undefined {
    if (!idempotency) return undefined;
    return storedAnswer<Answer>(idempotency, this.get(idempotencyKvKey(idempotency)));
  }

  /** So that the same call again is answered the same; nothing without an `Idempotency-Key`. */
  remember(idempotency: Idempotency | undefined, answer: unknown): void {
    if (!idempotency) return;
    const row = { bodyHmac: idempotency.bodyHmac, answer };
    const { storeTimeMs } = this.locked;
    this.change(idempotencyChange(idempotencyKvKey(idempotency), row, storeTimeMs));
  }
}
