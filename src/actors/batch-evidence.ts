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

  /** Without a recorder there is no evidence. `nowMs` is the store's clock under the lock. */
  constructor(
    private readonly recorder: EvidenceRecorder | undefined,
    private readonly nowMs: number,
  ) {}

  /** The ref of the act, of which nothing is kept when it throws. */
  record(deed: Deed): string | undefined {
    return this.recordAll([deed])[0];
  }

  /** All of them or none. Throws `CodedError` `evidence_too_large` and what the recorder throws. */
  recordAll(deeds: readonly Deed[]): readonly string[] {
    const { recorder, nowMs: atMs } = this;
    if (recorder === undefined) return [];
    const events = deeds.map((deed) => recorder.event({ ...deed, atMs }));
    this.events.push(...events);
    return events.map(({ ref }) => ref);
  }

  /** A free text as records and rows may hold it; ids and users are compared, and stay. */
  mask(field: string, text: string): string {
    return this.recorder?.mask(field, text) ?? text;
  }
}
