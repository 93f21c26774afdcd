/** A decision read back from its evidence. */
import type { Party } from '../../evidence/event.js';
import type { DecisionWord } from './messages.js';

/** What an event or a record of kind `decision.made` says. */
export interface DecodedDecision {
  readonly by: Party;
  readonly decision: DecisionWord;
  /** Of its approval; absent where none is needed. */
  readonly expiresAtMs?: number;
}

interface DecisionText {
  readonly kind: string;
  readonly by: Party;
  readonly data: { readonly decision: DecisionWord; readonly expiresAt: string | null };
}

/** Undefined for evidence of something else. Events and records have these fields alike. */
export function decodedDecision(text: string): DecodedDecision | undefined {
  const { kind, by, data } = JSON.parse(text) as DecisionText;
  if (kind !== 'decision.made') return undefined;
  const { decision, expiresAt } = data;
  return {
    by,
    decision,
    ...(expiresAt === null ? {} : { expiresAtMs: Date.parse(expiresAt) }),
  };
}
