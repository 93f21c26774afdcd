/**
 * The devices actor.
 *
 * Owns the stream `devices` (devices, revocations, voids), the KV rows of enrolment tokens and of
 * its idempotent calls, and the sightings. Follows the kill list. Messages: `messages.ts`.
 * Decisions: `decide.ts`.
 *
 * Crash: the view is replayed; nothing is lost, since nothing was answered before its commit.
 * Sightings noted since the last flush (at most `SIGHTING_FLUSH_MS`) are.
 *
 * Bounds: lanes and batches are the runtime's (`ACTOR_BOUNDS`); sightings wait at most one for each
 * device; a page of a list is bounded at the door.
 */
import { type ActorDefinition, Escalate, type WriteAsk } from '../../runtime/actor.js';
import type { Clock } from '../../runtime/clock.js';
import { CodedError, type Failure, failure } from '../../runtime/failure.js';
import type { Log } from '../../runtime/log.js';
import type { Random } from '../../runtime/random.js';
import {
  type Overlay,
  type ReadView,
  StreamActor,
  type StreamBehaviour,
} from '../../runtime/stream-actor.js';
import type { Locked, Store, StoredRecord } from '../../storage/store.js';
import type { EvidenceRecorder } from '../evidence.js';
import { stillInProgress } from '../idempotency.js';
import { KILL_LIST_STREAM } from '../kill-list/state.js';
import type { StorageTypes } from '../storage-types.js';
import { mayRotate, TokenRows } from './admission.js';
import { DEVICES_ACTOR } from './client.js';
import { decideWrite, kvKeysOf, viewOf } from './decide.js';
import {
  type ConfirmFirstUse,
  type DevicePage,
  type DeviceView,
  type DeviceWrites,
  type Enroll,
  type GetDevice,
  type ListDevices,
  type MayRotate,
  packAllowed,
} from './messages.js';
import { DevicesOverlay } from './overlay.js';
import { Sightings } from './sightings.js';
import {
  applyRecord,
  DEVICES_STREAM,
  DevicesState,
  isKilled,
  isLiveCredential,
  type KnownDevice,
} from './state.js';

/** What the actor is given: its thread's store and whatever a simulation replaces. */
export interface DevicesEnvironment {
  readonly store: Store;
  readonly clock: Clock;
  readonly random: Random;
  readonly log: Log;
  readonly evidence: EvidenceRecorder;
}

const UNKNOWN: Failure = failure('device_unknown', 'No device has this credential.');
const REVOKED: Failure = failure('device_revoked', 'The device was revoked.');
const KILLED: Failure = failure('device_killed', 'The device or its user is on the kill list.');
/** The kill list is followed, so that one catch-up brings both. */
const FOLLOWS = [DEVICES_STREAM, KILL_LIST_STREAM];
const WRITES = [DEVICES_STREAM];

/** The devices actor for a host; see the head of this file. */
export function devicesActor(environment: DevicesEnvironment): ActorDefinition {
  return {
    name: DEVICES_ACTOR,
    isWrite: isDeviceWrite,
    create: (context) =>
      new StreamActor<DevicesState, StorageTypes>(
        DEVICES_ACTOR,
        new DevicesBehaviour(environment),
        environment.store,
        environment.log,
        context,
      ),
  };
}

/** Which kinds go to the write lane. */
export function isDeviceWrite(kind: string): boolean {
  return Object.hasOwn(decideWrite, kind);
}

class DevicesBehaviour implements StreamBehaviour<DevicesState, StorageTypes> {
  readonly follows = FOLLOWS;
  readonly writes = WRITES;
  private readonly sightings: Sightings;
  private readonly tokens: TokenRows;

  constructor(private readonly environment: DevicesEnvironment) {
    this.tokens = new TokenRows(environment.store.kv);
    this.sightings = new Sightings(environment.store, environment.clock);
  }

  emptyState(): DevicesState {
    return new DevicesState();
  }

  apply(state: DevicesState, record: StoredRecord): void {
    applyRecord(state, record);
  }

  read(state: DevicesState, kind: string, payload: unknown, view: ReadView<StorageTypes>): unknown {
    switch (kind) {
      case 'authenticate':
        return this.authenticate(state, payload as string, view.storeTimeMs);
      case 'mayEnroll':
        return this.tokens.mayEnroll(state, payload as Enroll, view.storeTimeMs);
      case 'mayRotate':
        return mayRotate(state, payload as MayRotate, view.storeTimeMs);
      case 'list':
        return this.list(state, payload as ListDevices, view.position.epoch);
      case 'get':
        return this.get(state, payload as GetDevice);
      default:
        throw new RangeError(`The devices actor knows no message of kind ${kind}.`);
    }
  }

  needs(batch: readonly WriteAsk[]): { readonly kv: readonly string[] } {
    return { kv: [...new Set(batch.flatMap((ask) => kvKeysOf(ask.kind, ask.payload)))] };
  }

  overlay(state: DevicesState, locked: Locked): Overlay<StorageTypes> {
    const { random, evidence } = this.environment;
    const overlay = new DevicesOverlay(state, locked, random, evidence);
    return {
      decide: (kind, payload) => {
        const decide = decideWrite[kind as keyof DeviceWrites] as (
          on: DevicesOverlay,
          input: unknown,
        ) => unknown;
        return decide(overlay, payload);
      },
      changes: () => overlay.changes(),
    };
  }

  expired(ask: WriteAsk, running: readonly WriteAsk[]): Failure | undefined {
    return stillInProgress(ask, running);
  }

  async background(): Promise<void> {
    await this.sightings.flushIfDue();
  }

  async close(): Promise<void> {
    await this.sightings.flush();
  }

  inspect(state: DevicesState): Readonly<Record<string, unknown>> {
    return { devices: state.byId.size, revoked: state.revocations.size };
  }

  private authenticate(
    state: DevicesState,
    digest: string,
    storeTimeMs: number,
  ): string | Failure | Escalate {
    const device = state.byDigest.get(digest);
    if (device === undefined || !isLiveCredential(device, digest, storeTimeMs)) return UNKNOWN;
    if (state.revocations.has(device.id)) return REVOKED;
    if (isKilled(state, device, storeTimeMs)) return KILLED;
    if (device.unconfirmed) {
      return new Escalate('confirmFirstUse', {
        credentialDigest: digest,
      } satisfies ConfirmFirstUse);
    }
    this.sightings.note(device, storeTimeMs);
    device.packed ??= packAllowed(device.id, device.user);
    return device.packed;
  }

  private async list(state: DevicesState, page: ListDevices, epoch: string): Promise<DevicePage> {
    const { found, next } = devicesAfter(state, page);
    const items = await this.views(state, found);
    return { items, epoch, ...(next === undefined ? {} : { next }) };
  }

  private async get(state: DevicesState, { id }: GetDevice): Promise<DeviceView> {
    const device = state.byId.get(id);
    const [view] = device ? await this.views(state, [device]) : [];
    if (!view) throw new CodedError('device_not_found', 'There is no device with this id.');
    return view;
  }

  private async views(
    state: DevicesState,
    devices: readonly KnownDevice[],
  ): Promise<readonly DeviceView[]> {
    const views = devices.map((device) => viewOf(device, state.revocations.get(device.id)));
    const seenAtMs = await this.sightings.lastSeenMs(devices.map((device) => device.id));
    return views.map((view) => {
      const lastSeenAtMs = seenAtMs.get(view.id);
      return lastSeenAtMs === undefined ? view : { ...view, lastSeenAtMs };
    });
  }
}

/** One page, and the ordinal after which the next one goes on. */
function devicesAfter(
  state: DevicesState,
  page: ListDevices,
): { found: KnownDevice[]; next: number | undefined } {
  const found: KnownDevice[] = [];
  for (const ordinal of ordinalsAfter(state, page)) {
    const device = state.byOrdinal[ordinal];
    if (!device) continue;
    if (found.length === page.limit) return { found, next: found.at(-1)?.ordinal };
    found.push(device);
  }
  return { found, next: undefined };
}

function* ordinalsAfter(state: DevicesState, page: ListDevices): Generator<number> {
  if (page.user !== undefined) {
    for (const ordinal of state.ordinalsOf(page.user)) if (ordinal > page.after) yield ordinal;
    return;
  }
  for (let ordinal = page.after + 1; ordinal < state.nextOrdinal; ordinal += 1) yield ordinal;
}
