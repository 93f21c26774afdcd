/** Evidence on files. Not built yet: whoever commits any is refused, and nothing is written. */
import type { EvidenceStore } from '../evidence-store.js';
import { StoreError } from '../store-error.js';

/** See `EvidenceStore`. */
export function fileEvidence(): EvidenceStore {
  const refuse = (): Promise<never> => {
    const message = 'The file backend keeps no evidence yet.';
    return Promise.reject(new StoreError('incompatible', message));
  };
  return {
    mode: 'direct',
    drain: refuse,
    append: refuse,
    find: refuse,
    page: refuse,
    pageBack: refuse,
    head: refuse,
    pending: refuse,
  };
}
