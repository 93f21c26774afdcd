/**
 * Commands that work on the data itself: the production actor and store in this process, for as
 * long as one command takes. On PostgreSQL a server may run beside it; a data directory is its own
 * server's alone. What a command records it also chains before it ends (ADR-0009).
 */
import { userInfo } from 'node:os';
import { settle } from '../../actors/audit-chainer/settle.js';
import { decisionsActor } from '../../actors/decisions/actor.js';
import { DECISIONS_ACTOR, DecisionsClient } from '../../actors/decisions/client.js';
import type { DecisionCaller, PolicyFacts } from '../../actors/decisions/messages.js';
import { policyDirectory } from '../../actors/policy-directory.js';
import { sharedEvidenceNumbers, threadEvidence } from '../../actors/thread-evidence.js';
import { ActorHost } from '../../runtime/actor-host.js';
import { delay, systemClock } from '../../runtime/clock.js';
import { CodedError } from '../../runtime/failure.js';
import { silentLog } from '../../runtime/log.js';
import { systemRandom } from '../../runtime/random.js';
import { requireKey } from '../../storage/chain-linker.js';
import { startStorageThread } from '../../storage/file/storage-thread.js';
import { openStore } from '../../storage/open-store.js';
import { check } from '../../storage/postgres/migrate.js';
import type { Store } from '../../storage/store.js';
import { UsageError } from '../exit-codes.js';
import type { GivenOptions, OptionSpec } from '../option-table.js';
import { parsePath } from '../option-values.js';
import { readDatabaseUrl, readText } from '../private-file.js';
import { CHECKPOINTS_NAME, SIGNING_KEY_NAME } from '../serve-options.js';
import { packageVersion } from '../version.js';
import type { Shown } from './command.js';

const GROUP = 'Without a server:';

/** What says that no server is asked, and where the data is. */
export const ONE_SHOT_OPTIONS = [
  { name: 'data-dir', value: 'DIR', group: GROUP, help: 'of a server that does not run' },
  { name: 'database-url-file', value: 'FILE', group: GROUP, help: 'the database' },
  { name: 'database-insecure-tls', group: GROUP, help: 'as of `halo-server serve`' },
  { name: 'signing-key-file', value: 'FILE', group: GROUP, help: 'as of `halo-server serve`' },
  { name: 'policy-dir', value: 'DIR', group: GROUP, help: 'as of `halo-server serve`' },
] as const satisfies ReadonlyArray<OptionSpec<string>>;

/** Where a one-shot command works. */
export interface OneShotPlace {
  readonly where:
    | { readonly dataDir: string }
    | { readonly urlFile: string; readonly insecureTls: boolean };
  readonly signingKeyFile: string;
  readonly policyDir: string | undefined;
}

/** Undefined when a server is to be asked. Throws `UsageError` for options that do not fit. */
export function oneShotPlace(given: GivenOptions<string>): OneShotPlace | undefined {
  const path = (name: string): string | undefined => {
    const text = given.text(name);
    return text === undefined ? undefined : parsePath(`--${name}`, text);
  };
  const [dataDir, urlFile] = [path('data-dir'), path('database-url-file')];
  const [keyFile, policyDir] = [path('signing-key-file'), path('policy-dir')];
  if (dataDir === undefined && urlFile === undefined) {
    if (keyFile === undefined && policyDir === undefined) return undefined;
    throw new UsageError('--signing-key-file and --policy-dir go with the data itself');
  }
  if (urlFile === undefined) {
    const signingKeyFile = keyFile ?? `${dataDir}/${SIGNING_KEY_NAME}`;
    return { where: { dataDir: dataDir ?? '' }, signingKeyFile, policyDir };
  }
  if (dataDir !== undefined) throw new UsageError('the data lives in one place: choose one');
  if (keyFile === undefined) throw new UsageError('a database needs --signing-key-file');
  const insecureTls = given.on('database-insecure-tls');
  return { where: { urlFile, insecureTls }, signingKeyFile: keyFile, policyDir };
}

/** How long the policy may take to be read and recorded. */
const POLICY_WAIT_MAX_MS = 10_000;
const POLICY_LOOK_MS = 20;
/** Reads, writes and a drain: as few as a store works with. */
const CONNECTIONS = 4;

/**
 * Opens everything, does the work, chains the refs that it returns, and lets go of everything.
 * Rejects with a `CodedError`.
 */
export async function withDecisions(
  place: OneShotPlace,
  work: (
    decisions: DecisionsClient,
    caller: DecisionCaller,
  ) => Promise<{ readonly refs: readonly string[]; readonly shown: Shown }>,
): Promise<Shown> {
  const signingKeyPem = await readText(place.signingKeyFile).catch(() => {
    const message = `there is no signing key in ${place.signingKeyFile}`;
    throw new CodedError('signing_key_missing', message);
  });
  const name = userInfo().username;
  const evidence = threadEvidence(
    {
      signingKeyPem,
      checkpointFile: `${place.signingKeyFile}.${CHECKPOINTS_NAME}`,
      shared: sharedEvidenceNumbers(),
      replica: { id: `command of ${name}`, version: packageVersion() },
    },
    { clock: systemClock, random: systemRandom },
  );
  const opened = await openPlace(place, signingKeyPem, evidence.store);
  const { policyDir } = place;
  const environment = {
    store: opened.store,
    clock: systemClock,
    random: systemRandom,
    log: silentLog,
    evidence: evidence.recorder,
    policySource: policyDir === undefined ? undefined : policyDirectory(policyDir),
  };
  const host = new ActorHost([decisionsActor(environment)], {
    ...environment,
    onExhausted: () => undefined,
  });
  try {
    await requireKey(opened.store.evidence, evidence.chaining.keyring);
    evidence.chaining.allow(true);
    await host.open();
    if (policyDir !== undefined) await policyInForce(host);
    const decisions = new DecisionsClient(host.localRef(DECISIONS_ACTOR));
    const { refs, shown } = await work(decisions, { type: 'admin', id: name });
    await settle(opened.store.evidence, refs, systemClock);
    return shown;
  } finally {
    await host.close();
    await opened.close();
    await evidence.close();
  }
}

async function openPlace(
  { where }: OneShotPlace,
  signingKeyPem: string,
  evidence: Parameters<typeof openStore>[2],
): Promise<{ readonly store: Store; close(): Promise<void> }> {
  const environment = { clock: systemClock, random: systemRandom, log: silentLog };
  if ('dataDir' in where) {
    const thread = await startStorageThread({ dataDir: where.dataDir, signingKeyPem });
    const store = openStore({ backend: 'file', connection: thread.connect() }, environment);
    return {
      store,
      close: async () => {
        await store.close();
        await thread.close();
      },
    };
  }
  const access = { url: await readDatabaseUrl(where.urlFile), insecureTls: where.insecureTls };
  await check(access);
  const source = { backend: 'postgres', ...access, pooled: false, connectionsMax: CONNECTIONS };
  const store = openStore({ ...source, backend: 'postgres' }, environment, evidence);
  return { store, close: () => store.close() };
}

async function policyInForce(host: ActorHost): Promise<void> {
  const untilMs = systemClock.monotonicMs() + POLICY_WAIT_MAX_MS;
  while (systemClock.monotonicMs() < untilMs) {
    const { digest, issues } = (host.snapshots()[0]?.facts ?? {}) as Partial<PolicyFacts>;
    if (typeof digest === 'string') return;
    const [issue] = issues ?? [];
    if (issue !== undefined) {
      const message = `${issue.file}:${issue.line}:${issue.column}: ${issue.message}`;
      throw new CodedError('policy_refused', message);
    }
    await delay(systemClock, POLICY_LOOK_MS);
  }
  throw new CodedError('policy_unreadable', 'the policy could not be read and recorded in time');
}
