/** What the gateways actor can be asked, as data. Kinds are the keys of the two maps below. */
import type { Idempotency } from '../idempotency.js';

/** Makes a gateway. Names are for people: two gateways may share one. */
export interface CreateGateway {
  readonly name: string;
  readonly by: string;
  readonly idempotency?: Idempotency;
}

/** The token in the clear, here and never again. */
export interface CreatedGateway {
  readonly id: string;
  readonly name: string;
  readonly token: string;
}

/** Gives a gateway another token at once; the old one works for `overlapSeconds` more. */
export interface RotateGateway {
  readonly id: string;
  readonly overlapSeconds: number;
  readonly by: string;
  readonly idempotency?: Idempotency;
}

/** The new token in the clear, here and never again. */
export interface RotatedGateway {
  readonly token: string;
}

/** Shuts a gateway out for good. Removing it again changes nothing. */
export interface RemoveGateway {
  readonly id: string;
  readonly by: string;
  readonly idempotency?: Idempotency;
}

/** Since when the gateway is shut out, ms since the Unix epoch on the store's clock. */
export interface RemovedGateway {
  readonly id: string;
  readonly removedAtMs: number;
}

/** Where a gateway stands in the list, whether or not it still is in it. */
export interface GatewayPlace {
  readonly createdAtMs: number;
  readonly id: string;
}

/** A page of all gateways, or of those that are connected and below the newest version. */
export interface ListGateways {
  readonly behind: boolean;
  readonly limit: number;
  /** The place of the last one of the page before; absent for the first page. */
  readonly after?: GatewayPlace;
}

/** A gateway as operators see it. Times are in ms since the Unix epoch on the store's clock. */
export interface GatewayView {
  readonly id: string;
  readonly name: string;
  readonly createdAtMs: number;
  readonly rotatedAtMs?: number;
  /** Streams that are open on all replicas together. */
  readonly connections: number;
  /** The least that any of its streams has acknowledged; absent without one. */
  readonly ackVersion?: number;
  /** When `ackVersion` was last known to be so. */
  readonly ackAtMs?: number;
}

/** A page in the order of their making, and the kill list's version that they are held to. */
export interface GatewayList {
  readonly items: readonly GatewayView[];
  /** Where to go on after; absent on the last page. */
  readonly next?: GatewayPlace;
  readonly epoch: string;
  readonly version: number;
}

/** What one front thread has open for one gateway. */
export interface GatewayStreams {
  readonly gateway: string;
  readonly connections: number;
  /** The least that any of them has acknowledged; 0 while one has acknowledged nothing. */
  readonly ackVersion: number;
}

/**
 * All that one front thread has open, sent about once a second and whenever it becomes nothing;
 * replaces what the same front said before. A front that is silent for `REPORT_AGE_MAX_MS` has
 * nothing open any more.
 */
export interface GatewayReport {
  /** Any text that no other front thread of the process uses. */
  readonly front: string;
  /** The epoch whose versions are acknowledged: a report of another one is dropped. */
  readonly epoch: string;
  readonly gateways: readonly GatewayStreams[];
}

/**
 * What the actor tells every front thread by itself, in order with its answers: a stream that was
 * opened with a token that does not work any more must be closed. Tokens are named by digest.
 */
export type GatewaysNews =
  /** These ended: removed, rotated away, or at the end of their overlap. */
  | { readonly type: 'ended'; readonly credentials: readonly string[] }
  /**
   * Told once after each start of the actor, since what ended while it was down is in no `ended`:
   * all that work now. A stream with any other is over.
   */
  | { readonly type: 'live'; readonly credentials: readonly string[] };

/** Reads: the payload and the answer of each kind. */
export interface GatewayReads {
  /** The token's digest in, the gateway's id out, or `token_unknown`. Ages as devices' do. */
  authenticate: { payload: string; answer: string };
  list: { payload: ListGateways; answer: GatewayList };
  /** Answered after a catch-up, which tells its news: for hints that another replica wrote. */
  catchUp: { payload: null; answer: true };
  /** Kept in memory; written with others' in the background. */
  report: { payload: GatewayReport; answer: true };
}

/** Writes: the payload and the answer of each kind. */
export interface GatewayWrites {
  create: { payload: CreateGateway; answer: CreatedGateway };
  rotate: { payload: RotateGateway; answer: RotatedGateway };
  remove: { payload: RemoveGateway; answer: RemovedGateway };
}

/**
 * Codes that the gateways actor answers with, beside those of the runtime, the store and
 * idempotent calls.
 */
export const GATEWAY_CODES = ['token_unknown', 'gateway_not_found', 'gateways_full'] as const;
/** One of `GATEWAY_CODES`. */
export type GatewayCode = (typeof GATEWAY_CODES)[number];
