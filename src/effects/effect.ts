/**
 * What is done outside of the store. An effect is asked for by a key that travels with it (the id
 * of a webhook's event, a marker in a pull request's body), so that who gets it twice can tell.
 */
import { CodedError } from '../runtime/failure.js';

/** Whether an effect with a key is there already, as far as its kind can tell. */
export type LookedUp = 'done' | 'not-done' | 'unknown';

/** One kind of effect. */
export interface Effect {
  /** Such as `webhook`. */
  readonly kind: string;
  /** Asked before an effect that may have been done is done again. */
  lookUp(key: string, payload: string, signal: AbortSignal): Promise<LookedUp>;
  /** Resolves when it is done. Rejects with a `CodedError`; it may have been done all the same. */
  perform(key: string, payload: string, signal: AbortSignal): Promise<void>;
}

/** The kinds that a process knows. */
export class EffectRegistry {
  private readonly effects: ReadonlyMap<string, Effect>;

  constructor(effects: readonly Effect[]) {
    this.effects = new Map(effects.map((effect) => [effect.kind, effect]));
  }

  /** Throws `CodedError` `effect_unknown`. */
  named(kind: string): Effect {
    const effect = this.effects.get(kind);
    if (effect !== undefined) return effect;
    throw new CodedError('effect_unknown', `There is no effect of kind ${kind}.`);
  }
}
