/**
 * What actors say happened. An event is made while a batch is decided and goes into the same commit
 * as what it is evidence of (`Changes.evidence`); its ref can be answered as soon as that commit is
 * done. Masked and bounded here, before anything is stored.
 */
import { createHmac, timingSafeEqual } from 'node:crypto';
import type { JsonObject } from '../evidence/canonical-json.js';
import { encodeEvent, type Party } from '../evidence/event.js';
import type { Keyring, SigningKey } from '../evidence/keyring.js';
import type { Masking } from '../evidence/masking.js';
import type { Clock } from '../runtime/clock.js';
import type { Random } from '../runtime/random.js';
import { newRef } from '../storage/chain-linker.js';
import type { EvidenceEvent } from '../storage/evidence-store.js';

/** What a recorder refuses an event with. */
export const EVIDENCE_CODES = ['evidence_too_large', 'evidence_invalid'] as const;
/** One of `EVIDENCE_CODES`. */
export type EvidenceCode = (typeof EVIDENCE_CODES)[number];

/** Who did what, at which time of the store's clock. */
export interface Act {
  /** Such as `device.revoked`. */
  readonly kind: string;
  readonly by: Party;
  /** ms since the Unix epoch on the store's clock. */
  readonly atMs: number;
  readonly data: JsonObject;
}

/** Makes the events of one thread's actors. */
export interface EvidenceRecorder {
  /**
   * A masked, bounded and encoded event under a fresh ref. Throws `CodedError` `evidence_too_large`
   * or `evidence_invalid`.
   */
  event(act: Act): EvidenceEvent;
  /**
   * A text as it may stand outside of evidence, in records and rows: without what the profile masks
   * in a field of that name.
   */
  mask(field: string, text: string): string;
  /**
   * HMAC-SHA256 behind the id of its key, by which something is recognised again on any replica
   * without being kept. `label` keeps purposes apart.
   */
  hmac(label: string, text: string): string;
  /** Whether that is the HMAC of the text by any held key, in constant time. */
  isHmac(label: string, text: string, hmac: string): boolean;
}

/** The recorder of a process that holds these keys. */
export function evidenceRecorder(options: {
  readonly keyring: Keyring;
  readonly masking: Masking;
  readonly clock: Clock;
  readonly random: Random;
}): EvidenceRecorder {
  const { keyring, masking, clock, random } = options;
  const hmacBy = (key: SigningKey, label: string, text: string): string =>
    `${key.id}.${createHmac('sha256', key.derive(label)).update(text).digest('hex')}`;
  return {
    event: ({ kind, by, atMs, data }) => {
      const ref = newRef(random, clock);
      const draft = { ref, kind, at: new Date(atMs).toISOString(), by, data };
      return { ref, text: encodeEvent(draft, masking) };
    },
    mask: (field, text) => {
      const { value } = masking.mask({ [field]: text }, 'data');
      return (value as Readonly<Record<string, string>>)[field] ?? '';
    },
    hmac: (label, text) => hmacBy(keyring.current, label, text),
    isHmac: (label, text, hmac) => {
      const key = keyring.find(hmac.split('.')[0] ?? '');
      if (key === undefined) return false;
      const expected = Buffer.from(hmacBy(key, label, text));
      const given = Buffer.from(hmac);
      return expected.length === given.length && timingSafeEqual(expected, given);
    },
  };
}
