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
import type { EvidenceRecorder } from '../evidence.js';
import { idempotencyKvKeys, stillInProgress } from '../idempotency.js';
import type { StorageTypes } from '../storage-types.js';
import { KILL_LIST_ACTOR } from './client.js';
import type { KillListNews, KillListVersion } from './messages.js';
import { KillListOverlay } from './overlay.js';
import { applyKillRecord, isInForce, KILL_LIST_STREAM, KillListState } from './state.js';

/** What the actor works with. */
export interface KillListEnvironment {
  readonly store: Store;
  readonly log: Log;
  readonly evidence: EvidenceRecorder;
}

const STREAMS = [KILL_LIST_STREAM];
/** A change that another replica made is known after this, without any hint (DESIGN §3). */
const POLL_MS = 200;
const LIFT_EXPIRED: WriteAsk = { kind: 'liftExpired', payload: {} };

/** The definition that a host is given. */
export function killListActor(environment: KillListEnvironment): ActorDefinition {
  const { store, log, evidence } = environment;
  const behaviour = killListBehaviour(evidence);
  return {
    name: KILL_LIST_ACTOR,
    isWrite: isKillListWrite,
    bounds: { backgroundPeriodMs: POLL_MS },
    create: (context) =>
      new StreamActor<KillListState, StorageTypes>(KILL_LIST_ACTOR, behaviour, store, log, context),
  };
}

/** Which kinds go to the write lane. */
export function isKillListWrite(kind: string): boolean {
  return kind !== 'list' && kind !== 'version';
}

function killListBehaviour(
  evidence: EvidenceRecorder,
): StreamBehaviour<KillListState, StorageTypes> {
  return {
    follows: STREAMS,
    writes: STREAMS,
    emptyState: () => new KillListState(),
    apply: (state: KillListState, record: StoredRecord) => {
      state.untold.push(applyKillRecord(state, record));
    },
    read: (state, kind, _payload, view) => {
      if (kind === 'version') return versionOf(state, view);
      if (kind === 'list')
        return { ...versionOf(state, view), entries: [...state.entries.values()] };
      throw new RangeError(`The kill-list actor knows no message of kind ${kind}.`);
    },
    news: newsOf,
    needs: (batch) => ({ kv: idempotencyKvKeys(batch) }),
    overlay: (state: KillListState, locked: Locked) => new KillListOverlay(state, locked, evidence),
    expired: stillInProgress,
    due: (state, storeTimeMs) => {
      for (const entry of state.entries.values()) {
        if (!isInForce(entry, storeTimeMs)) return [LIFT_EXPIRED];
      }
      return [];
    },
    inspect: (state) => ({ version: state.version, entries: state.entries.size }),
  };
}

function versionOf(state: KillListState, view: ReadView<StorageTypes>): KillListVersion {
  return { epoch: view.position.epoch, version: state.version, asOfMs: view.storeTimeMs };
}

function newsOf(
  state: KillListState,
  view: ReadView<StorageTypes>,
  routine: boolean,
): KillListNews | undefined {
  const changes = state.untold.splice(0);
  const [first] = changes;
  if (first)
    return { type: 'changes', ...versionOf(state, view), from: first.version - 1, changes };
  return routine ? { type: 'unchanged', ...versionOf(state, view) } : undefined;
}
