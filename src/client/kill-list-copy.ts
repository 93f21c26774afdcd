/**
 * What a gateway holds of the kill list. It outlives connections: through an outage the last list
 * stays in force, and within an epoch it never goes back.
 */
import type { DeltaFrame, Frame, HeartbeatFrame, KillEntry, SnapshotFrame } from './frames.js';

/**
 * What a frame came to. `changed`: the list is another now. `current`: the server has the same.
 * `part`: more of a snapshot is to come. `known`: it says nothing new. `gap`: something between was
 * missed, or the server is behind; connect again.
 */
export type Outcome = 'changed' | 'current' | 'part' | 'known' | 'gap';

/** Times that are given are monotonic, in ms. */
export class KillListCopy {
  private held: ReadonlyMap<string, KillEntry> = new Map();
  private partial:
    | { readonly of: SnapshotFrame; readonly entries: Map<string, KillEntry> }
    | undefined;
  private freshAtMs: number | undefined;
  /** The newest `asOf`, and how far the server's clock was ahead of the monotonic one then. */
  private asOfMs = 0;
  private serverAheadMs: number | undefined;
  epoch = '';
  /** -1: no list yet. */
  version = -1;

  /** `<epoch>.<version>`; undefined while there is no list. */
  get since(): string | undefined {
    return this.version < 0 ? undefined : `${this.epoch}.${this.version}`;
  }

  /** Takes what arrived on a connection. */
  take(frame: Frame, nowMs: number): Outcome {
    switch (frame.type) {
      case 'snapshot':
        return this.snapshot(frame, nowMs);
      case 'delta':
        return this.delta(frame, nowMs);
      case 'heartbeat':
        return this.heartbeat(frame, nowMs);
    }
  }

  /** The connection is gone; pages of it are of no use to the next one. */
  disconnected(): void {
    this.partial = undefined;
  }

  /** What is in force of that name now; expired entries are not, even when nobody says so. */
  find(kind: string, id: string, nowMs: number, wallMs: number): KillEntry | undefined {
    const entry = this.held.get(nameOf({ kind, id }));
    return entry && this.isInForce(entry, nowMs, wallMs) ? entry : undefined;
  }

  /** Everything that is in force now. */
  entries(nowMs: number, wallMs: number): KillEntry[] {
    return [...this.held.values()].filter((entry) => this.isInForce(entry, nowMs, wallMs));
  }

  /** How long ago the list was last known to be the server's; undefined without a list. */
  ageMs(nowMs: number): number | undefined {
    return this.freshAtMs === undefined ? undefined : nowMs - this.freshAtMs;
  }

  private snapshot(frame: SnapshotFrame, nowMs: number): Outcome {
    const first = this.partial?.of ?? frame;
    if (first.epoch !== frame.epoch || first.version !== frame.version) return 'gap';
    const entries = this.partial?.entries ?? new Map<string, KillEntry>();
    for (const entry of frame.entries) entries.set(nameOf(entry), entry);
    if (frame.more) {
      this.partial = { of: first, entries };
      return 'part';
    }
    this.partial = undefined;
    if (frame.epoch === this.epoch && frame.version < this.version) return 'gap';
    const isNew = frame.epoch !== this.epoch || frame.version !== this.version;
    this.held = entries;
    this.epoch = frame.epoch;
    this.version = frame.version;
    this.freshAtMs = nowMs;
    return isNew ? 'changed' : 'current';
  }

  private delta({ from, version, set, lift }: DeltaFrame, nowMs: number): Outcome {
    if (this.partial !== undefined || this.version < 0) return 'gap';
    if (version <= this.version) return 'known';
    if (from !== this.version) return 'gap';
    const held = new Map(this.held);
    for (const target of lift) held.delete(nameOf(target));
    for (const entry of set) held.set(nameOf(entry), entry);
    this.held = held;
    this.version = version;
    this.freshAtMs = nowMs;
    return 'changed';
  }

  private heartbeat({ version, asOf }: HeartbeatFrame, nowMs: number): Outcome {
    if (this.partial !== undefined) return 'part';
    if (version !== this.version) return 'gap';
    const asOfMs = Date.parse(asOf);
    // A server that says the same time again has not looked again: the list only got older.
    if (asOfMs === this.asOfMs) return 'known';
    this.asOfMs = asOfMs;
    this.serverAheadMs = asOfMs - nowMs;
    this.freshAtMs = nowMs;
    return 'current';
  }

  /** By the server's clock as far as heartbeats told it, else by the machine's own. */
  private isInForce({ expiresAt }: KillEntry, nowMs: number, wallMs: number): boolean {
    if (expiresAt === undefined) return true;
    const serverMs = this.serverAheadMs === undefined ? wallMs : nowMs + this.serverAheadMs;
    return serverMs < Date.parse(expiresAt);
  }
}

/** A kind is a word and cannot contain the slash. */
function nameOf({ kind, id }: { readonly kind: string; readonly id: string }): string {
  return `${kind}/${id}`;
}
