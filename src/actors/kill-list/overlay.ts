/** One batch of kills and lifts, decided on copies laid over the list. */
import type { JsonObject } from '../../evidence/canonical-json.js';
import { CodedError } from '../../runtime/failure.js';
import type { Overlay } from '../../runtime/stream-actor.js';
import type { Format } from '../../storage/envelope.js';
import type { Changes, Locked } from '../../storage/store.js';
import { actTime, adminParty, type Deed, SERVER } from '../act-kinds.js';
import { BatchEvidence } from '../batch-evidence.js';
import { BatchValues } from '../batch-values.js';
import type { EvidenceRecorder } from '../evidence.js';
import type { Idempotency } from '../idempotency.js';
import type { StorageTypes } from '../storage-types.js';
import type { Kill, KillEntry, Killed, KillListWrites, Lift, Lifted } from './messages.js';
import {
  isInForce,
  KILL_LIST_STREAM,
  type KillListRecord,
  type KillListState,
  nameOf,
  toKillAppend,
} from './state.js';

/**
 * Entries that the list may hold: a snapshot of them is a few megabytes, and whoever needs more has
 * something else to stop.
 */
export const KILL_LIST_ENTRIES_MAX = 10_000;

/** Decides on what the lock let through; thrown away if the commit fails. */
export class KillListOverlay implements Overlay<StorageTypes> {
  private readonly entries = new Map<string, KillEntry | undefined>();
  private readonly records: KillListRecord[] = [];
  private readonly values: BatchValues;
  private readonly evidence: BatchEvidence;
  private size: number;

  constructor(
    private readonly state: KillListState,
    private readonly locked: Locked,
    recorder: EvidenceRecorder,
  ) {
    this.size = state.entries.size;
    this.values = new BatchValues(locked);
    this.evidence = new BatchEvidence(recorder, locked.storeTimeMs);
  }

  decide(kind: string, payload: unknown): unknown {
    const decide = this.decisions[kind as keyof KillListWrites] as (input: unknown) => unknown;
    return decide(payload);
  }

  changes(): Changes {
    const format = this.locked.writeFormat as Format;
    return {
      appends: this.records.map((record) => toKillAppend(record, format)),
      kv: this.values.changes,
      evidence: this.evidence.events,
      ...(this.records.length === 0 ? {} : { hints: [KILL_LIST_STREAM] }),
    };
  }

  private readonly decisions: {
    [Kind in keyof KillListWrites]: (
      input: KillListWrites[Kind]['payload'],
    ) => KillListWrites[Kind]['answer'];
  } = {
    kill: (input) => this.once(input.idempotency, () => this.kill(input)),
    lift: (input) => this.once(input.idempotency, () => this.lift(input)),
    liftExpired: () => this.liftExpired(),
  };

  private get version(): number {
    return this.state.version + this.records.length;
  }

  private kill(input: Kill): Killed {
    const nowMs = this.locked.storeTimeMs;
    const { kind, id, by, expiresAtMs } = input;
    if (expiresAtMs !== undefined && expiresAtMs <= nowMs) {
      throw new CodedError('kill_already_expired', 'expiresAt is not in the future.');
    }
    const before = this.find(input);
    if (before && isInForce(before, nowMs) && before.expiresAtMs === expiresAtMs) {
      return { ...this.at(), entry: before };
    }
    if (!before && this.size >= KILL_LIST_ENTRIES_MAX) {
      throw new CodedError(
        'kill_list_full',
        `The kill list holds ${KILL_LIST_ENTRIES_MAX} entries; lift some first.`,
      );
    }
    this.evidence.record(this.killed(input, before));
    const reason = this.evidence.mask('reason', input.reason);
    const expiry = expiresAtMs === undefined ? {} : { expiresAtMs };
    const entry: KillEntry = { kind, id, reason, by, atMs: nowMs, ...expiry };
    if (!before) this.size += 1;
    this.entries.set(nameOf(input), entry);
    this.records.push({ type: 'kill', version: this.version + 1, entry });
    return { ...this.at(), entry };
  }

  private lift({ kind, id, by }: Lift): Lifted {
    const entry = this.find({ kind, id });
    if (entry) {
      this.evidence.record({
        kind: 'kill-list.lifted',
        by: adminParty(by),
        data: this.liftedData(entry, this.version + 1),
      });
      this.remove(entry, by);
    }
    return this.at();
  }

  /** Judged under the lock, so that of replicas that notice together one does it. */
  private liftExpired(): Lifted {
    const names = new Set([...this.state.entries.keys(), ...this.entries.keys()]);
    const expired = [...names]
      .map((name) => (this.entries.has(name) ? this.entries : this.state.entries).get(name))
      .filter((entry) => entry !== undefined)
      .filter((entry) => !isInForce(entry, this.locked.storeTimeMs));
    const { version } = this;
    this.evidence.recordAll(
      expired.map((entry, index) => ({
        kind: 'kill-list.expired',
        by: SERVER,
        data: this.liftedData(entry, version + index + 1),
      })),
    );
    for (const entry of expired) this.remove(entry, '');
    return this.at();
  }

  private killed(input: Kill, before: KillEntry | undefined): Deed<'kill-list.killed'> {
    const { kind, id, reason, by, expiresAtMs } = input;
    return {
      kind: 'kill-list.killed',
      by: adminParty(by),
      data: {
        target: { kind, id },
        reason,
        expiresAt: actTime(expiresAtMs),
        replaced: before ? entryData(before) : null,
        version: this.version + 1,
        epoch: this.locked.position.epoch,
      },
    };
  }

  private liftedData(entry: KillEntry, version: number): Deed<'kill-list.lifted'>['data'] {
    const { kind, id } = entry;
    const { epoch } = this.locked.position;
    return { target: { kind, id }, lifted: entryData(entry), version, epoch };
  }

  private remove({ kind, id }: KillEntry, by: string): void {
    const target = { kind, id };
    this.size -= 1;
    this.entries.set(nameOf(target), undefined);
    const atMs = this.locked.storeTimeMs;
    this.records.push({ type: 'lift', version: this.version + 1, target, by, atMs });
  }

  private find(target: { kind: string; id: string }): KillEntry | undefined {
    const name = nameOf(target);
    return this.entries.has(name) ? this.entries.get(name) : this.state.entries.get(name);
  }

  private at(): Lifted {
    return { epoch: this.locked.position.epoch, version: this.version };
  }

  /** The same call again gets the answer of the first. */
  private once<Answer>(idempotency: Idempotency | undefined, decide: () => Answer): Answer {
    const before = this.values.answered<Answer>(idempotency);
    if (before) return before;
    const answer = decide();
    this.values.remember(idempotency, answer);
    return answer;
  }
}

function entryData({ reason, by, atMs, expiresAtMs }: KillEntry): JsonObject {
  return { reason, by, at: actTime(atMs), expiresAt: actTime(expiresAtMs) };
}
