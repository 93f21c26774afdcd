/**
 * The kill list as the actor published it, and its recent changes: what every stream of a front
 * thread is served from. Pure: it asks nobody, and says when it has to be told the whole list.
 *
 * Within an epoch it never goes back: older news and older lists are dropped.
 */
import type {
  KillEntry,
  KillListChange,
  KillListNews,
  KillListView,
  KillTarget,
} from '../../actors/kill-list/messages.js';

/**
 * Changes that are kept for streams that come back: more than a gateway misses in an outage of
 * minutes. Beyond them a snapshot is hardly longer than the changes would be.
 */
export const CHANGES_KEPT_MAX = 1_024;

/** What a piece of news, or a list, came to. */
export type MirrorOutcome =
  /** The list is at a newer version. */
  | 'changed'
  /** The list is what it was, known to be so at a later time. */
  | 'confirmed'
  /** Older than what is known. */
  | 'old'
  /** Something is missing in between, or nothing is known yet: the whole list is needed. */
  | 'gap'
  /** It belongs to another epoch: the mirror is empty now, and the whole list is needed. */
  | 'other-epoch';

/** The net change after one version up to another. */
export interface KillListDelta {
  readonly from: number;
  readonly version: number;
  readonly set: readonly KillEntry[];
  readonly lift: readonly KillTarget[];
}

/** One change of one entry. */
interface Step {
  /** The version before; several steps share it when they came out of two whole lists. */
  readonly from: number;
  readonly version: number;
  readonly name: string;
  readonly target: KillTarget;
  readonly before: KillEntry | undefined;
  readonly after: KillEntry | undefined;
}

/** One for each front thread. Versions and epochs are the actor's. */
export class KillListMirror {
  private entries = new Map<string, KillEntry>();
  private steps: Step[] = [];
  private known: { epoch: string; version: number; asOfMs: number } | undefined;

  /** Undefined until the first list, and between an epoch's end and the next one's list. */
  get position(): { readonly epoch: string; readonly version: number } | undefined {
    return this.known;
  }

  /** -1 while there is no list. */
  get version(): number {
    return this.known?.version ?? -1;
  }

  /** The store's clock when the list was last known to be this; 0 while there is no list. */
  get asOfMs(): number {
    return this.known?.asOfMs ?? 0;
  }

  /** The entries at `version`, in no order. */
  list(): KillEntry[] {
    return [...this.entries.values()];
  }

  /** Takes what the actor told; in order, on the port on which it also answers. */
  hear(news: KillListNews): MirrorOutcome {
    const { known } = this;
    if (known === undefined) return 'gap';
    if (news.epoch !== known.epoch) {
      this.forget();
      return 'other-epoch';
    }
    if (news.version < known.version) return 'old';
    if (news.version === known.version) {
      this.advance(news.version, news.asOfMs);
      return 'confirmed';
    }
    if (news.type === 'unchanged' || news.from > known.version) return 'gap';
    for (const change of news.changes) {
      if (change.version > this.version) this.apply(change);
    }
    this.advance(news.version, news.asOfMs);
    this.trim();
    return 'changed';
  }

  /** Takes the whole list, as the actor answers it. */
  replace(view: KillListView): MirrorOutcome {
    const { known } = this;
    const entries = new Map(view.entries.map((entry) => [nameOf(entry), entry]));
    if (known === undefined || known.epoch !== view.epoch) {
      this.entries = entries;
      this.steps = [];
      this.known = { epoch: view.epoch, version: view.version, asOfMs: view.asOfMs };
      return known === undefined ? 'changed' : 'other-epoch';
    }
    if (view.version < known.version) return 'old';
    const before = known.version;
    this.advance(view.version, view.asOfMs);
    if (view.version === before) return 'confirmed';
    this.leap(before, entries);
    this.trim();
    return 'changed';
  }

  /**
   * The net change after `since`; undefined when `since` is not a version that this mirror has seen
   * recently, or is the newest.
   */
  deltaFrom(since: number): KillListDelta | undefined {
    const first = this.steps.findIndex((step) => step.from === since);
    if (first < 0 || since >= this.version) return undefined;
    const net = new Map<string, Step>();
    for (const step of this.steps.slice(first)) {
      const earlier = net.get(step.name);
      net.set(step.name, earlier === undefined ? step : { ...step, before: earlier.before });
    }
    const set: KillEntry[] = [];
    const lift: KillTarget[] = [];
    for (const { target, before, after } of net.values()) {
      if (after === undefined) {
        if (before !== undefined) lift.push(target);
      } else if (before === undefined || !isSame(before, after)) set.push(after);
    }
    return { from: since, version: this.version, set, lift };
  }

  private forget(): void {
    this.known = undefined;
    this.entries = new Map();
    this.steps = [];
  }

  /** News come in order, so that a time that goes back is a clock that was put right. */
  private advance(version: number, asOfMs: number): void {
    const { known } = this;
    if (known === undefined) return;
    this.known = { epoch: known.epoch, version, asOfMs };
  }

  private apply(change: KillListChange): void {
    const target = change.type === 'kill' ? change.entry : change.target;
    const after = change.type === 'kill' ? change.entry : undefined;
    this.step(this.version, change.version, target, after);
    this.advance(change.version, this.known?.asOfMs ?? 0);
  }

  /** What changed between two whole lists, as one step for all that lies between them. */
  private leap(from: number, entries: ReadonlyMap<string, KillEntry>): void {
    for (const before of [...this.entries.values()]) {
      if (!entries.has(nameOf(before))) this.step(from, this.version, before, undefined);
    }
    for (const [name, after] of entries) {
      const before = this.entries.get(name);
      if (before === undefined || !isSame(before, after)) {
        this.step(from, this.version, after, after);
      }
    }
    // Kills and lifts that undid each other leave no entry, but a version to come from.
    if (this.steps.at(-1)?.version !== this.version) {
      this.steps.push({ ...NOTHING, from, version: this.version });
    }
  }

  private step(
    from: number,
    version: number,
    { kind, id }: KillTarget,
    after: KillEntry | undefined,
  ): void {
    const name = nameOf({ kind, id });
    const before = this.entries.get(name);
    this.steps.push({ from, version, name, target: { kind, id }, before, after });
    if (after === undefined) this.entries.delete(name);
    else this.entries.set(name, after);
  }

  /** Drops the oldest, and with it whatever shares its version: half a change helps nobody. */
  private trim(): void {
    if (this.steps.length <= CHANGES_KEPT_MAX) return;
    const cut = this.steps[this.steps.length - CHANGES_KEPT_MAX - 1];
    this.steps = this.steps
      .slice(-CHANGES_KEPT_MAX)
      .filter(({ version }) => version !== cut?.version);
  }
}

const NOTHING = {
  name: '',
  target: { kind: '', id: '' },
  before: undefined,
  after: undefined,
} as const;

/** The entry's place in maps; a kind is a word and cannot contain the slash. */
function nameOf({ kind, id }: KillTarget): string {
  return `${kind}/${id}`;
}

function isSame(one: KillEntry, other: KillEntry): boolean {
  return (
    one.reason === other.reason &&
    one.by === other.by &&
    one.atMs === other.atMs &&
    one.expiresAtMs === other.expiresAtMs
  );
}
