/** Everything that was asked and answered in a run, as those who asked know it. */
import type { Answer, Asked } from './door.js';

/** One call of one client. Times are monotonic, in ms. */
export interface Call {
  readonly number: number;
  /** Which device's life it belongs to; 0: all of them. */
  readonly life: number;
  readonly replica: string;
  /** Which of the replica's actor threads, one after the other, answered; 0: one of several. */
  actorThread: number;
  readonly asked: Asked;
  readonly beganMs: number;
  endedMs: number | undefined;
  answer: Answer | undefined;
}

/** What was done to the store's data from outside, at one moment. */
export interface Turn {
  readonly kind: 'backup' | 'restore';
  readonly atMs: number;
}

/** Answers after which nothing of the call has happened nor will. */
const NOTHING_HAPPENED = new Set([
  'store_unavailable',
  'overloaded',
  'actor_restarted',
  'idempotency_in_progress',
]);
/** Answers after which nobody knows. */
const UNKNOWN_OUTCOME = new Set(['outcome_unknown', 'connection_lost']);
/** An authentication that failed so may have confirmed the device's first use. */
const FAILED_READ = new Set([...UNKNOWN_OUTCOME, 'stale', 'deadline_exceeded', 'actor_restarted']);

/** What changes nothing that anyone could see later. */
const READS = new Set<Asked['kind']>(['get', 'list', 'killList', 'fail']);

/** Codes that say something about the call itself, by its kind. */
const REFUSALS: Readonly<Record<Asked['kind'], readonly string[]>> = {
  mint: ['replay_superseded', 'idempotency_mismatch'],
  void: ['idempotency_mismatch', 'internal_error'],
  enroll: ['enrollment_token_invalid', 'idempotency_mismatch', 'internal_error'],
  authenticate: ['device_unknown', 'device_revoked', 'device_killed'],
  rotate: [
    'device_unknown',
    'device_revoked',
    'device_not_found',
    'not_own_device',
    'rotation_refused',
    'replay_superseded',
    'idempotency_mismatch',
  ],
  revoke: ['device_not_found', 'idempotency_mismatch'],
  get: ['device_not_found'],
  list: [],
  kill: ['kill_already_expired', 'idempotency_mismatch'],
  lift: ['idempotency_mismatch'],
  killList: [],
  fail: ['too_many_failures'],
};

/** What an answer says about whether the call happened. */
export type Said = 'answered' | 'refused' | 'nothing' | 'unknown' | 'forbidden';

/** Sorts an answer; `forbidden` is a code that this call must never get. */
export function saidBy({ asked, answer }: Call): Said {
  if (answer === undefined) return 'unknown';
  if (!('code' in answer)) return 'answered';
  const { code } = answer;
  if (REFUSALS[asked.kind].includes(code)) return 'refused';
  const reads = READS.has(asked.kind);
  if (asked.kind === 'authenticate' && FAILED_READ.has(code)) return 'unknown';
  if (UNKNOWN_OUTCOME.has(code)) return reads ? 'nothing' : 'unknown';
  if (code === 'deadline_exceeded' || NOTHING_HAPPENED.has(code)) return 'nothing';
  return 'forbidden';
}

export class History {
  readonly calls: Call[] = [];
  readonly turns: Turn[] = [];

  begin(
    life: number,
    replica: { readonly name: string; readonly actorThread: number },
    asked: Asked,
    nowMs: number,
  ): Call {
    const number = this.calls.length + 1;
    const call: Call = {
      number,
      life,
      replica: replica.name,
      actorThread: replica.actorThread,
      asked,
      beganMs: nowMs,
      endedMs: undefined,
      answer: undefined,
    };
    this.calls.push(call);
    return call;
  }

  get lastRestoreMs(): number {
    return this.turns.findLast(({ kind }) => kind === 'restore')?.atMs ?? 0;
  }
}

/** One line about a call, for people. */
export function describeCall(call: Call): string {
  const { number, replica, asked, beganMs, endedMs, answer } = call;
  const { kind, ...rest } = asked;
  const said =
    answer === undefined ? 'no answer' : 'code' in answer ? answer.code : shorten(answer);
  const ended = endedMs === undefined ? '…' : endedMs.toFixed(3);
  return `#${number} ${beganMs.toFixed(3)}–${ended} ${replica} ${kind} ${shorten(rest)} → ${said}`;
}

/** JSON, with secrets and ids cut to what tells them apart. */
export function shorten(value: unknown): string {
  const text = JSON.stringify(value, (_, part: unknown) => {
    if (typeof part !== 'string') return part;
    const [, kind, random] = /^(halo_[a-z]+_|dev_)(.*)$/.exec(part) ?? [];
    return random === undefined ? part : `${kind}${random.slice(-8)}`;
  });
  return text === '{}' ? '' : text;
}
