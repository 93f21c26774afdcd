/** What this replica knows of the chain at the moment, and what it has done: all in memory. */
import type { StoredHead } from '../../storage/evidence-store.js';
import type { AuditFacts } from './messages.js';

/** Forgotten at a crash: the store has what matters. */
export class AuditState {
  /** The newest record as this replica saw it last. */
  head: StoredHead = { seq: -1, hash: '' };
  lagRecords = 0;
  /** Why nothing is chained here: a code and what is wrong; '' while all is well. */
  stopped = '';
  private drains = 0;
  private drained = 0;
  private errors = 0;

  /** A transaction took so many events to their places. */
  chained(events: number): void {
    if (events === 0) return;
    this.drains += 1;
    this.drained += events;
  }

  /** Whether it was not known before that nothing is chained, for this reason. */
  failed(code: string, message: string): boolean {
    const stopped = `${code}: ${message}`;
    const isNew = stopped !== this.stopped;
    this.errors += 1;
    this.stopped = stopped;
    return isNew;
  }

  facts(mode: AuditFacts['mode'], verifiedUpTo: number): AuditFacts {
    const { head, lagRecords, drains, drained, errors, stopped } = this;
    return { mode, lagRecords, headSeq: head.seq, verifiedUpTo, drains, drained, errors, stopped };
  }
}
