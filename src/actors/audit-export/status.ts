/** How far the sinks are, asked of the store: the same answer on every replica. */
import type { Clock } from '../../runtime/clock.js';
import type { EvidenceStore } from '../../storage/evidence-store.js';
import type { Store } from '../../storage/store.js';
import { auditExportLease } from '../lease-names.js';
import type { SinkStatus } from './messages.js';
import type { Sink } from './sink.js';
import { cursorKey, cursorOf, type SinkCursor } from './state.js';

type Named = Pick<Sink, 'name' | 'type'>;

const MS_PER_SECOND = 1_000;

/** In the order of the sinks. Rejects with a `StoreError`. */
export async function sinkStatuses(
  store: Store,
  clock: Clock,
  sinks: readonly Named[],
): Promise<SinkStatus[]> {
  if (sinks.length === 0) return [];
  const leases = new Map((await store.leases()).map((row) => [row.lease, row]));
  const cursors = await readCursors(store, sinks);
  const head = (await store.evidence.head()).seq;
  const statuses: SinkStatus[] = [];
  for (const { name, type } of sinks) {
    const { seq, deliveredAtMs, failure, restored } = cursorAt(cursors, name);
    const lease = leases.get(auditExportLease(name));
    const isHeld = lease !== undefined && lease.remainingMs > 0;
    const lagMs = seq >= head ? 0 : await oldestAgeMs(store.evidence, seq, clock.wallMs());
    statuses.push({
      name,
      type,
      leader: isHeld ? lease.holder : null,
      cursor: seq,
      head,
      lagRecords: Math.max(0, head - seq),
      lagSeconds: lagMs === null ? null : Math.round(lagMs / MS_PER_SECOND),
      lastDeliveredAtMs: deliveredAtMs,
      lastError: failure,
      restored,
    });
  }
  return statuses;
}

/** How many records each sink lacks, by its name. Rejects with a `StoreError`. */
export async function sinkLags(
  store: Store,
  sinks: readonly Named[],
): Promise<ReadonlyMap<string, number>> {
  const cursors = await readCursors(store, sinks);
  const { seq: head } = await store.evidence.head();
  return new Map(
    sinks.map(({ name }) => [name, Math.max(0, head - cursorAt(cursors, name).seq)] as const),
  );
}

async function readCursors(
  store: Store,
  sinks: readonly Named[],
): Promise<ReadonlyMap<string, SinkCursor>> {
  const documents = await store.documents(sinks.map(({ name }) => cursorKey(name)));
  return new Map(documents.map((document) => [document.id, cursorOf(document)]));
}

function cursorAt(cursors: ReadonlyMap<string, SinkCursor>, name: string): SinkCursor {
  return cursors.get(name) ?? cursorOf(undefined);
}

/** Of the record after that number, since it was chained; null where none can be read. */
async function oldestAgeMs(
  evidence: EvidenceStore,
  seq: number,
  nowMs: number,
): Promise<number | null> {
  const [record] = await evidence.page(seq, 1);
  if (record === undefined) return null;
  const { chained_at: at } = JSON.parse(record.text) as { chained_at: string };
  return Math.max(0, nowMs - Date.parse(at));
}
