/**
 * Makes records of the chain for a backend: checks what was queued, links it, has it signed. It
 * remembers nothing: the newest record says which key is the current one (DESIGN §4).
 */
import {
  type ChainHead,
  EMPTY_CHAIN,
  type LinkedRecord,
  linkEvent,
  sealRecord,
  signedBytes,
} from '../evidence/chain.js';
import { isOutboxMac } from '../evidence/event.js';
import { KIND_KEY_ROTATED } from '../evidence/format.js';
import type { Keyring, SigningKey } from '../evidence/keyring.js';
import type { Masking } from '../evidence/masking.js';
import {
  checkpointEvent,
  genesisEvent,
  type LostRange,
  restoreAcceptedEvent,
  rotationEvent,
  type Statement,
} from '../evidence/statements.js';
import type { Clock } from '../runtime/clock.js';
import { CodedError } from '../runtime/failure.js';
import { type Random, uuidV7 } from '../runtime/random.js';
import type {
  ChainedRecord,
  ChainLinker,
  ChainStatement,
  ChainTail,
  EvidenceEvent,
  EvidenceStore,
  QueuedEvent,
  StoredHead,
} from './evidence-store.js';

/** HKDF label of the MACs over rows of the outbox. */
export const OUTBOX_LABEL = 'evidence-outbox';
/** Who speaks where nobody asked for it: the server itself. */
const SERVER = { type: 'server', id: 'server' } as const;

/** What a linker is made of. */
export interface LinkerOptions {
  readonly keyring: Keyring;
  readonly masking: Masking;
  readonly clock: Clock;
  readonly random: Random;
}

/** Statements that can be asked for; `by` is who asks, absent for the server itself. */
export type StatementRequest = ChainStatement & { readonly by?: Statement['by'] } & (
    | { readonly kind: 'checkpoint' }
    /** `nextKeyId`: a key of the same file; absent: the one that is held beside the current one. */
    | { readonly kind: 'rotation'; readonly nextKeyId?: string }
    | { readonly kind: 'restore'; readonly lost: LostRange }
  );

/** One that answers within the call, as the file backend needs it. */
export interface DirectLinker extends ChainLinker {
  link(tail: ChainTail, events: readonly EvidenceEvent[]): readonly ChainedRecord[];
  state(tail: ChainTail, statement: ChainStatement): readonly ChainedRecord[];
}

/** Signs in this thread. */
export function directLinker(options: LinkerOptions): DirectLinker {
  const seal = (records: readonly LinkedRecord[]): ChainedRecord[] =>
    records.map((record) => sealRecord(record, signing(options, record).sign(signedBytes(record))));
  return {
    link: (tail, events) => seal(linked(options, tail, events)),
    state: (tail, statement) => seal(stated(options, tail, statement)),
  };
}

/** Signs each hash (hexadecimal) with the key of that id: 64 bytes each, in their order. */
export type SignHashes = (keyId: string, hashes: readonly string[]) => Promise<Uint8Array[]>;

/** Has whole batches signed elsewhere, so that this thread goes on meanwhile. */
export function pooledLinker(options: LinkerOptions, sign: SignHashes): ChainLinker {
  const seal = async (records: readonly LinkedRecord[]): Promise<ChainedRecord[]> => {
    const [first] = records;
    if (first === undefined) return [];
    const hashes = records.map(({ hash }) => hash);
    const signatures = await sign(signing(options, first).id, hashes);
    return records.map((record, at) => {
      const signature = signatures[at];
      if (signature === undefined) throw new RangeError(`Record ${record.seq} was not signed.`);
      return sealRecord(record, signature);
    });
  };
  return {
    link: async (tail, events) => seal(linked(options, tail, events)),
    state: async (tail, statement) => seal(stated(options, tail, statement)),
  };
}

/**
 * The key that signs after a record: that of the record, or the one that a rotation names. Throws
 * `CodedError` `signing_key_missing` when it is not held: another replica has to go on.
 */
export function keyAfter(keyring: Keyring, tail: ChainTail): SigningKey {
  if (tail.seq === -1) return keyring.current;
  const { kind, key_id: keyId, data } = tailRecord(tail);
  return keyring.select(kind === KIND_KEY_ROTATED ? (data.next_key_id ?? '') : keyId).current;
}

/**
 * The head, where the key that signs after it is held: without it nothing may be enqueued. Throws
 * as `keyAfter`, and `CodedError` `damaged` when the newest record is missing.
 */
export async function requireKey(evidence: EvidenceStore, keyring: Keyring): Promise<StoredHead> {
  const head = await evidence.head();
  if (head.seq < 0) return head;
  const [record] = await evidence.page(head.seq - 1, 1);
  if (record === undefined) {
    throw new CodedError('damaged', 'The newest record of the evidence chain is missing.');
  }
  keyAfter(keyring, { ...head, record: record.text, chainId: '' });
  return head;
}

interface TailRecord {
  readonly kind: string;
  readonly key_id: string;
  readonly hash: string;
  readonly data: { readonly next_key_id?: string };
}

/** A head that leads to another record, or to none, is reported and never written behind. */
function tailRecord({ seq, hash, record }: ChainTail): TailRecord {
  let found: Partial<TailRecord> | undefined;
  try {
    found = JSON.parse(record) as Partial<TailRecord>;
  } catch {
    // The message would quote the record: it is dropped with the cause.
  }
  if (found?.hash === hash && found.data !== undefined) return found as TailRecord;
  throw new CodedError(
    'damaged',
    `Record ${seq} of the evidence chain is not the one of its head.`,
  );
}

function signing({ keyring }: LinkerOptions, { keyId }: LinkedRecord): SigningKey {
  return keyring.select(keyId).current;
}

function linked(
  options: LinkerOptions,
  tail: ChainTail,
  events: readonly (EvidenceEvent | QueuedEvent)[],
): LinkedRecord[] {
  const { keyring, clock } = options;
  const key = keyAfter(keyring, tail);
  const link = { chainedAt: isoTime(clock), keyId: key.id };
  const records: LinkedRecord[] = [];
  let head: ChainHead = tail.seq === -1 ? EMPTY_CHAIN : tail;
  const append = (text: string): void => {
    const record = linkEvent(head, text, link);
    records.push(record);
    head = record;
  };
  if (tail.seq === -1) append(genesisEvent(statementBy(options, SERVER), key));
  const counts = new Map<string, number>();
  const secretOf = secretsOf(keyring);
  for (const event of events) {
    if (!('writer' in event)) {
      append(event.text);
      continue;
    }
    try {
      checkQueued(secretOf(event.keyId), event, counts);
      append(event.text);
      if (head !== tail && records.at(-1)?.ref !== event.ref) throw forged('its ref is another');
    } catch (error) {
      throw inRow(event, error);
    }
  }
  return records;
}

/** Deriving a secret costs more than a MAC with it: once for each key of a batch. */
function secretsOf(keyring: Keyring): (keyId: string) => Uint8Array {
  const secrets = new Map<string, Uint8Array>();
  return (keyId) => {
    const known = secrets.get(keyId) ?? keyring.select(keyId).current.derive(OUTBOX_LABEL);
    secrets.set(keyId, known);
    return known;
  };
}

/** Each writer's events come without gaps, each under a MAC over the text and its place. */
function checkQueued(secret: Uint8Array, event: QueuedEvent, counts: Map<string, number>): void {
  const { writer, count, text, mac, chainedCount } = event;
  if (!isOutboxMac(secret, { writer, count }, text, mac)) throw forged('its MAC does not fit');
  const expected = (counts.get(writer) ?? chainedCount) + 1;
  if (count < expected) throw forged('it was chained before');
  if (count > expected) {
    const message = `the events ${expected} to ${count - 1} of its writer are missing`;
    throw new CodedError('evidence_missing', message);
  }
  counts.set(writer, count);
}

function stated(options: LinkerOptions, tail: ChainTail, request: ChainStatement): LinkedRecord[] {
  const { keyring, clock } = options;
  const { by, ...rest } = request as StatementRequest;
  const begun = tail.seq === -1 ? linked(options, tail, []) : [];
  const [genesis] = begun;
  const head = genesis ?? tail;
  const key = keyAfter(keyring, tail);
  const statement = statementBy(options, by ?? SERVER);
  const text = statementText(rest, statement, {
    head,
    chainId: genesis?.hash ?? tail.chainId,
    current: key,
    keyring,
  });
  const link = { chainedAt: isoTime(clock), keyId: key.id };
  return [...begun, linkEvent(head, text, link)];
}

interface Stage {
  readonly head: ChainHead;
  readonly chainId: string;
  readonly current: SigningKey;
  readonly keyring: Keyring;
}

function statementText(
  request: Omit<StatementRequest, 'by'>,
  statement: Statement,
  { head, chainId, current, keyring }: Stage,
): string {
  switch (request.kind) {
    case 'checkpoint':
      return checkpointEvent(statement, chainId, head);
    case 'rotation': {
      const next = nextKey(keyring, current, request['nextKeyId'] as string | undefined);
      return rotationEvent(statement, head, { current, next });
    }
    case 'restore':
      return restoreAcceptedEvent(statement, head, request['lost'] as LostRange);
    default:
      throw new CodedError('evidence_invalid', 'the chain makes no such statement');
  }
}

function nextKey(keyring: Keyring, current: SigningKey, id: string | undefined): SigningKey {
  if (id !== undefined) return keyring.select(id).current;
  const others = keyring.keys.filter((key) => key.id !== current.id);
  const [next] = others;
  if (next !== undefined && others.length === 1) return next;
  const message =
    next === undefined
      ? 'the signing key file holds no other key to rotate to'
      : 'the signing key file holds several other keys: name one';
  throw new CodedError('signing_key_missing', message);
}

function statementBy({ masking, clock, random }: LinkerOptions, by: Statement['by']): Statement {
  return { ref: newRef(random, clock), at: isoTime(clock), by, masking };
}

/** A new evidence ref: see `REF_PATTERN`. */
export function newRef(random: Random, clock: Clock): string {
  return `ev_${uuidV7(random, clock.wallMs())}`;
}

function isoTime(clock: Clock): string {
  return new Date(clock.wallMs()).toISOString();
}

function forged(why: string): CodedError {
  return new CodedError('evidence_forged', why);
}

/** Names the row for whoever has to look at it; the text of an event is never repeated. */
function inRow(event: QueuedEvent, error: unknown): unknown {
  if (!(error instanceof CodedError)) return error;
  return new CodedError(error.code, `outbox row ${event.id}: ${error.message}`, { cause: error });
}
