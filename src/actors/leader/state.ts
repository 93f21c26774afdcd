/** The terms that a lease has had: a document that only the present term may write. Pure. */
import type { Fence } from '../../runtime/lease.js';
import type { DocumentKey, StoredDocument } from '../../storage/store.js';
import type { TermFacts } from './messages.js';

/** The kind of the documents; their ids are the names of the leases. */
export const TERM_KIND = 'term';
/** Enough to see a lease that changes hands all the time. */
export const TERMS_KEPT = 50;

/** Where a lease's terms are kept. */
export function termsKey(lease: string): DocumentKey {
  return { kind: TERM_KIND, id: lease };
}

/** Newest first. */
export function termsOf(document: StoredDocument | undefined): readonly TermFacts[] {
  if (document === undefined) return [];
  return (JSON.parse(document.body) as { readonly terms: readonly TermFacts[] }).terms;
}

/** With one more; as it is when it is there already, as after a commit that was not answered. */
export function withTerm(
  terms: readonly TermFacts[],
  { token, holder }: Fence,
  beganAtMs: number,
): readonly TermFacts[] {
  if (terms[0]?.token === token) return terms;
  return [{ token, holder, beganAtMs }, ...terms].slice(0, TERMS_KEPT);
}
