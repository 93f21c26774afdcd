/**
 * The evidence of one actor thread: keys, masking, recorder, and how a store makes and chains
 * events. All threads of a process share two numbers: how often events were put into the outbox,
 * and whether they may be.
 */

import { DEFAULT_MASKING } from '../evidence/default-masking.js';
import { outboxMac } from '../evidence/event.js';
import type { Keyring } from '../evidence/keyring.js';
import { parseKeyring } from '../evidence/keyring.js';
import { MASKING_LABEL, prepareMasking } from '../evidence/masking.js';
import type { Clock } from '../runtime/clock.js';
import { type CpuPool, openCpuPool } from '../runtime/cpu-pool.js';
import type { Random } from '../runtime/random.js';
import { OUTBOX_LABEL, pooledLinker } from '../storage/chain-linker.js';
import { checkpointFile } from '../storage/file/checkpoint-file.js';
import type { StoreEvidence } from '../storage/open-store.js';
import { StoreError } from '../storage/store-error.js';
import type { ChainingEnvironment } from './audit-chainer/actor.js';
import { type EvidenceRecorder, evidenceRecorder } from './evidence.js';

/** What the supervisor's process gives to each actor thread: plain data. */
export interface ThreadEvidenceData {
  /** The text of `--signing-key-file`. */
  readonly signingKeyPem: string;
  readonly checkpointFile: string;
  /** `SHARED_NUMBERS` numbers, the same memory in every thread. */
  readonly shared: Int32Array;
  readonly replica: { readonly id: string; readonly version: string };
}

/** Where each number stands in `ThreadEvidenceData.shared`. */
const ENQUEUED = 0;
const ALLOWED = 1;
const SHARED_NUMBERS = 2;
/** Signing and checking are short; more threads than this would only take them from others. */
const WORKERS_MAX = 2;
/** Half a millisecond of signing: less is not worth handing to a second worker. */
const SIGNED_AT_ONCE_MIN = 20;

/** The memory that all threads of a process share. */
export function sharedEvidenceNumbers(): Int32Array {
  return new Int32Array(new SharedArrayBuffer(SHARED_NUMBERS * Int32Array.BYTES_PER_ELEMENT));
}

/** What the thread's parts are given. */
export interface ThreadEvidence {
  readonly recorder: EvidenceRecorder;
  readonly store: StoreEvidence;
  readonly chaining: ChainingEnvironment;
  close(): Promise<void>;
}

/** Throws `CodedError` `signing_key_invalid`. */
export function threadEvidence(
  data: ThreadEvidenceData,
  { clock, random }: { readonly clock: Clock; readonly random: Random },
): ThreadEvidence {
  const { signingKeyPem: pem, shared, replica } = data;
  const keyring = parseKeyring(pem);
  const masking = prepareMasking(DEFAULT_MASKING, keyring.derive(MASKING_LABEL));
  const pool = openCpuPool(new URL('./audit-chainer/cpu-tasks.js', import.meta.url), WORKERS_MAX);
  const parts = { keyring, masking, clock, random };
  const recorder = gated(evidenceRecorder(parts), shared);
  return {
    recorder,
    store: {
      seal: sealOf(keyring),
      linker: pooledLinker(parts, (keyId, hashes) => signHashes(pool, { pem, keyId, hashes })),
      onEnqueued: () => void Atomics.add(shared, ENQUEUED, 1),
    },
    chaining: {
      recorder,
      keyring,
      published: checkpointFile(data.checkpointFile),
      pool,
      enqueued: () => Atomics.load(shared, ENQUEUED),
      allow: (allowed) => void Atomics.store(shared, ALLOWED, allowed ? 1 : 0),
      replica,
    },
    close: () => pool.close(),
  };
}

/** By all workers at once: the head stays locked until the last signature. */
async function signHashes(
  pool: CpuPool,
  { hashes, ...key }: { pem: string; keyId: string; hashes: readonly string[] },
): Promise<Uint8Array[]> {
  const each = Math.max(SIGNED_AT_ONCE_MIN, Math.ceil(hashes.length / WORKERS_MAX));
  const parts: Promise<Uint8Array[]>[] = [];
  for (let first = 0; first < hashes.length; first += each) {
    const batch = { ...key, hashes: hashes.slice(first, first + each) };
    parts.push(pool.run<Uint8Array[]>('signHashes', batch));
  }
  return (await Promise.all(parts)).flat();
}

function sealOf(keyring: Keyring): StoreEvidence['seal'] {
  const { keyId, secret } = keyring.derive(OUTBOX_LABEL);
  return { keyId, mac: (place, text) => outboxMac(secret, place, text) };
}

/** Without the chain's current key this process decides nothing that it could not prove. */
function gated(recorder: EvidenceRecorder, shared: Int32Array): EvidenceRecorder {
  return {
    ...recorder,
    event: (act) => {
      if (Atomics.load(shared, ALLOWED) === 1) return recorder.event(act);
      const message = 'This replica cannot record evidence now: its audit chainer is not ready.';
      throw new StoreError('store_unavailable', message, { retryAfterSeconds: 1 });
    },
  };
}
