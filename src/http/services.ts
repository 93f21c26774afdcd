/** What the front end is given by the process that hosts it, and what it tells about itself. */
import type { AuditClient } from '../actors/audit-chainer/client.js';
import type { AuditExportClient } from '../actors/audit-export/client.js';
import type { DecisionsClient } from '../actors/decisions/client.js';
import type { DevicesClient } from '../actors/devices/client.js';
import type { GatewaysClient } from '../actors/gateways/client.js';
import type { KillListClient } from '../actors/kill-list/client.js';
import type { LeaderClient } from '../actors/leader/client.js';
import type { LimiterClient } from '../actors/limiter/client.js';
import type { Clock } from '../runtime/clock.js';
import type { Log } from '../runtime/log.js';
import type { Random } from '../runtime/random.js';
import type { AdminToken } from './authorization.js';
import type { LeaseStatus } from './lease-families.js';

/** What does not change while a front server runs. */
export interface FrontOptions {
  readonly host: string;
  /** Shared between front threads when it is not 0: whoever hosts them proves that it is free. */
  readonly port: number;
  /** Addresses or CIDRs whose `Forwarded` and `X-Forwarded-For` are believed. */
  readonly trustedProxies: readonly string[];
  readonly adminTokens: readonly AdminToken[];
  /** Key of the HMAC over idempotent bodies; the same on every replica. */
  readonly hmacKey: Uint8Array;
  readonly replica: string;
  readonly version: string;
  readonly backend: string;
  /** Whether allowed authentications are logged, at debug: they cost a log line each. */
  readonly logAllowed?: boolean;
}

/** What a front server asks of others; all that it cannot do itself. */
export interface FrontServices {
  readonly devices: DevicesClient;
  readonly kills: KillListClient;
  readonly gateways: GatewaysClient;
  readonly audit: AuditClient;
  readonly auditExport: AuditExportClient;
  readonly leader: LeaderClient;
  readonly decisions: DecisionsClient;
  /** Asked about every attempt that failed, and about no other. */
  readonly limiter: LimiterClient;
  /** Ed25519 over the UTF-8 of `message`; key and signature in base64url. */
  verifyProof(publicKey: string, message: string, signature: string): Promise<boolean>;
  /** Sends the asks of this turn to their actors now: the turn will be a long one. */
  sendAsks(): void;
  status(): Promise<StatusDocument>;
  readonly clock: Clock;
  readonly random: Random;
  readonly log: Log;
}

/** Whether this replica should get traffic, and if not, why. */
export interface Readiness {
  readonly ready: boolean;
  /** Short phrases for people, without secrets; empty when ready. */
  readonly reasons: readonly string[];
}

/** `GET /v1/status`; each issue adds the fields of what it builds. */
export interface StatusDocument {
  readonly replica: string;
  /** Of its own clock, when it last looked at itself; RFC 3339. */
  readonly time?: string;
  readonly backend: string;
  readonly epoch: string;
  readonly version: string;
  /** How changes by other replicas get here. */
  readonly push?: 'listen' | 'poll';
  /** The main lease; null before the elector is there. */
  readonly leader?: LeaseStatus | null;
  readonly leases?: readonly LeaseStatus[];
  /** Events that wait for their place in the evidence chain; null: not known at the moment. */
  readonly chain_lag_records?: number | null;
  /** Of the policy in force; null: there is none. */
  readonly policy?: { readonly digest: string | null };
  readonly actors: readonly ActorStatus[];
}

/** How one actor is, for `GET /v1/status`. */
export interface ActorStatus {
  readonly name: string;
  readonly thread: string;
  readonly state?: string;
  readonly [fact: string]: unknown;
}
