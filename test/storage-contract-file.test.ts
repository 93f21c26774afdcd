import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { systemClock } from '../src/runtime/clock.js';
import type { DirectLinker } from '../src/storage/chain-linker.js';
import { FileStore } from '../src/storage/file/file-store.js';
import { LOG_BYTES_MIN } from '../src/storage/file/generations.js';
import { startStorageThread } from '../src/storage/file/storage-thread.js';
import { CONTRACT_PEM, contractEvidence } from './fixtures/contract-evidence.js';
import { openInProcess } from './fixtures/file-store-in-process.js';
import { registerStorageContract } from './storage-contract.js';

function freshDirectory(): string {
  return mkdtempSync(join(tmpdir(), 'halos-file-'));
}

/** The log is replaced and a snapshot written about every ten commits. */
const SMALL_LOG_BYTES = 1_000;
const linker = contractEvidence.store.linker as DirectLinker;

for (const logBytesMin of [LOG_BYTES_MIN, SMALL_LOG_BYTES]) {
  registerStorageContract({
    name: logBytesMin === LOG_BYTES_MIN ? 'file' : 'file, always writing a snapshot',
    open: async () => {
      const dataDir = freshDirectory();
      const opened = openInProcess(dataDir, { logBytesMin, linker });
      return {
        store: opened.connect(),
        another: async () => opened.connect(),
        leases: opened.leases,
        advance: opened.advance,
        close: async () => {
          await opened.close();
          rmSync(dataDir, { recursive: true });
        },
      };
    },
  });
}

registerStorageContract({
  name: 'file, storage thread',
  open: async () => {
    const dataDir = freshDirectory();
    const thread = await startStorageThread({ dataDir, signingKeyPem: CONTRACT_PEM });
    const stores: FileStore[] = [];
    const another = async (): Promise<FileStore> => {
      const store = new FileStore(thread.connect(), systemClock);
      stores.push(store);
      return store;
    };
    return {
      store: await another(),
      another,
      leases: () => thread.leases,
      close: async () => {
        await Promise.all(stores.map((store) => store.close()));
        await thread.close();
        rmSync(dataDir, { recursive: true });
      },
    };
  },
});
