/**
 * Units of work on the storage thread: waiting for their locks, then held by a client that decides,
 * then writing. States: waiting → held → writing → gone, and from each of them to gone when time is
 * up or the client has gone.
 */
import type { Clock, Timer } from '../../runtime/clock.js';
import { documentName } from '../store.js';
import { StoreError } from '../store-error.js';
import type { GroupCommit } from './group-commit.js';
import {
  documentLock,
  type LockRequest,
  type LockTable,
  streamLock,
  valueLock,
} from './lock-table.js';
import type { LockRequestBody } from './protocol.js';

/** How long a unit waits for its locks, as `lock_timeout` on Postgres. */
export const LOCK_WAIT_MAX_MS = 3_000;
/** How long a client may hold locks without writing, as idle-in-transaction on Postgres. */
export const IDLE_HOLDER_MAX_MS = 2_000;

/** Units at once over all clients, each of which has a few: beyond, something is wrong. */
const UNITS_MAX = 10_000;

/** One unit of work between its lock request and its end. */
export interface Unit {
  readonly id: number;
  /** Whose it is; all units of a client end with it. */
  readonly owner: object;
  readonly body: LockRequestBody;
  readonly lock: LockRequest;
  state: 'waiting' | 'held' | 'writing' | 'gone';
  timer: Timer;
}

/** Gives every unit its time bounds, so that a stopped client never stops everyone. */
export class Units {
  private readonly units = new Map<number, Unit>();
  private newestId = 0;

  constructor(
    private readonly locks: LockTable,
    private readonly clock: Clock,
    /** Looks at its waiting writes when locks become free. */
    private readonly commit: Pick<GroupCommit, 'schedule'>,
  ) {}

  /** Calls one of the two, now or later. If `onGranted` throws, the locks are free again. */
  begin(
    owner: object,
    body: LockRequestBody,
    onGranted: (unit: Unit) => void,
    onFailed: (error: unknown) => void,
  ): void {
    if (this.units.size >= UNITS_MAX) {
      onFailed(new StoreError('store_unavailable', 'Too many units are waiting.'));
      return;
    }
    this.newestId += 1;
    const unit: Unit = {
      id: this.newestId,
      owner,
      body,
      lock: { names: lockNames(body), onGranted: () => this.granted(unit, onGranted, onFailed) },
      state: 'waiting',
      timer: this.clock.schedule(() => {
        this.end(unit);
        onFailed(
          new StoreError('store_unavailable', 'The lock was not free in time.', {
            retryAfterSeconds: 1,
          }),
        );
      }, LOCK_WAIT_MAX_MS),
    };
    this.units.set(unit.id, unit);
    this.locks.request(unit.lock);
  }

  /** The held unit of that owner, now writing; undefined when its time was up. */
  write(owner: object, id: number): Unit | undefined {
    const unit = this.units.get(id);
    if (unit === undefined || unit.owner !== owner || unit.state !== 'held') return undefined;
    unit.timer.cancel();
    unit.state = 'writing';
    return unit;
  }

  abort(owner: object, id: number): void {
    const unit = this.units.get(id);
    if (unit !== undefined && unit.owner === owner && unit.state === 'held') this.end(unit);
  }

  /** The locks are free again. */
  end(unit: Unit): void {
    unit.timer.cancel();
    unit.state = 'gone';
    this.units.delete(unit.id);
    this.locks.release(unit.lock);
    this.commit.schedule();
  }

  /** The client has gone: what is being written still is, everything else ends. */
  endAllOf(owner: object): void {
    for (const unit of [...this.units.values()]) {
      if (unit.owner === owner && unit.state !== 'writing') this.end(unit);
    }
  }

  private granted(
    unit: Unit,
    onGranted: (unit: Unit) => void,
    onFailed: (error: unknown) => void,
  ): void {
    unit.timer.cancel();
    unit.state = 'held';
    unit.timer = this.clock.schedule(() => this.end(unit), IDLE_HOLDER_MAX_MS);
    try {
      onGranted(unit);
    } catch (error) {
      this.end(unit);
      onFailed(error);
    }
  }
}

function lockNames(body: LockRequestBody): string[] {
  return [
    ...new Set([
      ...body.streams.map(streamLock),
      ...body.kv.map(valueLock),
      ...body.documents.map((key) => documentLock(documentName(key))),
    ]),
  ];
}
