/**
 * An actor whose only work is evidence: each write is one event, and all writes that wait are one
 * unit, as in the lane of whoever decides.
 */
import type { WriteAsk } from '../src/runtime/actor.js';
import { ActorHost } from '../src/runtime/actor-host.js';
import { askForValue } from '../src/runtime/ask.js';
import type { EvidenceEvent } from '../src/storage/evidence-store.js';
import type { Position, Store } from '../src/storage/store.js';
import { environment } from './evidence-on-postgres.js';

const ACTOR = 'recording';

/** A lane in this process. */
export interface RecordingLane {
  /** Resolves with the ref once the event is durable. */
  record(event: EvidenceEvent): Promise<string>;
  close(): Promise<void>;
}

/** Opens the actor. */
export async function openRecordingLane(store: Store): Promise<RecordingLane> {
  let position: Position = { epoch: '', serverStart: '', cursors: {} };
  const commit = async (batch: readonly WriteAsk[]): Promise<string[]> => {
    const evidence = batch.map(({ payload }) => payload as EvidenceEvent);
    ({ position } = await store.commit({ streams: [], position }, () => ({ evidence })));
    return evidence.map(({ ref }) => ref);
  };
  const definition = {
    name: ACTOR,
    isWrite: () => true,
    create: () => ({
      open: async () => {
        position = await store.replay([], () => undefined);
      },
      refresh: () => undefined,
      read: () => undefined,
      write: commit,
      close: async () => undefined,
      inspect: () => ({}),
    }),
  };
  const host = new ActorHost([definition], { ...environment, onExhausted: () => undefined });
  await host.open();
  const ref = host.localRef(ACTOR);
  return {
    record: (event) => askForValue<string>(ref, 'record', event),
    close: () => host.close(),
  };
}
