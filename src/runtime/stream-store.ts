/**
 * What a stream actor needs of a store, in the runtime's own words. `src/storage` has the real
 * shapes; the runtime only moves them between the store and the actor's behaviour.
 */

/** How far one stream was applied: the id of its newest record, 0 before the first. */
export interface StreamCursor {
  readonly id: number;
}

/** How far a view has applied all of its streams, and of which history. */
export interface StreamPosition {
  /** Identity of the history; a store that was restored gets another. */
  readonly epoch: string;
  readonly cursors: Readonly<Record<string, StreamCursor>>;
}

/** As much of a record as the runtime looks at; ids grow within a stream, with gaps. */
export interface StreamRecord {
  readonly stream: string;
  readonly id: number;
}

/**
 * What was committed after a position, read when it was asked for. With `more` the page was full:
 * one must catch up again before the view is used.
 */
export interface StreamCatchUp<Position, Rec> {
  readonly position: Position;
  readonly records: readonly Rec[];
  readonly storeTimeMs: number;
  readonly more: boolean;
}

/** A unit's own records as they were committed, and the position after them. */
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

/**
 * The calls of `Store` in `src/storage/store.ts` that the runtime makes itself; what they promise,
 * and which codes they fail with, is written there.
 */
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

/** The view is not of the store's history any more: replace the epoch and replay. */
export const HISTORY_CHANGED = 'history_changed';
/** The store refused the unit and wrote nothing of it; a part of the batch may still succeed. */
export const WRITE_REFUSED = 'write_refused';
