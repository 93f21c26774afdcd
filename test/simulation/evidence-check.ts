/**
 * Whether what is committed and what is recorded are one: each change of a unit has its event in
 * that unit, and there is no event without its change. Shares no code with what makes the events.
 */
import { generateKeyPairSync } from 'node:crypto';
import { applyRecord, DEVICES_STREAM, DevicesState } from '../../src/actors/devices/state.js';
import { type EvidenceRecorder, evidenceRecorder } from '../../src/actors/evidence.js';
import {
  applyGatewaysRecord,
  GATEWAYS_STREAM,
  GatewaysState,
} from '../../src/actors/gateways/state.js';
import {
  applyKillRecord,
  KILL_LIST_STREAM,
  KillListState,
} from '../../src/actors/kill-list/state.js';
import { DEFAULT_MASKING } from '../../src/evidence/default-masking.js';
import { parseKeyring, signingKeyPem } from '../../src/evidence/keyring.js';
import { MASKING_LABEL, prepareMasking } from '../../src/evidence/masking.js';
import type { Clock } from '../../src/runtime/clock.js';
import type { Random } from '../../src/runtime/random.js';
import type { Append, Changes, KvChange, StoredRecord } from '../../src/storage/store.js';

/** Of all runs: it decides nothing. */
const KEYRING = parseKeyring(signingKeyPem(() => generateKeyPairSync('ed25519')));
const MASKING = prepareMasking(DEFAULT_MASKING, KEYRING.derive(MASKING_LABEL));

/** What every replica of a run records with: they hold the same key. */
export function simulatedRecorder(clock: Clock, random: Random): EvidenceRecorder {
  return evidenceRecorder({ keyring: KEYRING, masking: MASKING, clock, random });
}

interface Recorded {
  readonly kind: string;
  readonly by: { readonly id: string };
  readonly data: Readonly<Record<string, unknown>>;
}

/** Follows what is committed; `fault` is the first thing that was wrong. */
export class EvidenceLog {
  fault: string | undefined;
  /** How many events have been committed. */
  events = 0;
  /** The newest credential of each device and gateway. */
  private readonly digests = new Map<string, string>();

  /** What was committed together. */
  note({ appends = [], kv = [], evidence = [] }: Changes): void {
    const changes = [...appends.map((append) => this.changeOf(append)), ...kv.map(mintedIn)];
    const expected = changes.filter((change) => change !== undefined).sort();
    const found = evidence.map(({ text }) => describe(JSON.parse(text) as Recorded)).sort();
    this.events += evidence.length;
    if (expected.join('\n') === found.join('\n')) return;
    this.fault ??= `committed was ${expected.join(', ')}; recorded was ${found.join(', ')}`;
  }

  /** The store is what it was: what its records say is what counts. */
  restored(records: readonly StoredRecord[]): void {
    this.digests.clear();
    for (const record of records) this.changeOf(record);
  }

  /** What a record changes; undefined if it gives nobody another credential. */
  private changeOf({ stream, key, body }: Append): string | undefined {
    const record = { stream, key, body, id: 1, batch: '' };
    if (stream === KILL_LIST_STREAM) {
      const change = applyKillRecord(new KillListState(), record);
      if (change.type === 'kill') return `killed ${change.version}`;
      return `${change.by === '' ? 'expired' : 'lifted'} ${change.version}`;
    }
    if (stream === GATEWAYS_STREAM) {
      const state = new GatewaysState();
      applyGatewaysRecord(state, record);
      for (const { id, digest } of state.byId.values()) return this.given(id, digest);
      return `removed ${key?.split('/')[1]}`;
    }
    if (stream !== DEVICES_STREAM) return undefined;
    const state = new DevicesState();
    applyRecord(state, record);
    for (const { id, digest } of state.byId.values()) return this.given(id, digest);
    for (const { id, by } of state.revocations.values()) return `revoked ${id} by ${by}`;
    return `voided ${key?.slice('void/'.length)}`;
  }

  private given(id: string, digest: string): string | undefined {
    if (this.digests.get(id) === digest) return undefined;
    this.digests.set(id, digest);
    return `given ${id}`;
  }
}

/** A token that was made, as its row says. */
function mintedIn(change: KvChange): string | undefined {
  if (change.op !== 'put' || !change.key.startsWith('enrollment-token/')) return undefined;
  const { user, spent } = JSON.parse(change.value) as { user: string; spent?: unknown };
  return spent === undefined ? `minted ${user}` : undefined;
}

function describe({ kind, by, data }: Recorded): string {
  const { device, gateway, user, version } = data;
  switch (kind) {
    case 'enrollment-token.minted':
    case 'enrollment-token.reissued':
      return `minted ${user}`;
    case 'enrollment-tokens.voided':
      return `voided ${user}`;
    case 'device.revoked':
      return `revoked ${device} by ${by.id}`;
    case 'gateway.removed':
      return `removed ${gateway}`;
    case 'kill-list.killed':
    case 'kill-list.lifted':
    case 'kill-list.expired':
      return `${kind.slice('kill-list.'.length)} ${version}`;
    default:
      return `given ${device ?? gateway}`;
  }
}
