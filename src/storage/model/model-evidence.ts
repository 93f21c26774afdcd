/** Outbox and chain of the model store: deferred, as on PostgreSQL, and one step each. */
import {
  type ChainedRecord,
  type ChainTail,
  checkFollows,
  type EvidenceEvent,
  type FoundEvidence,
  type QueuedEvent,
  type StoredHead,
} from '../evidence-store.js';

const BEFORE_THE_FIRST: StoredHead = { seq: -1, hash: '' };

/** Rows are never changed in place, so that copies of the lists are copies of the whole. */
export class ModelEvidence {
  /** An append or a drain is under way: nobody else may begin one. */
  locked = false;

  constructor(
    private queued: readonly QueuedEvent[] = [],
    private records: readonly ChainedRecord[] = [],
    private newestId = 0,
  ) {}

  copy(): ModelEvidence {
    return new ModelEvidence(this.queued, this.records, this.newestId);
  }

  /** All events of the model have one writer: it is never interrupted. */
  enqueue(events: readonly EvidenceEvent[]): void {
    const rows = events.map((event, index) => {
      const id = this.newestId + index + 1;
      const chainedCount = this.newestId - this.queued.length;
      return { ...event, id, writer: 'model', count: id, keyId: '', mac: '', chainedCount };
    });
    this.newestId += rows.length;
    this.queued = [...this.queued, ...rows];
  }

  oldest(limit: number): readonly QueuedEvent[] {
    const chainedCount = this.newestId - this.queued.length;
    return this.queued.slice(0, limit).map((event) => ({ ...event, chainedCount }));
  }

  head(): StoredHead {
    const last = this.records.at(-1);
    return last === undefined ? BEFORE_THE_FIRST : { seq: last.seq, hash: last.hash };
  }

  tail(): ChainTail {
    const [first] = this.records;
    const record = this.records.at(-1)?.text ?? '';
    return { ...this.head(), record, chainId: first?.hash ?? '' };
  }

  get pending(): number {
    return this.queued.length;
  }

  /** Appends the records, which take so many events off the outbox. */
  append(records: readonly ChainedRecord[], events: number): void {
    checkFollows(this.head(), records, this.queued.slice(0, events));
    this.records = [...this.records, ...records];
    this.queued = this.queued.slice(events);
  }

  find(ref: string): FoundEvidence | undefined {
    const record = this.records.find((one) => one.ref === ref);
    if (record !== undefined) return { pending: false, record };
    const event = this.queued.find((one) => one.ref === ref);
    if (event === undefined) return undefined;
    return { pending: true, event: { ref, text: event.text } };
  }

  page(afterSeq: number, limit: number): ChainedRecord[] {
    return this.records.filter(({ seq }) => seq > afterSeq).slice(0, limit);
  }

  pageBack(beforeSeq: number, limit: number): ChainedRecord[] {
    const before = this.records.filter(({ seq }) => seq < beforeSeq);
    return before.reverse().slice(0, limit);
  }
}
