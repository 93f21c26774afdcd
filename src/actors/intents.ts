/**
 * Effects of a leader. Immediately before each one its intent is written under the term's fence, so
 * that a deposed leader cannot begin one: the write is refused, and nothing is done. What may have
 * been done before (by an earlier term, or by this one before a crash) is looked up first, and done
 * again only where nobody can tell: at least once, and whoever gets it tells repeats by the key.
 *
 * What remains: a leader that is stopped between its last look at its term and the effect itself
 * does it when it goes on, under a key that its successor uses too. Source: DESIGN §5; ADR-0021
 * "Controller side effects are fenced through intents". Unlike there, no effect is done while the
 * store cannot be written, since nobody would know of it.
 */
import type { EffectRegistry } from '../effects/effect.js';
import { CodedError } from '../runtime/failure.js';
import type { ActiveTerm } from '../runtime/thread-terms.js';
import { type DocumentKey, documentName, type Store } from '../storage/store.js';

/** The kind of the documents; their ids are the effects' keys. */
export const INTENT_KIND = 'intent';
/** How long it is known that an effect was done: longer than anybody asks for it again. */
const DONE_KEPT_MS = 7 * 86_400_000;

/** An effect that is to be done once. */
export interface Intent {
  /** The same for every attempt, by whatever leader. */
  readonly key: string;
  /** Of the effect. */
  readonly kind: string;
  readonly payload: string;
}

/** What is kept of an intent. */
export interface IntentRecord {
  readonly kind: string;
  readonly status: 'begun' | 'done';
  /** Of the term that wrote this. */
  readonly token: number;
  /** ms since the Unix epoch on the store's clock. */
  readonly atMs: number;
}

/** What became of an intent. */
export type Performed =
  /** It was done now. */
  | 'performed'
  /** It was done before, as the store or a look-up said. */
  | 'known';

/** What effects need. */
export interface IntentEnvironment {
  readonly store: Store;
  readonly effects: EffectRegistry;
}

/** Where an intent is kept. */
export function intentKey(key: string): DocumentKey {
  return { kind: INTENT_KIND, id: key };
}

/**
 * Does an effect under a term. Rejects with `fenced` when the term is over (the rest of a leader's
 * work should end with it: see `TermWork`), `term_over` when that was known beforehand,
 * `effect_unknown`, or what the effect or the store rejects with; it can be tried again then.
 */
export async function performFenced(
  { store, effects }: IntentEnvironment,
  term: ActiveTerm,
  intent: Intent,
): Promise<Performed> {
  const effect = effects.named(intent.kind);
  const before = await write(store, term, intent, 'begun');
  if (before?.status === 'done') return 'known';
  const { key, payload } = intent;
  if (before !== undefined && (await effect.lookUp(key, payload, term.signal)) === 'done') {
    await write(store, term, intent, 'done');
    return 'known';
  }
  if (!term.isTrusted()) throw new CodedError('term_over', 'The term ended before the effect.');
  await effect.perform(key, payload, term.signal);
  await write(store, term, intent, 'done');
  return 'performed';
}

/** Writes where an intent is now, unless it is done; returns where it was. */
async function write(
  store: Store,
  { fence }: ActiveTerm,
  { key, kind }: Intent,
  status: IntentRecord['status'],
): Promise<IntentRecord | undefined> {
  const at = intentKey(key);
  const position = await store.replay([], () => undefined);
  let before: IntentRecord | undefined;
  await store.commit({ streams: [], position, documents: [at], fence }, (locked) => {
    const document = locked.documents.get(documentName(at));
    before = document === undefined ? undefined : (JSON.parse(document.body) as IntentRecord);
    if (before?.status === 'done') return {};
    const atMs = locked.storeTimeMs;
    const body = JSON.stringify({ kind, status, token: fence.token, atMs } satisfies IntentRecord);
    const expiresAtMs = status === 'done' ? atMs + DONE_KEPT_MS : null;
    return { documents: [{ op: 'put', ...at, body, expiresAtMs }] };
  });
  return before;
}
