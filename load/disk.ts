/** How long the disk below a directory takes to make an append durable: what every commit waits. */
import { closeSync, fdatasyncSync, openSync, rmSync, writeSync } from 'node:fs';
import { join } from 'node:path';

/** Enough for a p99 that two outliers decide, in a second on a slow disk. */
const APPENDS = 200;
/** A page, as of a small group commit. */
const APPEND_BYTES = 4 * 1024;

/** Times of an append of 4 KiB and an fdatasync. */
export interface FsyncTimes {
  readonly p50Ms: number;
  readonly p99Ms: number;
}

/** Appends to a file of its own in the directory, which is removed afterwards. */
export function fsyncTimes(directory: string): FsyncTimes {
  const file = join(directory, 'halos-load-fsync');
  const page = Buffer.alloc(APPEND_BYTES, 1);
  const handle = openSync(file, 'ax', 0o600);
  const tookMs: number[] = [];
  try {
    for (let append = 0; append < APPENDS; append += 1) {
      const startedAt = process.hrtime.bigint();
      writeSync(handle, page);
      fdatasyncSync(handle);
      tookMs.push(Number(process.hrtime.bigint() - startedAt) / 1e6);
    }
  } finally {
    closeSync(handle);
    rmSync(file);
  }
  tookMs.sort((left, right) => left - right);
  const at = (percent: number): number =>
    tookMs[Math.ceil((APPENDS * percent) / 100) - 1] ?? Number.NaN;
  return { p50Ms: at(50), p99Ms: at(99) };
}
