/**
 * What of an outbox can be judged without the key that its rows are authenticated with: that no
 * writer's numbers have a gap, and that no row names what another names. Whether a row is what its
 * writer wrote is checked when it is chained (`docs/evidence.md`).
 */
import { REF_PATTERN } from '../evidence/format.js';
import { type Finding, shown } from './findings.js';

/** A row of the outbox. */
export interface QueuedRow {
  readonly id: number;
  readonly ref: string;
  readonly record: string;
  readonly writer: string;
  /** Each writer numbers its rows from 1. */
  readonly count: number;
  /** The last number of the writer that was chained; 0: none was. */
  readonly chainedCount: number;
  /** Its ref is in the chain too. */
  readonly isChained: boolean;
}

/** Takes the rows of an outbox, in the order of their writers and numbers. */
export class OutboxVerifier {
  /** How many rows there are. */
  pending = 0;
  private fault: Omit<Finding, 'seq'> | undefined;
  private last: QueuedRow | undefined;

  accept(row: QueuedRow): void {
    this.pending += 1;
    const { last } = this;
    const before = last?.writer === row.writer ? last.count : row.chainedCount;
    const isOwn = refIn(row.record) === row.ref && REF_PATTERN.test(row.ref);
    if (row.count !== before + 1) {
      const place = `number ${before + 1} of the writer ${row.writer}`;
      this.find(place, `number ${row.count}, in row ${row.id}`);
    } else if (row.isChained) {
      this.find('a ref that is not in the chain', `${row.ref}, in row ${row.id}`);
    } else if (!isOwn) {
      this.find(`an event with the ref ${row.ref}`, `${row.record}, in row ${row.id}`);
    }
    this.last = row;
  }

  /** What is wrong first; `nextSeq` is the place that the next event would get. */
  finding(nextSeq: number): Finding | undefined {
    return this.fault === undefined ? undefined : { ...this.fault, seq: nextSeq };
  }

  private find(expected: string, found: string): void {
    this.fault ??= {
      status: 'tampered',
      check: 'outbox',
      expected: shown(expected),
      found: shown(found),
    };
  }
}

function refIn(record: string): unknown {
  try {
    return (JSON.parse(record) as { ref?: unknown } | null)?.ref;
  } catch {
    return undefined;
  }
}
