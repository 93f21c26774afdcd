/** Evidence in the run's own process, as an actor thread has it, on a PostgreSQL of the run. */
import { generateKeyPairSync } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import {
  sharedEvidenceNumbers,
  type ThreadEvidence,
  threadEvidence,
} from '../src/actors/thread-evidence.js';
import { verifyChain } from '../src/cli/halo-verify/verify-chain.js';
import { signingKeyPem } from '../src/evidence/keyring.js';
import { systemClock } from '../src/runtime/clock.js';
import { silentLog } from '../src/runtime/log.js';
import { systemRandom } from '../src/runtime/random.js';
import type { EvidenceEvent } from '../src/storage/evidence-store.js';
import { openStore } from '../src/storage/open-store.js';
import { migrate } from '../src/storage/postgres/migrate.js';
import type { Store } from '../src/storage/store.js';
import { LoadDatabases } from './databases.js';
import { HALOS, type Verdict, verdict } from './report.js';
import type { RunContext } from './run-context.js';

/** One thread's part of the default of `--database-max-conns`, with which servers run. */
const CONNECTIONS = 16;

/** What the profiles about evidence work with. */
export interface EvidenceOnPostgres {
  readonly databases: LoadDatabases;
  readonly url: string;
  readonly pem: string;
  readonly store: Store;
  readonly evidence: ThreadEvidence;
  /** What a decision's evidence is like: some 300 bytes, masked, under a fresh ref. */
  event(ordinal: number): EvidenceEvent;
}

/** Of a run's parts: the same in a server, but for the threads. */
export const environment = { clock: systemClock, random: systemRandom, log: silentLog };

/** All of it ends with the run. */
export async function startEvidence(context: RunContext): Promise<EvidenceOnPostgres> {
  const databases = await LoadDatabases.start(context.directory);
  context.onEnd(() => databases.stop());
  const url = readFileSync(await databases.create(HALOS), 'utf8').trim();
  const access = { url, insecureTls: false };
  await migrate(access);
  const pem = signingKeyPem(() => generateKeyPairSync('ed25519'));
  const evidence = threadEvidence(
    {
      signingKeyPem: pem,
      checkpointFile: join(context.directory, 'checkpoints.json'),
      shared: sharedEvidenceNumbers(),
      replica: { id: 'load', version: '0.0.0' },
    },
    environment,
  );
  context.onEnd(() => evidence.close());
  // As the audit chainer does once it holds the chain's current key.
  evidence.chaining.allow(true);
  const source = { backend: 'postgres', ...access, pooled: false } as const;
  const store = openStore({ ...source, connectionsMax: CONNECTIONS }, environment, evidence.store);
  context.onEnd(() => store.close());
  return {
    databases,
    url,
    pem,
    store,
    evidence,
    event: (ordinal) =>
      evidence.recorder.event({
        kind: 'decision.allowed',
        by: { type: 'device', id: `dev_${ordinal}` },
        atMs: systemClock.wallMs(),
        data: { principal: `agent-${ordinal}`, action: 'read', resource: `document-${ordinal}` },
      }),
  };
}

/** Puts so many events into the outbox, many in one unit. */
export async function fillOutbox(
  { store, event }: Pick<EvidenceOnPostgres, 'store' | 'event'>,
  count: number,
  perUnit: number,
): Promise<void> {
  for (let first = 0; first < count; first += perUnit) {
    const evidence = Array.from({ length: Math.min(perUnit, count - first) }, (_, n) =>
      event(first + n),
    );
    const position = await store.replay([], () => undefined);
    await store.commit({ streams: [], position }, () => ({ evidence }));
  }
}

/** Chain and outbox as `halo-verify` finds them; fails the run unless both are whole. */
export async function chainVerdicts(
  { url }: Pick<EvidenceOnPostgres, 'url'>,
  expected: { readonly records?: number; readonly pending: number },
): Promise<Verdict[]> {
  const place = { kind: 'database', url, insecureTls: false } as const;
  const { status, records, pending = 0 } = await verifyChain(place, {}, undefined);
  const broken = status === 'verified' ? 0 : 1;
  return [
    verdict('chains that do not verify', broken, ['at most', 0, ''], true),
    verdict('events that wait at the end', pending, ['at most', expected.pending, ''], true),
    verdict('events that wait at the end', pending, ['at least', expected.pending, ''], true),
    ...(expected.records === undefined
      ? []
      : [verdict('records in the chain', records, ['at least', expected.records, ''], true)]),
  ];
}
