/**
 * The supervisor's handle on the storage thread of a data directory:
 *
 *     const thread = await startStorageThread({ dataDir, log });
 *     thread.onDeath((cause) => …);                     // end the process, or start another
 *     const connection = thread.connect();              // one for each actor thread
 *     new Worker(…, { workerData: { connection }, transferList: [connection.port] });
 *     // there: new FileStore(connection, systemClock)
 *     await thread.probe();                             // for /readyz; bound it with a timeout
 *     await thread.close();                             // after every FileStore was closed
 */
import { MessageChannel, type MessagePort, Worker } from 'node:worker_threads';
import { systemClock } from '../../runtime/clock.js';
import type { LeaseStore } from '../../runtime/lease.js';
import { type Log, type LogFields, silentLog } from '../../runtime/log.js';
import { type StoreCode, StoreError } from '../store-error.js';
import { fileLeases } from './file-leases.js';
import type { FileStoreConnection } from './protocol.js';
import { StorageCalls } from './storage-calls.js';

/** The directory to open, and where its events are logged. */
export interface StorageThreadOptions {
  /** Made if missing. */
  readonly dataDir: string;
  readonly log?: Log;
  /** The text of the file of signing keys; without it the store takes no evidence. */
  readonly signingKeyPem?: string;
}

/** What the thread is started with. */
export interface StorageThreadData {
  readonly dataDir: string;
  readonly signingKeyPem?: string;
}
export type ToWorker =
  | { readonly type: 'connect'; readonly port: MessagePort }
  | { readonly type: 'close' };
export type FromWorker =
  | { readonly type: 'opened'; readonly heads: SharedArrayBuffer }
  | { readonly type: 'failed'; readonly code: StoreCode; readonly message: string }
  | {
      readonly type: 'log';
      readonly level: keyof Log;
      readonly fields: LogFields;
      readonly message: string;
    };

/** A running storage thread, which holds its directory. */
export interface StorageThread {
  /** A connection for one more `FileStore`; its port is transferred to the thread that has it. */
  connect(): FileStoreConnection;
  /** Resolves when a commit of nothing was written and synced; else rejects. */
  probe(): Promise<void>;
  /** For the elector. */
  readonly leases: LeaseStore;
  /** Called once if the thread ends without `close`; every store on it is then unavailable. */
  onDeath(callback: (cause: unknown) => void): void;
  /** Idempotent. The directory is free once it resolves. */
  close(): Promise<void>;
}

/**
 * Rejects with `StoreError`: `directory_held`, `damaged`, `incompatible` (the process should exit
 * with 3), `store_unavailable`.
 */
export async function startStorageThread(options: StorageThreadOptions): Promise<StorageThread> {
  const { dataDir, log = silentLog, signingKeyPem } = options;
  const data: StorageThreadData = {
    dataDir,
    ...(signingKeyPem === undefined ? {} : { signingKeyPem }),
  };
  const worker = new Worker(new URL('./storage-worker.js', import.meta.url), {
    workerData: data,
    name: 'storage',
  });
  const exited = new Promise<void>((resolve) => worker.once('exit', () => resolve()));
  let cause: unknown;
  worker.on('error', (error) => {
    cause = error;
  });
  try {
    const heads = await opened(worker, exited, log);
    return handle(worker, exited, { heads, dataDir }, () => cause);
  } catch (error) {
    await worker.terminate();
    throw error;
  }
}

function opened(worker: Worker, exited: Promise<void>, log: Log): Promise<SharedArrayBuffer> {
  return new Promise((resolve, reject) => {
    worker.on('message', (message: FromWorker) => {
      switch (message.type) {
        case 'opened':
          return resolve(message.heads);
        case 'failed':
          return reject(new StoreError(message.code, message.message));
        case 'log':
          return log[message.level](message.fields, message.message);
      }
    });
    void exited.then(() =>
      reject(new StoreError('store_unavailable', 'The storage thread ended while it started.')),
    );
  });
}

function handle(
  worker: Worker,
  exited: Promise<void>,
  shared: Omit<FileStoreConnection, 'port'>,
  cause: () => unknown,
): StorageThread {
  let closing: Promise<void> | undefined;
  const send = (message: ToWorker, ...ports: MessagePort[]): void =>
    worker.postMessage(message, ports);
  const connect = (): FileStoreConnection => {
    const { port1, port2 } = new MessageChannel();
    send({ type: 'connect', port: port1 }, port1);
    return { port: port2, ...shared };
  };
  const own = connect().port;
  const calls = new StorageCalls(own, systemClock);
  own.unref();
  return {
    connect,
    probe: async () => {
      await calls.call('probe', {});
    },
    leases: fileLeases(calls),
    onDeath: (callback) => {
      void exited.then(() => {
        if (closing === undefined) callback(cause());
      });
    },
    close: () => {
      closing ??= calls.close().then(() => {
        send({ type: 'close' });
        return exited;
      });
      return closing;
    },
  };
}
