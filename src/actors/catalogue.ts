/** Every actor there is: what threads are made of, and what front threads must know of them. */
import type { ActorDefinition } from '../runtime/actor.js';
import {
  type AuditChainerEnvironment,
  auditChainerActor,
  isAuditWrite,
} from './audit-chainer/actor.js';
import { AUDIT_CHAINER_ACTOR } from './audit-chainer/client.js';
import {
  type AuditExportEnvironment,
  auditExportActor,
  isAuditExportWrite,
} from './audit-export/actor.js';
import { AUDIT_EXPORT_ACTOR } from './audit-export/client.js';
import { type DecisionsEnvironment, decisionsActor, isDecisionWrite } from './decisions/actor.js';
import { DECISIONS_ACTOR } from './decisions/client.js';
import { type DevicesEnvironment, devicesActor, isDeviceWrite } from './devices/actor.js';
import { DEVICES_ACTOR } from './devices/client.js';
import { type GatewaysEnvironment, gatewaysActor, isGatewayWrite } from './gateways/actor.js';
import { GATEWAYS_ACTOR } from './gateways/client.js';
import { isKillListWrite, type KillListEnvironment, killListActor } from './kill-list/actor.js';
import { KILL_LIST_ACTOR } from './kill-list/client.js';
import { isLeaderWrite, type LeaderEnvironment, leaderActor } from './leader/actor.js';
import { LEADER_ACTOR } from './leader/client.js';
import { isLimiterWrite, type LimiterEnvironment, limiterActor } from './limiter/actor.js';
import { LIMITER_ACTOR } from './limiter/client.js';

/** What any actor may be given. */
export type ActorEnvironment = DevicesEnvironment &
  KillListEnvironment &
  GatewaysEnvironment &
  LimiterEnvironment &
  LeaderEnvironment &
  AuditChainerEnvironment &
  AuditExportEnvironment &
  DecisionsEnvironment;

interface CatalogueEntry {
  readonly create: (environment: ActorEnvironment) => ActorDefinition;
  readonly isWrite: (kind: string) => boolean;
}

const CATALOGUE: Readonly<Record<string, CatalogueEntry>> = {
  [DEVICES_ACTOR]: { create: devicesActor, isWrite: isDeviceWrite },
  [DECISIONS_ACTOR]: { create: decisionsActor, isWrite: isDecisionWrite },
  [KILL_LIST_ACTOR]: { create: killListActor, isWrite: isKillListWrite },
  [GATEWAYS_ACTOR]: { create: gatewaysActor, isWrite: isGatewayWrite },
  [AUDIT_CHAINER_ACTOR]: { create: auditChainerActor, isWrite: isAuditWrite },
  [LIMITER_ACTOR]: { create: limiterActor, isWrite: isLimiterWrite },
  [LEADER_ACTOR]: { create: leaderActor, isWrite: isLeaderWrite },
  [AUDIT_EXPORT_ACTOR]: { create: auditExportActor, isWrite: isAuditExportWrite },
};

/** All actors, the busiest first, as `placeActors` wants them. */
export const ACTOR_NAMES: readonly string[] = Object.keys(CATALOGUE);

/** One actor, ready for a host. Throws a `RangeError` for a name that is not in `ACTOR_NAMES`. */
export function actorDefinition(name: string, environment: ActorEnvironment): ActorDefinition {
  return entry(name).create(environment);
}

/** Whether an ask of that kind changes something, which decides its deadline and its fate. */
export function isActorWrite(actor: string, kind: string): boolean {
  return entry(actor).isWrite(kind);
}

function entry(name: string): CatalogueEntry {
  const found = CATALOGUE[name];
  if (!found) throw new RangeError(`There is no actor named ${name}.`);
  return found;
}
