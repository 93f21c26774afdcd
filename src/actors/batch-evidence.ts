/** The evidence of one batch of writes: made while it is decided, committed with what it is of. */
import type { EvidenceEvent } from '../storage/evidence-store.js';
import type { Deed } from './act-kinds.js';
import type { EvidenceRecorder } from './evidence.js';

/**
 * One batch's events, in lane order. To be asked before a decision changes anything: what cannot be
 * recorded is not done, and fails alone.
 */
export class BatchEvidence {
  readonly events: EvidenceEvent[] = [];

  /** `nowMs` is the store's clock under the lock. */
  constructor(
    private readonly recorder: EvidenceRecorder,
    private readonly nowMs: number,
  ) {}

  /** The act's ref. Throws what `EvidenceRecorder.event` throws. */
  record(deed: Deed): string {
    const event = this.eventOf(deed);
    this.events.push(event);
    return event.ref;
  }

  /** All of them or none. */
  recordAll(deeds: readonly Deed[]): void {
    const events = deeds.map((deed) => this.eventOf(deed));
    for (const event of events) this.events.push(event);
  }

  /** A free text as records and rows may hold it; ids and users are compared, and stay. */
  mask(field: string, text: string): string {
    return this.recorder.mask(field, text);
  }

  private eventOf(deed: Deed): EvidenceEvent {
    return this.recorder.event({ ...deed, atMs: this.nowMs });
  }
}
