/**
 * The gateways actor.
 *
 * Owns the stream `gateways` (gateways and removals) and the KV rows of its idempotent calls.
 * Follows the kill list for its version. Keeps what front threads report of open streams, and
 * writes that in the background. Messages: `messages.ts`. Decisions: `overlay.ts`.
 *
 * Crash: the view is replayed, and front threads are told all tokens that still work. Bounds:
 * `GATEWAYS_MAX` gateways; lanes and batches are the runtime's.
 */
import type { ActorDefinition, WriteAsk } from '../../runtime/actor.js';
import type { Clock } from '../../runtime/clock.js';
import { type Failure, failure } from '../../runtime/failure.js';
import type { Log } from '../../runtime/log.js';
import type { Random } from '../../runtime/random.js';
import { type ReadView, StreamActor, type StreamBehaviour } from '../../runtime/stream-actor.js';
import type { Locked, Store, StoredRecord } from '../../storage/store.js';
import type { EvidenceRecorder } from '../evidence.js';
import { idempotencyKvKeys, stillInProgress } from '../idempotency.js';
import { KILL_LIST_STREAM } from '../kill-list/state.js';
import type { StorageTypes } from '../storage-types.js';
import { GATEWAYS_ACTOR } from './client.js';
import type {
  GatewayList,
  GatewayPlace,
  GatewayReport,
  GatewaysNews,
  GatewayView,
  GatewayWrites,
  ListGateways,
} from './messages.js';
import { type GatewayOpen, OpenStreams } from './open-streams.js';
import { GatewaysOverlay } from './overlay.js';
import {
  applyGatewaysRecord,
  GATEWAYS_STREAM,
  type Gateway,
  GatewaysState,
  isLiveToken,
} from './state.js';

/** What the actor is given: its thread's store and whatever a simulation replaces. */
export interface GatewaysEnvironment {
  readonly store: Store;
  readonly clock: Clock;
  readonly random: Random;
  readonly log: Log;
  readonly evidence: EvidenceRecorder;
}

const UNKNOWN: Failure = failure('token_unknown', 'No gateway has this token.');
const FOLLOWS = [GATEWAYS_STREAM, KILL_LIST_STREAM];
const WRITES = [GATEWAYS_STREAM];
const WRITE_KINDS: Readonly<Record<keyof GatewayWrites, true>> = {
  create: true,
  rotate: true,
  remove: true,
};
/** A removal that another replica made closes streams here after this, where no hint arrives. */
const POLL_MS = 200;
/** Enough that no two starts of replicas have the same mark. */
const START_BYTES = 8;

/** The gateways actor for a host; see the head of this file. */
export function gatewaysActor(environment: GatewaysEnvironment): ActorDefinition {
  const start = Buffer.from(environment.random.bytes(START_BYTES)).toString('hex');
  return {
    name: GATEWAYS_ACTOR,
    isWrite: isGatewayWrite,
    bounds: { backgroundPeriodMs: POLL_MS },
    create: (context) =>
      new StreamActor<GatewaysState, StorageTypes>(
        GATEWAYS_ACTOR,
        new GatewaysBehaviour(environment, start),
        environment.store,
        environment.log,
        context,
      ),
  };
}

/** Which kinds go to the write lane. */
export function isGatewayWrite(kind: string): boolean {
  return Object.hasOwn(WRITE_KINDS, kind);
}

class GatewaysBehaviour implements StreamBehaviour<GatewaysState, StorageTypes> {
  readonly follows = FOLLOWS;
  readonly writes = WRITES;
  private readonly streams: OpenStreams;
  private epoch = '';

  constructor(
    private readonly environment: GatewaysEnvironment,
    start: string,
  ) {
    const { store, clock, log } = environment;
    this.streams = new OpenStreams(store, clock, log, start);
  }

  emptyState(): GatewaysState {
    return new GatewaysState();
  }

  apply(state: GatewaysState, record: StoredRecord): void {
    applyGatewaysRecord(state, record);
  }

  read(
    state: GatewaysState,
    kind: string,
    payload: unknown,
    view: ReadView<StorageTypes>,
  ): unknown {
    switch (kind) {
      case 'authenticate':
        return authenticate(state, payload as string, view.storeTimeMs);
      case 'list':
        return this.list(state, payload as ListGateways, view);
      case 'catchUp':
        return true;
      case 'report':
        return this.report(state, payload as GatewayReport, view.position.epoch);
      default:
        throw new RangeError(`The gateways actor knows no message of kind ${kind}.`);
    }
  }

  needs(batch: readonly WriteAsk[]): { readonly kv: readonly string[] } {
    return { kv: idempotencyKvKeys(batch) };
  }

  overlay(state: GatewaysState, locked: Locked): GatewaysOverlay {
    const { random, evidence } = this.environment;
    return new GatewaysOverlay(state, locked, random, evidence);
  }

  expired(ask: WriteAsk, running: readonly WriteAsk[]): Failure | undefined {
    return stillInProgress(ask, running);
  }

  async background(): Promise<void> {
    if (this.epoch !== '') await this.streams.flushIfDue(this.epoch);
  }

  news(
    state: GatewaysState,
    { position, storeTimeMs }: ReadView<StorageTypes>,
    routine: boolean,
  ): GatewaysNews | undefined {
    this.epoch = position.epoch;
    for (const [digest, untilMs] of state.ending) {
      if (storeTimeMs < untilMs) continue;
      state.ending.delete(digest);
      state.untold.push(digest);
    }
    const ended = state.untold;
    if (routine && !state.isAnnounced) {
      state.isAnnounced = true;
      state.untold = [];
      return { type: 'live', credentials: liveTokens(state, storeTimeMs) };
    }
    if (ended.length === 0) return undefined;
    state.untold = [];
    return { type: 'ended', credentials: ended };
  }

  async close(): Promise<void> {
    await this.streams.close();
  }

  inspect(state: GatewaysState): Readonly<Record<string, unknown>> {
    return {
      gateways: state.byId.size,
      removed: state.removals.size,
      connections: this.streams.connections,
    };
  }

  private report(state: GatewaysState, report: GatewayReport, epoch: string): true {
    const isOurs = report.epoch === epoch;
    this.streams.report(isOurs ? report : { ...report, gateways: [] }, state.kills.version);
    return true;
  }

  private async list(
    state: GatewaysState,
    { behind, limit, after }: ListGateways,
    { position: { epoch }, storeTimeMs }: ReadView<StorageTypes>,
  ): Promise<GatewayList> {
    const { version } = state.kills;
    const gateways = [...state.byId.values()]
      .filter((gateway) => after === undefined || byAge(gateway, after) > 0)
      .sort(byAge);
    const open = await this.streams.open(epoch, storeTimeMs);
    const isBehind = ({ id }: Gateway): boolean => {
      const ackVersion = open.get(id)?.ackVersion;
      return ackVersion !== undefined && ackVersion < version;
    };
    const wanted = behind ? gateways.filter(isBehind) : gateways;
    const page = wanted.slice(0, limit);
    const last = page.at(-1);
    return {
      items: page.map((gateway) => viewOf(gateway, open.get(gateway.id))),
      ...(last && wanted.length > limit
        ? { next: { createdAtMs: last.createdAtMs, id: last.id } }
        : {}),
      epoch,
      version,
    };
  }
}

function authenticate(state: GatewaysState, digest: string, storeTimeMs: number): string | Failure {
  const gateway = state.byDigest.get(digest);
  return gateway && isLiveToken(gateway, digest, storeTimeMs) ? gateway.id : UNKNOWN;
}

function liveTokens(state: GatewaysState, storeTimeMs: number): string[] {
  return [...state.byDigest]
    .filter(([digest, gateway]) => isLiveToken(gateway, digest, storeTimeMs))
    .map(([digest]) => digest);
}

/** The same order on every replica, whatever order the records came in. */
function byAge(one: GatewayPlace, other: GatewayPlace): number {
  const tie = one.id < other.id ? -1 : Number(one.id !== other.id);
  return one.createdAtMs - other.createdAtMs || tie;
}

function viewOf(gateway: Gateway, open: GatewayOpen | undefined): GatewayView {
  const { id, name, createdAtMs, rotatedAtMs } = gateway;
  return {
    id,
    name,
    createdAtMs,
    ...(rotatedAtMs === undefined ? {} : { rotatedAtMs }),
    connections: open?.connections ?? 0,
    ...(open ? { ackVersion: open.ackVersion, ackAtMs: open.ackAtMs } : {}),
  };
}
