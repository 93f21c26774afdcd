/**
 * The audit chainer.
 *
 * Owns the chain's tail as far as this replica writes it: takes what waits in the outbox to its
 * place, in batches of one transaction each, and states checkpoints, rotations and accepted
 * restores. Whether it may is asked each time, never remembered: another replica at it is `busy`,
 * and nobody waits (ADR-0009). On files the commits chain themselves, and only statements are left.
 *
 * Messages: `messages.ts`. Reads are answered from the store, not from memory.
 *
 * Crash: nothing is lost, what waits stays in the outbox. An event that cannot be chained stops the
 * drain, is reported with its row, and is tried again with each tick; it is never skipped.
 *
 * Bounds: `DRAIN_BATCH_MAX` events a transaction; below.
 */

import { type CheckpointState, isCheckpointDue } from '../../evidence/chain.js';
import { KIND_CHECKPOINT, KIND_GENESIS } from '../../evidence/format.js';
import type { Keyring } from '../../evidence/keyring.js';
import type { WriteAsk } from '../../runtime/actor.js';
import { type ActorDefinition, type ActorHandlers, MustReopen } from '../../runtime/actor.js';
import { type Clock, repeat, type Timer } from '../../runtime/clock.js';
import type { CpuPool } from '../../runtime/cpu-pool.js';
import { CodedError, toFailure } from '../../runtime/failure.js';
import type { Log } from '../../runtime/log.js';
import { requireKey, type StatementRequest } from '../../storage/chain-linker.js';
import {
  type ChainedRecord,
  DRAIN_BATCH_MAX,
  type EvidenceStore,
  type StoredHead,
} from '../../storage/evidence-store.js';
import type { PublishedCheckpoints } from '../../storage/published-checkpoints.js';
import type { Store } from '../../storage/store.js';
import { replicaDeed, SERVER } from '../act-kinds.js';
import type { EvidenceRecorder } from '../evidence.js';
import { AUDIT_CHAINER_ACTOR } from './client.js';
import type {
  AuditReads,
  AuditStatement,
  AuditWrites,
  EvidenceName,
  ReadAudit,
  ReadRecords,
  RotateKey,
  TailAudit,
} from './messages.js';
import { chainRewound, rewound } from './published.js';
import { find, readPage, readTail } from './reading.js';
import { AuditState } from './state.js';
import { VerifiedPrefix } from './verified-prefix.js';

/** What a process has for its evidence, shared by its threads. */
export interface ChainingEnvironment {
  readonly recorder: EvidenceRecorder;
  readonly keyring: Keyring;
  readonly published: PublishedCheckpoints;
  /** Checks signatures (`src/verify/signatures.ts`). */
  readonly pool: CpuPool;
  /** How many batches this process has put into the outbox: a change wakes the chainer. */
  readonly enqueued: () => number;
  /** Whether this process may enqueue: not without the chain's current key. */
  readonly allow: (allowed: boolean) => void;
  /** What the starts and stops of this replica are recorded with. */
  readonly replica: { readonly id: string; readonly version: string };
}

/** What the actor is given: its thread's store and whatever a simulation replaces. */
export interface AuditChainerEnvironment {
  readonly store: Store;
  readonly clock: Clock;
  readonly log: Log;
  readonly chaining: ChainingEnvironment;
}

/** The tick of ADR-0009: what others have enqueued waits so long at most. */
const TICK_MS = 2_000;
/** How often it is looked whether this process has enqueued anything: 20 to 50 ms are wanted. */
const WAKE_MS = 25;
/** A last drain when the process ends: the rest is another replica's, or the next start's. */
const LAST_DRAIN_MAX_MS = 2_000;
const WRITE_KINDS: Readonly<Record<keyof AuditWrites, true>> = {
  checkpoint: true,
  rotateKey: true,
  acceptRestore: true,
};
/** Statements are rare; reads each are a query or a few. */
const BOUNDS = {
  readLane: { depthMax: 1_024, operatorReserve: 0 },
  writeLane: { depthMax: 64, operatorReserve: 0 },
  readBatchMax: 16,
  writeBatchMax: 1,
  backgroundPeriodMs: TICK_MS,
} satisfies ActorDefinition['bounds'];

/** The audit chainer for a host; see the head of this file. */
export function auditChainerActor(environment: AuditChainerEnvironment): ActorDefinition {
  const life = { announced: false };
  return {
    name: AUDIT_CHAINER_ACTOR,
    isWrite: isAuditWrite,
    create: () => new AuditChainer(environment, life),
    bounds: BOUNDS,
  };
}

/** Which kinds go to the write lane. */
export function isAuditWrite(kind: string): boolean {
  return Object.hasOwn(WRITE_KINDS, kind);
}

class AuditChainer implements ActorHandlers {
  private readonly chain: EvidenceStore;
  private readonly verified: VerifiedPrefix;
  private wake: Timer | undefined;
  private seen = 0;
  private draining: Promise<void> | undefined;
  private lastCheckpoint: { readonly seq: number; readonly atMs: number } | undefined;
  private readonly known = new AuditState();
  /** The hash of the newest record after which the current key was seen to be held. */
  private keyKnownAt: string | undefined;
  private closed = false;

  constructor(
    private readonly environment: AuditChainerEnvironment,
    /** Of the process: an incarnation after a crash is no start of a replica. */
    private readonly life: { announced: boolean },
  ) {
    const { store, log, chaining } = environment;
    this.chain = store.evidence;
    this.verified = new VerifiedPrefix(store.evidence, chaining.pool, log);
  }

  async open(): Promise<void> {
    const { chaining, clock } = this.environment;
    chaining.allow(false);
    await this.requireKey();
    if (this.chain.mode === 'direct') await this.requirePublished();
    chaining.allow(true);
    if (!this.life.announced) await this.announce('server.started');
    this.life.announced = true;
    this.known.lagRecords = await this.chain.pending();
    this.wake = repeat(clock, WAKE_MS, () => this.drainIfEnqueued());
  }

  refresh(): void {
    // Each read asks the store itself.
  }

  read(kind: string, payload: unknown): unknown {
    switch (kind as keyof AuditReads) {
      case 'find':
        return find(this.chain, payload as EvidenceName);
      case 'page':
        return this.withVerified(readPage(this.chain, payload as ReadAudit));
      case 'records': {
        const { afterSeq, limit } = payload as ReadRecords;
        return this.chain.page(afterSeq, limit);
      }
      case 'tail':
        return this.withVerified(readTail(this.chain, payload as TailAudit));
      default:
        throw new RangeError(`The audit chainer knows no message of kind ${kind}.`);
    }
  }

  async write(batch: readonly WriteAsk[]): Promise<readonly unknown[]> {
    const answers: unknown[] = [];
    for (const { kind, payload } of batch) {
      answers.push(
        await this.state(kind as keyof AuditWrites, payload as AuditStatement).catch(
          (error: unknown) => {
            if (error instanceof CodedError) return toFailure(error);
            throw error;
          },
        ),
      );
    }
    return answers;
  }

  /** The tick. What goes wrong here is a fact and a line in the log, but a key that is missing. */
  async background(): Promise<void> {
    try {
      const head = await this.chain.head();
      if (head.hash !== this.keyKnownAt) await this.requireKey();
      await this.drain();
      this.known.lagRecords = await this.chain.pending();
    } catch (error) {
      if (error instanceof CodedError && error.code === 'signing_key_missing') {
        this.environment.chaining.allow(false);
        throw new MustReopen('The chain goes on with a key that is not held here.', error);
      }
      this.failed(error);
    }
  }

  async close(): Promise<void> {
    if (this.closed) return;
    this.closed = true;
    this.wake?.cancel();
    this.verified.close();
    if (this.wake === undefined) return;
    try {
      await this.announce('server.stopped');
      await Promise.race([this.drain(), this.timeout(LAST_DRAIN_MAX_MS)]);
    } catch (error) {
      this.failed(error);
    }
    this.environment.chaining.allow(false);
  }

  inspect(): Readonly<Record<string, unknown>> {
    return { ...this.known.facts(this.chain.mode, this.verified.upTo) };
  }

  private async withVerified<T>(page: Promise<T>): Promise<T & { verifiedUpTo: number }> {
    return { ...(await page), verifiedUpTo: await this.verified.look() };
  }

  private async drainIfEnqueued(): Promise<void> {
    const enqueued = this.environment.chaining.enqueued();
    if (enqueued === this.seen || this.closed) return;
    this.seen = enqueued;
    await this.drain().catch((error: unknown) => this.failed(error));
  }

  /** Until the outbox is empty, or another replica is at it. One at a time. */
  private drain(): Promise<void> {
    if (this.chain.mode === 'direct') return this.checkpointIfDue();
    this.draining ??= this.drainAll().finally(() => {
      this.draining = undefined;
    });
    return this.draining;
  }

  private async drainAll(): Promise<void> {
    await this.requirePublished();
    for (;;) {
      const result = await this.chain.drain(DRAIN_BATCH_MAX);
      if (result.kind === 'busy') break;
      this.known.head = result.head;
      this.known.chained(result.events);
      await this.checkpointIfDue();
      if (result.events < DRAIN_BATCH_MAX) break;
    }
    this.known.stopped = '';
  }

  private async checkpointIfDue(): Promise<void> {
    const nowMs = this.environment.clock.wallMs();
    if (this.chain.mode === 'direct') this.known.head = await this.chain.head();
    const { head } = this.known;
    if (head.seq < 0) return;
    const isDue = (lastCheckpoint: CheckpointState['lastCheckpoint']): boolean =>
      isCheckpointDue({ head, lastCheckpoint }, nowMs);
    if (this.lastCheckpoint !== undefined && !isDue(this.lastCheckpoint)) return;
    this.lastCheckpoint = await this.newestCheckpoint(head);
    if (isDue(this.lastCheckpoint)) await this.state('checkpoint', { by: SERVER });
  }

  /** Another replica may have stated one meanwhile. */
  private async newestCheckpoint(head: StoredHead): Promise<{ seq: number; atMs: number }> {
    const known = this.lastCheckpoint?.seq ?? 0;
    let before = head.seq + 1;
    for (;;) {
      const page = await this.chain.pageBack(before, LOOK_BACK_RECORDS);
      for (const { seq, text } of page) {
        const { kind, at } = JSON.parse(text) as { kind: string; at: string };
        const isFound = kind === KIND_CHECKPOINT || kind === KIND_GENESIS || seq === known;
        if (isFound) return { seq, atMs: Date.parse(at) };
      }
      const oldest = page.at(-1);
      if (oldest === undefined) return { seq: 0, atMs: 0 };
      before = oldest.seq;
    }
  }

  private async state(kind: keyof AuditWrites, input: AuditStatement): Promise<ChainedRecord> {
    const { published } = this.environment.chaining;
    if (kind === 'acceptRestore') return this.acceptRestore(input);
    await this.requirePublished();
    const record = await this.append(statementOf(kind, input));
    if (kind === 'checkpoint') {
      const { seq, hash } = record;
      await published.add({ seq, hash });
      this.lastCheckpoint = { seq, atMs: this.environment.clock.wallMs() };
    }
    return record;
  }

  private async acceptRestore({ by }: AuditStatement): Promise<ChainedRecord> {
    const { published } = this.environment.chaining;
    const lost = await rewound(this.chain, published);
    if (lost === undefined) {
      throw new CodedError('chain_not_rewound', 'The chain has every published checkpoint.');
    }
    const record = await this.append({ kind: 'restore', by, lost: { ...lost } });
    await published.keepUpTo(lost.fromSeq - 1);
    this.known.stopped = '';
    return record;
  }

  private async append(request: StatementRequest): Promise<ChainedRecord> {
    const record = (await this.chain.append(request)).at(-1);
    if (record === undefined) throw new RangeError('A statement became no record.');
    this.known.head = { seq: record.seq, hash: record.hash };
    return record;
  }

  /** Without the chain's current key nothing can be chained, and nothing should be enqueued. */
  private async requireKey(): Promise<void> {
    const head = await requireKey(this.chain, this.environment.chaining.keyring);
    this.known.head = head;
    this.keyKnownAt = head.hash;
  }

  private async requirePublished(): Promise<void> {
    const { published } = this.environment.chaining;
    const lost = await rewound(this.chain, published);
    if (lost !== undefined) throw chainRewound(lost);
  }

  /** In a unit of its own: nothing else happens with it. */
  private async announce(kind: 'server.started' | 'server.stopped'): Promise<void> {
    const { store, chaining } = this.environment;
    const deed = replicaDeed(kind, chaining.replica, store.backend);
    const position = await store.replay([], () => undefined);
    await store.commit({ streams: [], position }, ({ storeTimeMs: atMs }) => ({
      evidence: [chaining.recorder.event({ ...deed, atMs })],
    }));
  }

  private failed(error: unknown): void {
    const { code, message } =
      error instanceof CodedError ? error : { code: 'internal_error', message: String(error) };
    if (!this.known.failed(code, message)) return;
    this.environment.log.error({ code, error: message }, 'Evidence is not being chained.');
  }

  private timeout(ms: number): Promise<void> {
    return new Promise((resolve) => this.environment.clock.schedule(resolve, ms));
  }
}

/** A checkpoint is due after so many: looking further back is rare. */
const LOOK_BACK_RECORDS = 1_000;

function statementOf(kind: keyof AuditWrites, input: AuditStatement): StatementRequest {
  const { by } = input;
  if (kind === 'checkpoint') return { kind: 'checkpoint', by };
  const { nextKeyId } = input as RotateKey;
  return { kind: 'rotation', by, ...(nextKeyId === undefined ? {} : { nextKeyId }) };
}
