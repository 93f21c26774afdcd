/** What a verification can find: the names of its checks, and its result. */

/**
 * What was checked when something was found. The order is that in which one record is checked;
 * `docs/evidence.md` says what each of them compares.
 */
export const CHECKS = [
  'line',
  'version',
  'fields',
  'canonical',
  'beginning',
  'seq',
  'prev_hash',
  'hash',
  'kind',
  'genesis',
  'key_id',
  'checkpoint',
  'key_rotated',
  'restore_accepted',
  'signature',
  'columns',
  'pinned_checkpoint',
  'outbox',
  'pinned_key',
  'head',
  'end',
] as const;
/** One of them. */
export type Check = (typeof CHECKS)[number];

/**
 * How a verification ended. `tampered`: something is not as the chain's own rules or the pins say.
 * `incomplete`: what is there is right, a beginning or an end is missing. `unreadable`: a newer
 * version, which this verifier cannot judge.
 */
export type Status = 'verified' | 'tampered' | 'incomplete' | 'unreadable';

/** What is wrong first, and where. */
export interface Finding {
  readonly status: Exclude<Status, 'verified'>;
  /** The number that the record has, or should have. */
  readonly seq: number;
  readonly check: Check;
  readonly expected: string;
  readonly found: string;
}

/** The end of a verification. */
export interface VerificationResult {
  readonly status: Status;
  /** Whether a pin was given and met; otherwise the chain only vouches for itself. */
  readonly isPinned: boolean;
  /** How many records stand before the finding, or in all. */
  readonly records: number;
  /** The chain's id, where its beginning or a checkpoint says it. */
  readonly chain?: string;
  /** The last record that was verified. */
  readonly head?: { readonly seq: number; readonly hash: string };
  /** Of a database: how many events wait for their place, about which nothing is said. */
  readonly pending?: number;
  readonly finding?: Finding;
}

/** A found value is shown for people: so much is enough, and it may be anything. */
const SHOWN_CHARACTERS_MAX = 80;

/** A value as a finding shows it. */
export function shown(value: unknown): string {
  const text = typeof value === 'string' ? value : (JSON.stringify(value) ?? 'nothing');
  if (text.length <= SHOWN_CHARACTERS_MAX) return text;
  return `${text.slice(0, SHOWN_CHARACTERS_MAX)}…`;
}
