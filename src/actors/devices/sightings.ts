/**
 * When devices were last seen: noted in memory on the hot path, written in batches to a table of
 * its own, never replayed and never a write for each request.
 */
import type { Clock } from '../../runtime/clock.js';
import type { Store } from '../../storage/store.js';
import type { KnownDevice } from './state.js';

/** How often what was noted is written. */
const SIGHTING_FLUSH_MS = 5_000;
/** A device is noted again only after this: with the flush, `lastSeenAt` is exact to a minute. */
const SIGHTING_EVERY_SECONDS = 45;
/** Sightings in one statement: keeps it in the tens of milliseconds. */
const SIGHTING_BATCH_MAX = 5_000;

/** What one replica has noted. A crash loses at most what was noted since the last flush. */
export class Sightings {
  private noted = new Map<string, number>();
  private flushedAtMs: number;

  constructor(
    private readonly store: Store,
    private readonly clock: Clock,
  ) {
    this.flushedAtMs = clock.monotonicMs();
  }

  /** On the hot path: no I/O, and most calls only compare two numbers. */
  note(device: KnownDevice, storeTimeMs: number): void {
    const nowSeconds = Math.floor(storeTimeMs / 1000);
    if (nowSeconds - device.notedAtSeconds < SIGHTING_EVERY_SECONDS) return;
    device.notedAtSeconds = nowSeconds;
    this.noted.set(device.id, storeTimeMs);
  }

  /** Stored sightings, and newer ones that this replica has noted but not written yet. */
  async lastSeenMs(ids: readonly string[]): Promise<ReadonlyMap<string, number>> {
    const seen = ids.length === 0 ? new Map<string, number>() : await this.store.sightings(ids);
    for (const id of ids) {
      const notedMs = this.noted.get(id);
      if (notedMs !== undefined && notedMs > (seen.get(id) ?? 0)) seen.set(id, notedMs);
    }
    return seen;
  }

  /** Flushes when the last flush is `SIGHTING_FLUSH_MS` ago; called in the background. */
  async flushIfDue(): Promise<void> {
    if (this.clock.monotonicMs() - this.flushedAtMs >= SIGHTING_FLUSH_MS) await this.flush();
  }

  /** Writes what was noted; what could not be written is kept for the next time. */
  async flush(): Promise<void> {
    this.flushedAtMs = this.clock.monotonicMs();
    const waiting = [...this.noted];
    this.noted = new Map();
    for (let from = 0; from < waiting.length; from += SIGHTING_BATCH_MAX) {
      try {
        await this.store.recordSightings(new Map(waiting.slice(from, from + SIGHTING_BATCH_MAX)));
      } catch (error) {
        for (const [id, seenAtMs] of waiting.slice(from)) {
          if (!this.noted.has(id)) this.noted.set(id, seenAtMs);
        }
        throw error;
      }
    }
  }
}
