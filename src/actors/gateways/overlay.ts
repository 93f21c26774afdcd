/** One batch of changes to gateways, decided on copies laid over the state. */
import { CodedError } from '../../runtime/failure.js';
import { type Random, uuidV7 } from '../../runtime/random.js';
import type { Overlay } from '../../runtime/stream-actor.js';
import type { Format } from '../../storage/envelope.js';
import type { Changes, Locked } from '../../storage/store.js';
import { actTime, adminParty } from '../act-kinds.js';
import { BatchEvidence } from '../batch-evidence.js';
import { BatchValues } from '../batch-values.js';
import type { EvidenceRecorder } from '../evidence.js';
import { type Idempotency, superseded } from '../idempotency.js';
import { digestOf, mintSecret } from '../secrets.js';
import type { StorageTypes } from '../storage-types.js';
import type {
  CreatedGateway,
  CreateGateway,
  GatewayWrites,
  RemovedGateway,
  RemoveGateway,
  RotatedGateway,
  RotateGateway,
} from './messages.js';
import {
  GATEWAYS_STREAM,
  type Gateway,
  type GatewaysRecord,
  type GatewaysState,
  type Removal,
  toGatewayAppend,
} from './state.js';

/**
 * Gateways that there may be at once: far more than a fleet has, and few enough that a list of all
 * of them is an answer of some megabytes.
 */
export const GATEWAYS_MAX = 10_000;

/** What an idempotency row keeps of a call that minted a token. */
interface TokenBefore {
  readonly id: string;
  readonly digest: string;
}

/** Decides on what the lock let through; thrown away if the commit fails. */
export class GatewaysOverlay implements Overlay<StorageTypes> {
  /** Changed in this batch; undefined: removed. */
  private readonly gateways = new Map<string, Gateway | undefined>();
  private readonly removals = new Map<string, Removal>();
  private readonly records: GatewaysRecord[] = [];
  private readonly values: BatchValues;
  private readonly evidence: BatchEvidence;
  private size: number;

  constructor(
    private readonly state: GatewaysState,
    private readonly locked: Locked,
    private readonly random: Random,
    recorder: EvidenceRecorder,
  ) {
    this.size = state.byId.size;
    this.values = new BatchValues(locked);
    this.evidence = new BatchEvidence(recorder, locked.storeTimeMs);
  }

  decide(kind: string, payload: unknown): unknown {
    const decide = this.decisions[kind as keyof GatewayWrites] as (input: unknown) => unknown;
    return decide(payload);
  }

  changes(): Changes {
    const format = this.locked.writeFormat as Format;
    return {
      appends: this.records.map((record) => toGatewayAppend(record, format)),
      kv: this.values.changes,
      evidence: this.evidence.events,
      ...(this.records.length === 0 ? {} : { hints: [GATEWAYS_STREAM] }),
    };
  }

  private readonly decisions: {
    [Kind in keyof GatewayWrites]: (
      input: GatewayWrites[Kind]['payload'],
    ) => GatewayWrites[Kind]['answer'];
  } = {
    create: (input) => this.create(input),
    rotate: (input) => this.rotate(input),
    remove: (input) => this.remove(input),
  };

  private create(input: CreateGateway): CreatedGateway {
    const before = this.values.answered<TokenBefore>(input.idempotency);
    const made = before ? this.createdBefore(before, input.by) : this.newGateway(input);
    const token = mintSecret('gateway', this.random);
    const digest = digestOf(token);
    this.put({ ...made, digest });
    this.rememberToken(input.idempotency, { id: made.id, digest });
    return { id: made.id, name: made.name, token };
  }

  private createdBefore(before: TokenBefore, by: string): Gateway {
    const gateway = this.unchangedSince(before);
    this.recordReissue(gateway, by);
    return gateway;
  }

  private newGateway({ name, by }: CreateGateway): Omit<Gateway, 'digest'> {
    if (this.size >= GATEWAYS_MAX) {
      throw new CodedError(
        'gateways_full',
        `There are ${GATEWAYS_MAX} gateways; remove some first.`,
      );
    }
    const { storeTimeMs } = this.locked;
    const id = `gw_${uuidV7(this.random, storeTimeMs)}`;
    this.evidence.record({
      kind: 'gateway.created',
      by: adminParty(by),
      data: { gateway: id, name },
    });
    this.size += 1;
    return {
      id,
      name: this.evidence.mask('name', name),
      createdAtMs: storeTimeMs,
      rotatedAtMs: undefined,
      previousDigest: undefined,
      previousUntilMs: 0,
    };
  }

  private rotate({ id, overlapSeconds, by, idempotency }: RotateGateway): RotatedGateway {
    const before = this.values.answered<TokenBefore>(idempotency);
    const gateway = before ? this.unchangedSince(before) : this.known(id);
    const { storeTimeMs } = this.locked;
    const token = mintSecret('gateway', this.random);
    const digest = digestOf(token);
    // A call that is sent again replaces only the token of its first answer, which was lost.
    const replaced = before ? {} : overlapOf(gateway, overlapSeconds, storeTimeMs);
    const rotated = { ...gateway, ...replaced, digest, rotatedAtMs: storeTimeMs };
    if (before) this.recordReissue(gateway, by);
    else this.recordRotation(rotated, by);
    this.put(rotated);
    this.rememberToken(idempotency, { id: gateway.id, digest });
    return { token };
  }

  private remove({ id, by, idempotency }: RemoveGateway): RemovedGateway {
    const before = this.values.answered<RemovedGateway>(idempotency);
    if (before) return before;
    const already = this.removals.get(id) ?? this.state.removals.get(id);
    const removal = already ?? this.newRemoval(this.known(id), by);
    const answer: RemovedGateway = { id, removedAtMs: removal.atMs };
    this.values.remember(idempotency, answer);
    return answer;
  }

  private newRemoval({ id, name }: Gateway, by: string): Removal {
    this.evidence.record({
      kind: 'gateway.removed',
      by: adminParty(by),
      data: { gateway: id, name },
    });
    const removal = { id, atMs: this.locked.storeTimeMs, by };
    this.size -= 1;
    this.gateways.set(id, undefined);
    this.removals.set(id, removal);
    this.records.push({ type: 'removal', removal });
    return removal;
  }

  private recordRotation(rotated: Gateway, by: string): void {
    const { id: gateway, name, previousDigest, previousUntilMs } = rotated;
    this.evidence.record({
      kind: 'gateway.rotated',
      by: adminParty(by),
      data: {
        gateway,
        name,
        oldWorksUntil: previousDigest === undefined ? null : actTime(previousUntilMs),
      },
    });
  }

  private recordReissue({ id: gateway, name }: Gateway, by: string): void {
    this.evidence.record({
      kind: 'gateway.reissued',
      by: adminParty(by),
      data: { gateway, name },
    });
  }

  private put(gateway: Gateway): void {
    this.gateways.set(gateway.id, gateway);
    this.records.push({ type: 'gateway', gateway });
  }

  private find(id: string): Gateway | undefined {
    return this.gateways.has(id) ? this.gateways.get(id) : this.state.byId.get(id);
  }

  private known(id: string): Gateway {
    const gateway = this.find(id);
    if (!gateway) throw new CodedError('gateway_not_found', 'There is no gateway with this id.');
    return gateway;
  }

  /** The gateway while the token that the call answered with is still its own. */
  private unchangedSince({ id, digest }: TokenBefore): Gateway {
    const gateway = this.find(id);
    if (gateway?.digest !== digest) throw superseded();
    return gateway;
  }

  private rememberToken(idempotency: Idempotency | undefined, token: TokenBefore): void {
    this.values.remember(idempotency, token);
  }
}

function overlapOf(
  { digest }: Gateway,
  overlapSeconds: number,
  nowMs: number,
): Pick<Gateway, 'previousDigest' | 'previousUntilMs'> {
  if (overlapSeconds === 0) return { previousDigest: undefined, previousUntilMs: 0 };
  return { previousDigest: digest, previousUntilMs: nowMs + overlapSeconds * 1000 };
}
