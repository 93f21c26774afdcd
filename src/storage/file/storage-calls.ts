/**
 * An actor thread's calls to the storage thread: numbered requests, one answer each. When the port
 * closes, because either thread died, everything pending rejects.
 */
import type { MessagePort } from 'node:worker_threads';
import type { Clock } from '../../runtime/clock.js';
import { CodedError } from '../../runtime/failure.js';
import { STORE_CODES, StoreError } from '../store-error.js';
import type { Answer, Calls, CallType, Request } from './protocol.js';

/** How long `close` waits for writes that were sent: some syncs of a slow disk. */
const CLOSE_WAIT_MAX_MS = 5_000;

/** Calls of one thread without an answer: more than its mailboxes hold, so that it is never met. */
const PENDING_CALLS_MAX = 50_000;

/** Calls that may have been done although their answer was lost. */
const WRITING: ReadonlySet<CallType> = new Set<CallType>([
  'write',
  'keyValue',
  'count',
  'see',
  'state',
  'replaceEpoch',
  'probe',
]);

interface PendingCall {
  readonly type: CallType;
  readonly resolve: (value: Calls[CallType]['answer']) => void;
  readonly reject: (error: CodedError) => void;
}

/** One for each port. Never waits without an end: an answer, or the end of the port. */
export class StorageCalls {
  private readonly pending = new Map<number, PendingCall>();
  /** Calls that the storage thread answered with a failure, since the start. */
  failed = 0;
  private newestId = 0;
  private closing: Promise<void> | undefined;
  private ended = false;
  private onIdle: () => void = () => undefined;

  constructor(
    private readonly port: MessagePort,
    private readonly clock: Clock,
  ) {
    port.on('message', (answer: Answer) => this.receive(answer));
    port.on('close', () => this.end());
  }

  /** Calls that have no answer yet. */
  get waiting(): number {
    return this.pending.size;
  }

  /** Throws `store_unavailable` when the store was closed or the storage thread is gone. */
  requireOpen(): void {
    if (this.closing !== undefined || this.ended) throw closedError();
  }

  async call<Type extends CallType>(
    type: Type,
    request: Calls[Type]['request'],
  ): Promise<Calls[Type]['answer']> {
    this.requireOpen();
    if (this.pending.size >= PENDING_CALLS_MAX) {
      throw new StoreError('store_unavailable', 'Too many calls wait for the storage thread.');
    }
    this.newestId += 1;
    const id = this.newestId;
    return new Promise((resolve, reject) => {
      const answered = resolve as PendingCall['resolve'];
      this.pending.set(id, { type, resolve: answered, reject });
      this.port.postMessage({ ...request, type, id });
    });
  }

  /** A message without an answer; dropped when there is nobody to hear it. */
  send(request: Request): void {
    if (!this.ended) this.port.postMessage(request);
  }

  /**
   * Idempotent. What has not been sent to be written rejects with `store_unavailable` at once;
   * writes that were sent are waited for, so that their outcome is known.
   */
  close(): Promise<void> {
    this.closing ??= this.drain();
    return this.closing;
  }

  private async drain(): Promise<void> {
    for (const [id, call] of this.pending) {
      if (WRITING.has(call.type)) continue;
      this.pending.delete(id);
      call.reject(closedError());
    }
    if (this.pending.size > 0 && !this.ended) {
      await new Promise<void>((resolve) => {
        const timer = this.clock.schedule(resolve, CLOSE_WAIT_MAX_MS);
        this.onIdle = () => {
          timer.cancel();
          resolve();
        };
      });
    }
    this.port.close();
    this.end();
  }

  private receive(answer: Answer): void {
    const call = this.pending.get(answer.id);
    if (call === undefined) return;
    this.pending.delete(answer.id);
    if (answer.ok) {
      call.resolve(answer.value);
    } else {
      this.failed += 1;
      call.reject(errorOf(answer.code, answer.message));
    }
    if (this.pending.size === 0) this.onIdle();
  }

  private end(): void {
    if (this.ended) return;
    this.ended = true;
    for (const { type, reject } of this.pending.values()) {
      reject(
        WRITING.has(type)
          ? new StoreError('outcome_unknown', 'The storage thread ended before it answered.')
          : closedError(),
      );
    }
    this.pending.clear();
    this.onIdle();
  }
}

/** What the linker throws has codes of its own. */
function errorOf(code: string, message: string): CodedError {
  const storeCode = STORE_CODES.find((known) => known === code);
  return storeCode === undefined
    ? new CodedError(code, message)
    : new StoreError(storeCode, message);
}

function closedError(): StoreError {
  return new StoreError('store_unavailable', 'The store is closed.');
}
