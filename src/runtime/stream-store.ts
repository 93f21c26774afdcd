/**
 * What a stream actor needs of a store, in the runtime's own words. `src/storage` has the real
 * shapes; the runtime only moves them between the store and the actor's behaviour.
 */

export interface StreamCursor {
  readonly id: number;
}
export interface StreamPosition {
  /** Identity of the history; a store that was restored gets another. */
  readonly epoch: string;
  readonly cursors: Readonly<Record<string, StreamCursor>>;
}
export interface StreamRecord {
  readonly stream: string;
  readonly id: number;
}
export interface StreamCatchUp<Position, Rec> {
  readonly position: Position;
  readonly records: readonly Rec[];
  readonly storeTimeMs: number;
  readonly more: boolean;
}
export interface StreamCommitted<Position, Rec> {
  readonly records: readonly Rec[];
  readonly position: Position;
  readonly storeTimeMs: number;
}

/** The types of one store, gathered so that signatures stay short. */
export interface StoreTypes {
  position: StreamPosition;
  record: StreamRecord;
  /** What is known under the lock. */
  locked: { readonly records: readonly StreamRecord[]; readonly position: StreamPosition };
  /** What a unit of work reads beside its streams. */
  needs: object;
  changes: object;
}

export interface StreamStore<T extends StoreTypes> {
  replay(
    streams: readonly string[],
    onRecords: (records: readonly T['record'][]) => void,
  ): Promise<T['position']>;
  catchUp(
    position: T['position'],
  ): StreamCatchUp<T['position'], T['record']> | Promise<StreamCatchUp<T['position'], T['record']>>;
  commit(
    unit: T['needs'] & { readonly streams: readonly string[]; readonly position: T['position'] },
    decide: (locked: T['locked']) => T['changes'],
  ): Promise<StreamCommitted<T['position'], T['record']>>;
  replaceEpoch(seenEpoch: string): Promise<unknown>;
}

/** The codes by which a store says what the runtime must do about a failure. */
export const HISTORY_CHANGED = 'history_changed';
export const WRITE_REFUSED = 'write_refused';
