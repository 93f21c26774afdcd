/**
 * What is promised of single answers, looked at as each one leaves. The search for an order
 * (`life-check.ts`) finds more, but only at the end and in more words.
 */

import { FAILURE_BURST } from '../../src/actors/limiter/state.js';
import { READ_DEADLINE_MS, WRITE_DEADLINE_MS } from '../../src/runtime/actor.js';
import { FRESHNESS_MAX_MS } from '../../src/runtime/freshness.js';
import type { Asked } from './door.js';
import { type Call, saidBy } from './history.js';
import { UNSTORABLE } from './simulated-store.js';

/** Beyond a deadline: the channel's grace, two periods of its search, and a turn. */
const ANSWER_GRACE_MS = 1_050;

const READS: readonly Asked['kind'][] = ['authenticate', 'get', 'list', 'killList', 'fail'];
/** Who stops something is never refused for want of room. */
const OPERATORS: readonly Asked['kind'][] = ['revoke', 'void', 'kill', 'lift'];

export class Promises {
  /** When the revocation of a device was answered, for those that no restore can have undone. */
  private readonly revokedMs = new Map<string, number>();
  private readonly deviceOfToken = new Map<string, string>();
  private readonly killLists = new Map<string, string>();
  /** Failures that one actor thread let an address have. */
  private readonly granted = new Map<string, number>();
  private restoredMs = 0;

  /** What a restore took back is no promise any more. */
  restored(nowMs: number): void {
    this.restoredMs = nowMs;
    this.revokedMs.clear();
    this.deviceOfToken.clear();
    this.killLists.clear();
  }

  /** What is wrong with an answer that has just left, if anything is. */
  broken(call: Call, heldMs: number): string | undefined {
    return (
      this.forbidden(call) ?? this.late(call, heldMs) ?? this.admitted(call) ?? this.noted(call)
    );
  }

  private forbidden(call: Call): string | undefined {
    const { asked, answer } = call;
    const code = answer !== undefined && 'code' in answer ? answer.code : undefined;
    if (code === 'overloaded' && OPERATORS.includes(asked.kind)) {
      return 'an operator was refused because others ask too much';
    }
    const text = asked.kind === 'enroll' ? asked.name : asked.kind === 'void' ? asked.user : '';
    const excused = text.includes(UNSTORABLE);
    if (code === 'internal_error' && excused) return undefined;
    return code === 'internal_error' || saidBy(call) === 'forbidden'
      ? `nothing that was asked explains the answer ${code}`
      : undefined;
  }

  private late({ asked, beganMs, endedMs }: Call, heldMs: number): string | undefined {
    const deadlineMs = READS.includes(asked.kind) ? READ_DEADLINE_MS : WRITE_DEADLINE_MS;
    const tookMs = (endedMs ?? 0) - beganMs - heldMs;
    if (tookMs <= deadlineMs + ANSWER_GRACE_MS) return undefined;
    return `an answer took ${tookMs.toFixed(0)} ms of its process's time`;
  }

  private admitted({ answer, beganMs, endedMs = 0 }: Call): string | undefined {
    const allowed = answer && 'value' in answer ? answer.value.allowed : undefined;
    const revokedMs = allowed && this.revokedMs.get(allowed.id);
    if (revokedMs === undefined) return undefined;
    if (beganMs > revokedMs) return 'a revoked device was let in';
    return endedMs > revokedMs + FRESHNESS_MAX_MS
      ? `a device was let in ${(endedMs - revokedMs).toFixed(0)} ms after its revocation`
      : undefined;
  }

  /** Takes note of what binds later answers. */
  private noted(call: Call): string | undefined {
    const { asked, answer, beganMs, endedMs = 0 } = call;
    if (!answer || !('value' in answer) || beganMs <= this.restoredMs) return undefined;
    const { value } = answer;
    if (asked.kind === 'revoke' && !this.revokedMs.has(asked.id)) {
      this.revokedMs.set(asked.id, endedMs);
    }
    if (asked.kind === 'enroll' && value.device) {
      const known = this.deviceOfToken.get(asked.token) ?? value.device.id;
      this.deviceOfToken.set(asked.token, value.device.id);
      if (known !== value.device.id) return 'one token made two devices';
    }
    if (asked.kind === 'fail' && call.actorThread > 0) {
      const name = `${call.replica} ${call.actorThread} ${asked.address}`;
      const granted = (this.granted.get(name) ?? 0) + 1;
      this.granted.set(name, granted);
      // A run is shorter than the window, so that nothing is given twice.
      if (granted > FAILURE_BURST) return `one replica let an address fail ${granted} times`;
    }
    if (asked.kind === 'killList') {
      const name = `${value.epoch} ${value.version}`;
      const entries = JSON.stringify(value.entries);
      const known = this.killLists.get(name) ?? entries;
      this.killLists.set(name, entries);
      if (known !== entries) return 'one version of the kill list has two contents';
    }
    return undefined;
  }
}
