/**
 * The budget that all replicas grant together: failures are added up in the store, on its clock.
 * Whatever goes wrong with that leaves the local budget in force, and is said once.
 */
import type { Clock } from '../../runtime/clock.js';
import { describe } from '../../runtime/failure.js';
import type { Log } from '../../runtime/log.js';
import type { Store } from '../../storage/store.js';
import { FAILURE_WINDOW_MS } from './state.js';

/** How long a refusal waits for the store: many round trips, and less than a person notices. */
export const STORE_WAIT_MAX_MS = 300;
/** After an error the store is left alone for so long, so that refusals do not all wait for it. */
export const STORE_REST_MS = 1_000;
/**
 * Keys that one replica writes in a second, at most. An address has up to ten a minute, so this is
 * a hundred addresses that guess as fast as they may, and more than people mistype; attackers with
 * ever new addresses cost the store no more than this, and the sweeper deletes faster.
 */
export const SHARED_KEYS_PER_SECOND_MAX = 1_000;

/** Begins the names of the limiter's counters in the store. */
const COUNTER_PREFIX = 'auth-failures/';

type Failures = readonly [key: string, failures: number];

const NOTHING: ReadonlyMap<string, number> = new Map();

/** One for each incarnation of the actor. Never more than one call to the store at a time. */
export class SharedBudget {
  /** Calls that failed or took too long. */
  errors = 0;
  /** Keys whose failures only this replica knows: above the cap, or while the store rests. */
  dropped = 0;
  private running = false;
  private failing = false;
  private restsUntilMs = 0;
  private allowance = SHARED_KEYS_PER_SECOND_MAX;
  private allowanceAtMs: number;

  /** `onLate` is given counts that came after `count` had stopped waiting. */
  constructor(
    private readonly store: Pick<Store, 'count'>,
    private readonly clock: Clock,
    private readonly log: Log,
    private readonly onLate: (counts: ReadonlyMap<string, number>) => void,
  ) {
    this.allowanceAtMs = clock.monotonicMs();
  }

  /**
   * Adds the failures of each key; resolves with what each key then has on all replicas together,
   * without those that could not be counted in time. Never rejects.
   */
  count(failures: ReadonlyMap<string, number>): Promise<ReadonlyMap<string, number>> {
    const nowMs = this.clock.monotonicMs();
    const resting = this.running || nowMs < this.restsUntilMs;
    const allowed = resting ? 0 : this.allow(failures.size, nowMs);
    this.dropped += failures.size - allowed;
    if (allowed === 0) return Promise.resolve(NOTHING);
    return this.bounded([...failures].slice(0, allowed));
  }

  private bounded(failures: readonly Failures[]): Promise<ReadonlyMap<string, number>> {
    return new Promise((resolve) => {
      let late = false;
      const timer = this.clock.schedule(() => {
        late = true;
        this.failed('The store did not answer in time.');
        resolve(NOTHING);
      }, STORE_WAIT_MAX_MS);
      this.running = true;
      void this.write(failures)
        .then(
          (counts) => {
            if (late) this.onLate(counts);
            else this.succeeded();
            resolve(counts);
          },
          (error: unknown) => {
            if (!late) this.failed(describe(error));
            resolve(NOTHING);
          },
        )
        .finally(() => {
          this.running = false;
          timer.cancel();
        });
    });
  }

  private async write(failures: readonly Failures[]): Promise<ReadonlyMap<string, number>> {
    const counted = await this.store.count(
      failures.map(([key, delta]) => ({
        key: COUNTER_PREFIX + key,
        delta,
        ttlMs: FAILURE_WINDOW_MS,
      })),
    );
    return new Map(
      [...counted].map(([key, { value }]) => [key.slice(COUNTER_PREFIX.length), value]),
    );
  }

  /** How many of these keys may be written now; the allowance grows back over a second. */
  private allow(keys: number, nowMs: number): number {
    const grown = ((nowMs - this.allowanceAtMs) * SHARED_KEYS_PER_SECOND_MAX) / 1000;
    this.allowance = Math.min(SHARED_KEYS_PER_SECOND_MAX, this.allowance + grown);
    this.allowanceAtMs = nowMs;
    const allowed = Math.min(keys, Math.floor(this.allowance));
    this.allowance -= allowed;
    return allowed;
  }

  private failed(error: string): void {
    this.errors += 1;
    this.restsUntilMs = this.clock.monotonicMs() + STORE_REST_MS;
    if (this.failing) return;
    this.failing = true;
    this.log.warn({ error }, 'Failed attempts are counted by this replica alone for now.');
  }

  private succeeded(): void {
    if (!this.failing) return;
    this.failing = false;
    this.log.info({}, 'Failed attempts are counted by all replicas together again.');
  }
}
