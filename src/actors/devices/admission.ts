/**
 * Who may go on to a write: judged from the view, in the read lane, so that a guess never takes the
 * stream's lock. The write judges again under the lock, and its word is what counts.
 */
import { type Failure, failure } from '../../runtime/failure.js';
import type { KeyValue, KvEntry } from '../../storage/store.js';
import { enrollmentTokenKvKey, isTokenLive, type TokenRow } from './decide.js';
import type { Enroll, MayRotate } from './messages.js';
import { type DevicesState, isLiveCredential } from './state.js';

const UNKNOWN = failure('device_unknown', 'No device has this credential.');
const REVOKED = failure('device_revoked', 'The device was revoked.');
const NOT_OWN = failure('not_own_device', 'A device may rotate only itself.');
const TOKEN_INVALID = failure(
  'enrollment_token_invalid',
  'The token is unknown, spent, void or expired.',
);

/** Whether a device may ask for a rotation of the device with this id; `nowMs` is the store's. */
export function mayRotate(
  state: DevicesState,
  { credentialDigest, id }: MayRotate,
  nowMs: number,
): true | Failure {
  const device = state.byDigest.get(credentialDigest);
  if (device === undefined || !isLiveCredential(device, credentialDigest, nowMs)) return UNKNOWN;
  if (state.revocations.has(device.id)) return REVOKED;
  return device.id === id ? true : NOT_OWN;
}

/** Looks at the rows of enrolment tokens without a lock. */
export class TokenRows {
  private asking: { readonly keys: string[]; readonly found: Promise<Found> } | undefined;

  constructor(private readonly kv: Pick<KeyValue, 'get'>) {}

  /** Whether an enrolment with this token can go on; rejects with what the store says. */
  async mayEnroll(state: DevicesState, input: Enroll, nowMs: number): Promise<true | Failure> {
    const entry = await this.get(enrollmentTokenKvKey(input.tokenDigest));
    if (entry === undefined) return TOKEN_INVALID;
    const row = JSON.parse(entry.value) as TokenRow;
    if (!isTokenLive(row, state.voids.get(row.user) ?? 0, nowMs)) return TOKEN_INVALID;
    const { spent } = row;
    if (spent === undefined || input.idempotency !== undefined) return true;
    const isSameKey = spent.deviceKey !== undefined && spent.deviceKey === input.deviceKey;
    return isSameKey ? true : TOKEN_INVALID;
  }

  /** Those that are asked for together are read together: a batch of guesses is one statement. */
  private async get(key: string): Promise<KvEntry | undefined> {
    this.asking ??= this.ask();
    this.asking.keys.push(key);
    return (await this.asking.found).get(key);
  }

  private ask(): { readonly keys: string[]; readonly found: Promise<Found> } {
    const keys: string[] = [];
    const found = Promise.resolve().then(() => {
      this.asking = undefined;
      return this.kv.get([...new Set(keys)]);
    });
    return { keys, found };
  }
}

type Found = ReadonlyMap<string, KvEntry>;
