/** The storage thread's entry: opens the directory, then serves one session for each port. */
import { type MessagePort, parentPort, workerData } from 'node:worker_threads';
import { DEFAULT_MASKING } from '../../evidence/default-masking.js';
import { parseKeyring } from '../../evidence/keyring.js';
import { MASKING_LABEL, prepareMasking } from '../../evidence/masking.js';
import { systemClock } from '../../runtime/clock.js';
import type { Log, LogFields } from '../../runtime/log.js';
import { systemRandom } from '../../runtime/random.js';
import { type DirectLinker, directLinker } from '../chain-linker.js';
import { StoreError } from '../store-error.js';
import { type DirectoryLock, lockDirectory } from './directory-lock.js';
import { FileDatabase } from './file-database.js';
import { FileSession } from './file-session.js';
import { systemFileSystem } from './file-system.js';
import type { Request } from './protocol.js';
import type { FromWorker, StorageThreadData, ToWorker } from './storage-thread.js';

const { dataDir, signingKeyPem } = workerData as StorageThreadData;

function tell(message: FromWorker): void {
  parentPort?.postMessage(message);
}

function forward(level: keyof Log): (fields: LogFields, message: string) => void {
  return (fields, message) => tell({ type: 'log', level, fields, message });
}

const log: Log = {
  debug: forward('debug'),
  info: forward('info'),
  warn: forward('warn'),
  error: forward('error'),
};

/** Serves the port until it closes, which it also does when the thread at its other end dies. */
function serve(database: FileDatabase, port: MessagePort): void {
  const session = new FileSession(database, (answer) => port.postMessage(answer));
  port.on('message', (request: Request) => session.receive(request));
  port.on('close', () => session.end());
}

async function end(database: FileDatabase, lock: DirectoryLock): Promise<void> {
  await database.close();
  lock.release();
  process.exit(0);
}

async function start(): Promise<void> {
  const environment = { dataDir, fileSystem: systemFileSystem, random: systemRandom };
  const lock = await lockDirectory(environment);
  const database = FileDatabase.open({
    ...environment,
    clock: systemClock,
    log,
    ...(signingKeyPem === undefined ? {} : { linker: linkerOf(signingKeyPem) }),
  });
  parentPort?.on('message', (message: ToWorker) => {
    if (message.type === 'connect') serve(database, message.port);
    else void end(database, lock);
  });
  tell({ type: 'opened', heads: database.sharedHeads });
}

function linkerOf(pem: string): DirectLinker {
  const keyring = parseKeyring(pem);
  const masking = prepareMasking(DEFAULT_MASKING, keyring.derive(MASKING_LABEL));
  return directLinker({ keyring, masking, clock: systemClock, random: systemRandom });
}

start().catch((error: unknown) => {
  const { code, message } =
    error instanceof StoreError
      ? error
      : {
          code: 'store_unavailable' as const,
          message: `The store cannot be opened: ${String(error)}`,
        };
  tell({ type: 'failed', code, message });
});
