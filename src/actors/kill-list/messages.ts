/** What the kill-list actor can be asked, as data. Kinds are the keys of the two maps below. */
import type { Idempotency } from '../idempotency.js';

/** What can be killed: `device`, `user`, `agent`, `model`, … and its id. */
export interface KillTarget {
  /** A lower-case word. `device` and `user` are also refused by device authentication. */
  readonly kind: string;
  readonly id: string;
}

/** One killed thing, as everyone sees it. */
export interface KillEntry extends KillTarget {
  readonly reason: string;
  /** Name of the admin token that was used. */
  readonly by: string;
  /** ms since the Unix epoch on the store's clock. */
  readonly atMs: number;
  /** When it is lifted by itself, ms since the Unix epoch on the store's clock; absent: never. */
  readonly expiresAtMs?: number;
}

/** Kills, or changes when a kill ends; killing again with another reason changes nothing. */
export interface Kill extends KillTarget {
  readonly reason: string;
  readonly by: string;
  readonly expiresAtMs?: number;
  readonly idempotency?: Idempotency;
}

/** What a kill came to; `entry` is the one in force, which may be an older one. */
export interface Killed {
  readonly epoch: string;
  readonly version: number;
  readonly entry: KillEntry;
}

/** Lifts a kill; lifting what is not killed changes nothing. */
export interface Lift extends KillTarget {
  readonly by: string;
  readonly idempotency?: Idempotency;
}

/** Where the list is after a lift. */
export interface Lifted {
  readonly epoch: string;
  readonly version: number;
}

/** Lifts whatever has expired by now on the store's clock; the actor asks itself. */
export type LiftExpired = Readonly<Record<string, never>>;

/** The whole list at one version. */
export interface KillListView {
  readonly epoch: string;
  /** Ordinal in the kill stream, the same on every replica. */
  readonly version: number;
  /** The store's clock when the list was known to be this, ms since the Unix epoch. */
  readonly asOfMs: number;
  readonly entries: readonly KillEntry[];
}

/** Where the list is, after a catch-up: what a reconnecting gateway is compared with. */
export interface KillListVersion {
  readonly epoch: string;
  readonly version: number;
  readonly asOfMs: number;
}

/** What the actor tells every front thread by itself, in order with its answers. */
export type KillListNews =
  /** The changes after `from` up to `version`, oldest first. */
  | (KillListVersion & {
      readonly type: 'changes';
      readonly from: number;
      readonly changes: readonly KillListChange[];
    })
  /** Nothing changed; the list was still this at `asOfMs`. */
  | (KillListVersion & { readonly type: 'unchanged' });

/** One change: a kill with its entry, or a lift of a target. */
export type KillListChange =
  | { readonly type: 'kill'; readonly version: number; readonly entry: KillEntry }
  | { readonly type: 'lift'; readonly version: number; readonly target: KillTarget };

/** Reads: the payload and the answer of each kind. */
export interface KillListReads {
  version: { payload: Readonly<Record<string, never>>; answer: KillListVersion };
  list: { payload: Readonly<Record<string, never>>; answer: KillListView };
}

/** Writes: the payload and the answer of each kind. */
export interface KillListWrites {
  kill: { payload: Kill; answer: Killed };
  lift: { payload: Lift; answer: Lifted };
  liftExpired: { payload: LiftExpired; answer: Lifted };
}

/** Codes that the kill-list actor answers with, beside those of the runtime and the store. */
export const KILL_LIST_CODES = [
  'kill_list_full',
  'kill_already_expired',
  'idempotency_mismatch',
] as const;
/** One of `KILL_LIST_CODES`. */
export type KillListCode = (typeof KILL_LIST_CODES)[number];
