/**
 * The outbox: evidence becomes durable in the commit of what it is evidence of (ADR-0009). Each row
 * carries a MAC over its text and its place, which is a writer and a number: a row that somebody
 * plants, changes, moves or removes shows when it is chained.
 *
 * A writer is one open transaction's at a time, so that its numbers have no gaps: what is rolled
 * back gives them back, and after an unknown outcome the writer is never used again.
 */
import type { Random } from '../../runtime/random.js';
import type { EvidenceEvent } from '../evidence-store.js';
import { StoreError } from '../store-error.js';
import type { Statement, Write } from './connections.js';

/** Where an event waits: see `src/evidence`. */
export interface OutboxPlace {
  readonly writer: string;
  /** From 1. */
  readonly count: number;
}

/** Authenticates an event at its place, by a key that replicas have and the database has not. */
export interface OutboxSeal {
  readonly keyId: string;
  mac(place: OutboxPlace, text: string): string;
}

/** The order of the rows is that of the events: identity numbers are given as they come. */
const ENQUEUE: Statement = {
  name: 'halo_evidence_enqueue',
  text: `
    INSERT INTO halo_evidence_outbox (ref, record, writer, writer_count, mac_key_id, mac)
    SELECT ref, record, $3, $4::int8 + n - 1, $5, mac
    FROM unnest($1::text[], $2::text[], $6::text[]) WITH ORDINALITY AS e (ref, record, mac, n)
    ORDER BY n`,
};

/** Two writers with one mark would refuse each other's rows: once in 2^64. */
const WRITER_BYTES = 8;

interface Writer {
  readonly mark: string;
  /** The last number that was committed. */
  last: number;
}

/** One transaction's part of the outbox: to be told how the transaction ended. */
export interface OutboxBatch {
  readonly writes: readonly Write[];
  committed(): void;
  /** Nothing was written. */
  rolledBack(): void;
}

const EMPTY_BATCH: OutboxBatch = {
  writes: [],
  committed: () => undefined,
  rolledBack: () => undefined,
};

/** The writers of one store: as many as it ever had transactions open at once. */
export class OutboxWriters {
  readonly #idle: Writer[] = [];

  constructor(
    private readonly random: Random,
    private readonly seal: OutboxSeal | undefined,
    private readonly onEnqueued: () => void = () => undefined,
  ) {}

  /** Numbers and authenticates the events. Whatever is not told its end is never used again. */
  begin(events: readonly EvidenceEvent[]): OutboxBatch {
    if (events.length === 0) return EMPTY_BATCH;
    const { seal } = this;
    if (seal === undefined) {
      throw new StoreError('incompatible', 'Evidence cannot be queued without a signing key.');
    }
    const writer = this.#idle.pop() ?? this.#newWriter();
    const first = writer.last + 1;
    const macs = events.map(({ text }, index) =>
      seal.mac({ writer: writer.mark, count: first + index }, text),
    );
    const columns = [events.map(({ ref }) => ref), events.map(({ text }) => text)];
    const values = [...columns, writer.mark, first, seal.keyId, macs];
    return {
      writes: [[ENQUEUE, values]],
      committed: () => {
        writer.last += events.length;
        this.#idle.push(writer);
        this.onEnqueued();
      },
      rolledBack: () => void this.#idle.push(writer),
    };
  }

  #newWriter(): Writer {
    return { mark: Buffer.from(this.random.bytes(WRITER_BYTES)).toString('hex'), last: 0 };
  }
}
