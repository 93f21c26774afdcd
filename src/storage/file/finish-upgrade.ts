/**
 * The last step of an upgrade on files, the counterpart of `halo-server migrate --finish`.
 *
 * A new store writes this binary's newest envelope format at once. An existing one goes on in the
 * format that it names, also under a newer binary: raising it at open would be safe for one
 * process, but whoever has to go back to the older binary after an hour would find records that it
 * cannot read. So it is raised when the operator says that nobody will go back.
 */
import { type Clock, systemClock } from '../../runtime/clock.js';
import { type Log, silentLog } from '../../runtime/log.js';
import { type Random, systemRandom } from '../../runtime/random.js';
import { lockDirectory } from './directory-lock.js';
import { FileDatabase } from './file-database.js';
import { type FileSystem, systemFileSystem } from './file-system.js';

/** The directory; everything else is the system's unless a test says otherwise. */
export interface FinishOptions {
  readonly dataDir: string;
  readonly fileSystem?: FileSystem;
  readonly clock?: Clock;
  readonly random?: Random;
  readonly log?: Log;
}

/**
 * Raises the format that records are written in. The server must be stopped. Rejects with
 * `StoreError`: `directory_held`, `damaged`, `incompatible`, `store_unavailable`.
 */
export async function finishUpgrade(options: FinishOptions): Promise<void> {
  const { fileSystem = systemFileSystem, clock = systemClock, random = systemRandom } = options;
  const { dataDir, log = silentLog } = options;
  const lock = await lockDirectory({ dataDir, fileSystem, random });
  try {
    const database = FileDatabase.open({ dataDir, fileSystem, clock, random, log });
    try {
      await new Promise<void>((resolve, reject) => database.raiseWriteFormat(resolve, reject));
    } finally {
      await database.close();
    }
  } finally {
    lock.release();
  }
}
