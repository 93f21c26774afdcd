/**
 * The rules that the simulation is there for, each taken out of a copy of the compiled code, to see
 * the simulation fail: `node dist/test/simulation/prove.js`. What found each stands in
 * docs/testing.md.
 */

/** One rule taken out. `find` occurs exactly once in the compiled file. */
export interface Mutation {
  readonly name: string;
  /** Below `dist/src`. */
  readonly file: string;
  readonly find: RegExp;
  readonly put: string;
}

const STREAM_ACTOR = 'runtime/stream-actor.js';
const ACTOR_CELL = 'runtime/actor-cell.js';
const DECIDE = 'actors/devices/decide.js';
const OVERLAY = 'actors/devices/overlay.js';
const STATE = 'actors/devices/state.js';
const BATCH_VALUES = 'actors/batch-values.js';

export const MUTATIONS: readonly Mutation[] = [
  {
    name: 'cursor: a record that was applied before is applied again',
    file: STREAM_ACTOR,
    find: /if \(record\.id <= \(cursors\[record\.stream\]\?\.id \?\? 0\)\)\s+continue;/,
    put: '',
  },
  {
    name: 'cursor: it moves backwards',
    file: STREAM_ACTOR,
    find: /if \(cursor\.id > \(cursors\[stream\]\?\.id \?\? 0\)\)\s+cursors\[stream\] = cursor;/,
    put: 'cursors[stream] = cursor;',
  },
  {
    name: 'cursor: one for all streams',
    file: STREAM_ACTOR,
    find: /record\.id <= \(cursors\[record\.stream\]\?\.id \?\? 0\)/,
    put: 'record.id <= Math.max(...Object.values(cursors).map(({ id }) => id))',
  },
  {
    name: 'overlay: what is decided is applied before its commit',
    file: STREAM_ACTOR,
    find: /return overlay\.changes\(\);/,
    put: `const changes = overlay.changes();
      for (const append of changes.appends ?? []) behaviour.apply(this.state, append);
      return changes;`,
  },
  {
    name: 'overlay: a write does not see the KV rows of those before it in its batch',
    file: BATCH_VALUES,
    find: /return this\.entries\.has\(key\) \? [^;]*this\.locked\.kv\.get\(key\);/,
    put: 'return this.locked.kv.get(key);',
  },
  {
    name: 'overlay: a write does not see the devices of those before it in its batch',
    file: OVERLAY,
    find: /return this\.devices\.get\(id\) \?\? this\.state\.byId\.get\(id\);/,
    put: 'return this.state.byId.get(id);',
  },
  {
    name: 'overlay: a write does not see the revocations of those before it in its batch',
    file: OVERLAY,
    find: /return this\.revocations\.get\(id\) \?\? this\.state\.revocations\.get\(id\);/,
    put: 'return this.state.revocations.get(id);',
  },
  {
    name: 'stale: an allow leaves however old it is',
    file: 'runtime/freshness.js',
    find: /return freshSinceMs !== 0 && .*;/,
    put: 'return false;',
  },
  {
    name: 'sticky: a later record of the device lifts its revocation',
    file: STATE,
    find: /state\.byId\.set\(device\.id, device\);/,
    put: 'state.byId.set(device.id, device); state.revocations.delete(device.id);',
  },
  {
    name: 'sticky: a revocation has the key of its device',
    file: STATE,
    find: /revoked\/\$/,
    put: 'device/$',
  },
  {
    name: 'catch-up: asks that come during one are answered from it',
    file: ACTOR_CELL,
    find: /answerReads\(batch, startedMs\) \{/,
    put: `answerReads(early, startedMs) {
      const batch = [...early, ...this.readLane.take(this.bounds.readBatchMax)];`,
  },
  {
    name: 'catch-up: one that was begun 5 ms ago is good enough',
    file: ACTOR_CELL,
    find: /refreshed = this\.handlers\.refresh\(\);/,
    put: `const recent = startedMs - (this.refreshedMs ?? -Infinity) < 5;
      if (!recent) this.refreshedMs = startedMs;
      refreshed = recent ? undefined : this.handlers.refresh();`,
  },
  {
    name: 'catch-up: a batch joins the one that is under way',
    file: STREAM_ACTOR,
    find: /caughtUp = this\.store\.catchUp\(this\.known\(\)\);/,
    put: `caughtUp = this.underWay ?? this.store.catchUp(this.known());
      if (caughtUp instanceof Promise) {
        this.underWay = caughtUp;
        caughtUp.then(() => (this.underWay = undefined), () => (this.underWay = undefined));
      }`,
  },
  {
    name: 'locked read: what others committed is applied after deciding',
    file: STREAM_ACTOR,
    find: /this\.applyAll\(locked\.records, [^;]*;([\s\S]*?)return overlay\.changes\(\);/,
    put: '$1this.applyAll(locked.records, locked.position); return overlay.changes();',
  },
  {
    name: 'locked read: what others committed is not applied',
    file: STREAM_ACTOR,
    find: /this\.applyAll\(locked\.records, locked\.position\);/,
    put: '',
  },
  {
    name: 'limiter: each replica grants a budget of its own',
    file: 'actors/limiter/actor.js',
    find: /const total = totals\.get\(key\);/,
    put: 'const total = undefined;',
  },
  {
    name: 'kills: a first use is confirmed without asking again under the lock',
    file: DECIDE,
    find: /if \(overlay\.isKilled\(device\)\) \{/,
    put: 'if (false) {',
  },
  {
    name: 'voids: one after the clock was set back moves nothing',
    file: DECIDE,
    find: /Math\.max\(overlay\.nowMs, overlay\.voidedUpToMs\(input\.user\) \+ 1\)/,
    put: 'Math.max(overlay.nowMs, overlay.voidedUpToMs(input.user))',
  },
  {
    name: 'idempotency: what a key was answered is forgotten',
    file: BATCH_VALUES,
    find: /return storedAnswer\(idempotency, .*\);/,
    put: 'return undefined;',
  },
  {
    name: 'refused writes: the whole batch fails for one',
    file: STREAM_ACTOR,
    find: /if \(batch\.length === 1\) \{([\s\S]*?)return \[(toFailure\(.*?)\];/,
    put: '{ $1 return batch.map(() => $2);',
  },
  {
    name: 'evidence: a rotation leaves none',
    file: DECIDE,
    find: /recordRotation\(overlay, input\.caller, .*\);/,
    put: '',
  },
  {
    name: 'evidence: of a batch only the first is kept',
    file: OVERLAY,
    find: /evidence: this\.evidence\.events,/,
    put: 'evidence: this.evidence.events.slice(0, 1),',
  },
  {
    name: 'evidence: of a write that changes nothing',
    file: DECIDE,
    find: /overlay\.revocation\(input\.id\) \?\? newRevocation/,
    put: 'newRevocation',
  },
  {
    name: 'operators: they have no reserve',
    file: 'runtime/lane.js',
    find: /\(letter\.operator \? operatorReserve : 0\)/,
    put: '0',
  },
  {
    name: 'deadlines: a front thread waits for ever',
    file: 'runtime/actor-channel.js',
    find: /if \(group\.message\.deadlineMs \+ EXPIRY_GRACE_MS > nowMs\)/,
    put: 'if (nowMs > 0)',
  },
];
