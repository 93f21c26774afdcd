/**
 * The newest records of every stream, in memory, for the actors that are a little behind. What is
 * older is read from the files: the storage thread must not hold the journal.
 */
import { CATCH_UP_PAGE_MAX, type StoredRecord } from '../store.js';

/** Records in memory over all streams: so whatever the tail has fits one page of a catch-up. */
export const TAIL_RECORDS_MAX = CATCH_UP_PAGE_MAX;
/** Their bodies together: large records must not add up to what the journal would cost. */
export const TAIL_BYTES_MAX = 8 * 1024 * 1024;

interface StreamTail {
  /** The tail has every record of the stream after this id. */
  floorId: number;
  readonly records: StoredRecord[];
}

/** Bounded in records and in bytes over all streams, whichever are busy. */
export class JournalTail {
  private readonly streams = new Map<string, StreamTail>();
  /** Streams in the order of their records; the oldest goes first. */
  private order: string[] = [];
  private orderStart = 0;
  private bodyBytes = 0;

  constructor(
    /** The newest id of a stream; asked only while the tail has nothing of it. */
    private readonly newestId: (stream: string) => number,
    private readonly recordsMax = TAIL_RECORDS_MAX,
    private readonly bytesMax = TAIL_BYTES_MAX,
  ) {}

  push(record: StoredRecord, newestBefore: number): void {
    const tail = this.streams.get(record.stream) ?? { floorId: newestBefore, records: [] };
    this.streams.set(record.stream, tail);
    tail.records.push(record);
    this.order.push(record.stream);
    this.bodyBytes += record.body.length;
    while (this.size > this.recordsMax || (this.bodyBytes > this.bytesMax && this.size > 1)) {
      this.dropOldest();
    }
  }

  /** The records after the id; undefined when the tail does not reach that far back. */
  after(stream: string, id: number): readonly StoredRecord[] | undefined {
    const tail = this.streams.get(stream);
    if (tail === undefined) return id >= this.newestId(stream) ? [] : undefined;
    if (id < tail.floorId) return undefined;
    let first = tail.records.length;
    while (first > 0 && (tail.records[first - 1]?.id ?? 0) > id) first -= 1;
    return tail.records.slice(first);
  }

  private get size(): number {
    return this.order.length - this.orderStart;
  }

  private dropOldest(): void {
    const stream = this.order[this.orderStart] ?? '';
    this.orderStart += 1;
    const tail = this.streams.get(stream);
    const dropped = tail?.records.shift();
    if (tail === undefined || dropped === undefined) return;
    tail.floorId = dropped.id;
    this.bodyBytes -= dropped.body.length;
    if (this.orderStart < this.recordsMax) return;
    this.order = this.order.slice(this.orderStart);
    this.orderStart = 0;
  }
}
