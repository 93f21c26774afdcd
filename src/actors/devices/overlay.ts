/**
 * One batch of writes, decided on copies laid over the state: nothing here touches the view, and
 * all of it is thrown away if the commit fails.
 */
import type { Random } from '../../runtime/random.js';
import type { Format } from '../../storage/envelope.js';
import type { Changes, Locked } from '../../storage/store.js';
import { BatchEvidence } from '../batch-evidence.js';
import { BatchValues } from '../batch-values.js';
import type { EvidenceRecorder } from '../evidence.js';
import {
  type Device,
  type DevicesRecord,
  type DevicesState,
  isKilled,
  isLiveCredential,
  type Revocation,
  toAppend,
} from './state.js';

/**
 * What one batch sees and changes: the state, what the lock let through, and the writes decided
 * before in the same batch. Methods that look something up prefer the newest of these.
 */
export class DevicesOverlay {
  private readonly devices = new Map<string, Device>();
  private readonly digests = new Map<string, Device>();
  private readonly revocations = new Map<string, Revocation>();
  private readonly voids = new Map<string, number>();
  private readonly records: DevicesRecord[] = [];
  private enrolled = 0;
  readonly values: BatchValues;
  readonly evidence: BatchEvidence;

  constructor(
    private readonly state: DevicesState,
    private readonly locked: Locked,
    readonly random: Random,
    recorder: EvidenceRecorder,
  ) {
    this.values = new BatchValues(locked);
    this.evidence = new BatchEvidence(recorder, locked.storeTimeMs);
  }

  /** The store's clock under the lock. */
  get nowMs(): number {
    return this.locked.storeTimeMs;
  }

  device(id: string): Device | undefined {
    return this.devices.get(id) ?? this.state.byId.get(id);
  }

  /** The device that this credential lets in now, were it not for a revocation. */
  deviceByCredential(digest: string): Device | undefined {
    const found = this.digests.get(digest) ?? this.state.byDigest.get(digest);
    if (!found) return undefined;
    const device = this.device(found.id);
    return device && isLiveCredential(device, digest, this.nowMs) ? device : undefined;
  }

  revocation(id: string): Revocation | undefined {
    return this.revocations.get(id) ?? this.state.revocations.get(id);
  }

  isKilled(device: Device): boolean {
    return isKilled(this.state, device, this.nowMs);
  }

  /** The user's last void; tokens minted before it are void. 0 when there never was one. */
  voidedUpToMs(user: string): number {
    return this.voids.get(user) ?? this.state.voids.get(user) ?? 0;
  }

  /** The ordinal of the next device to be enrolled; ordinals have no gaps. */
  nextOrdinal(): number {
    return this.state.nextOrdinal + this.enrolled;
  }

  putDevice(device: Device): void {
    if (!this.device(device.id)) this.enrolled += 1;
    this.devices.set(device.id, device);
    this.digests.set(device.digest, device);
    this.records.push({ type: 'device', device });
  }

  revoke(revocation: Revocation): void {
    this.revocations.set(revocation.id, revocation);
    this.records.push({ type: 'revocation', revocation });
  }

  voidTokens(user: string, upToMs: number): void {
    this.voids.set(user, upToMs);
    this.records.push({ type: 'token-void', void: { user, upToMs } });
  }

  changes(): Changes {
    const format = this.locked.writeFormat as Format;
    return {
      appends: this.records.map((record) => toAppend(record, format)),
      kv: this.values.changes,
      evidence: this.evidence.events,
    };
  }
}
