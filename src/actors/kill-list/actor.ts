/**
 * The kill-list actor.
 *
 * Owns the stream `kill-list`: kills, lifts, and expiries, which are lifts that a replica writes
 * when the store's clock has passed them. Messages: `messages.ts`. Decisions: `overlay.ts`.
 *
 * Crash: the view is replayed. Bounds: `KILL_LIST_ENTRIES_MAX` entries; lanes and batches are the
 * runtime's.
 */
import type { ActorDefinition, WriteAsk } from '../../runtime/actor.js';
import type { Log } from '../../runtime/log.js';
import { type ReadView, StreamActor, type StreamBehaviour } from '../../runtime/stream-actor.js';
import type { Locked, Store, StoredRecord } from '../../storage/store.js';
import { type Idempotency, idempotencyKvKey } from '../idempotency.js';
import type { StorageTypes } from '../storage-types.js';
import { KILL_LIST_ACTOR } from './client.js';
import type { KillListView } from './messages.js';
import { KillListOverlay } from './overlay.js';
import { applyKillRecord, isInForce, KILL_LIST_STREAM, KillListState } from './state.js';

/** What the actor works with. */
export interface KillListEnvironment {
  readonly store: Store;
  readonly log: Log;
}

const STREAMS = [KILL_LIST_STREAM];
/** A change that another replica made is known after this, without any hint (DESIGN §3). */
const POLL_MS = 200;
const LIFT_EXPIRED: WriteAsk = { kind: 'liftExpired', payload: {} };

/** The definition that a host is given. */
export function killListActor({ store, log }: KillListEnvironment): ActorDefinition {
  return {
    name: KILL_LIST_ACTOR,
    isWrite: isKillListWrite,
    bounds: { backgroundPeriodMs: POLL_MS },
    create: () =>
      new StreamActor<KillListState, StorageTypes>(KILL_LIST_ACTOR, behaviour, store, log),
  };
}

/** Which kinds go to the write lane. */
export function isKillListWrite(kind: string): boolean {
  return kind !== 'list';
}

const behaviour: StreamBehaviour<KillListState, StorageTypes> = {
  follows: STREAMS,
  writes: STREAMS,
  emptyState: () => new KillListState(),
  apply: (state: KillListState, record: StoredRecord) => void applyKillRecord(state, record),
  read: (state, kind, _payload, view) => {
    if (kind !== 'list') throw new RangeError(`The kill-list actor knows no message ${kind}.`);
    return listOf(state, view);
  },
  needs: (batch) => ({ kv: batch.flatMap(({ payload }) => idempotencyKeys(payload)) }),
  overlay: (state: KillListState, locked: Locked) => new KillListOverlay(state, locked),
  due: (state, storeTimeMs) => {
    for (const entry of state.entries.values()) {
      if (!isInForce(entry, storeTimeMs)) return [LIFT_EXPIRED];
    }
    return [];
  },
  inspect: (state) => ({ version: state.version, entries: state.entries.size }),
};

function listOf(state: KillListState, view: ReadView<StorageTypes>): KillListView {
  return {
    epoch: view.position.epoch,
    version: state.version,
    asOfMs: view.storeTimeMs,
    entries: [...state.entries.values()],
  };
}

function idempotencyKeys(payload: unknown): string[] {
  const { idempotency } = payload as { readonly idempotency?: Idempotency };
  return idempotency ? [idempotencyKvKey(idempotency)] : [];
}
