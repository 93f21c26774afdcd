/**
 * The system calls that the file backend makes, injected so that a test can refuse or cut short
 * each of them in turn, or end the process at it. All but `syncLater` block: the storage thread has
 * nothing else to do, and what it answers rests on their order.
 */
import {
  closeSync,
  fdatasync,
  fdatasyncSync,
  fstatSync,
  fsyncSync,
  ftruncateSync,
  linkSync,
  mkdirSync,
  openSync,
  readdirSync,
  readSync,
  renameSync,
  statSync,
  unlinkSync,
  writeSync,
} from 'node:fs';

/** What the backend asks of the system; every call throws what the system call says. */
export interface FileSystem {
  /** Makes the directory and its parents if missing, for its owner only. */
  makeDirectory(path: string): void;
  /** The names in a directory. */
  list(path: string): string[];
  openToRead(path: string): number;
  /** An existing file, to read and to write at positions. */
  openToWrite(path: string): number;
  /** A new, empty file, for its owner only; an existing one of that name is emptied. */
  create(path: string): number;
  sizeBytes(descriptor: number): number;
  /** Whether whoever opens the path gets that file: it was not removed, moved or covered. */
  isAt(descriptor: number, path: string): boolean;
  /** How many bytes were read; 0 at the end of the file. */
  read(descriptor: number, into: Uint8Array, offset: number, position: number): number;
  /** How many bytes were written, which may be fewer than asked. */
  write(descriptor: number, bytes: Uint8Array, position: number): number;
  truncate(descriptor: number, lengthBytes: number): void;
  /** Returns when the file's content and length are on the disk. */
  sync(descriptor: number): void;
  /** As `sync`, without blocking the thread: for files that nothing waits for. */
  syncLater(descriptor: number): Promise<void>;
  /** Returns when the names in the directory are on the disk. */
  syncDirectory(path: string): void;
  rename(from: string, to: string): void;
  /** A second name for a file; fails when the name is taken, and is atomic. */
  link(from: string, to: string): void;
  unlink(path: string): void;
  close(descriptor: number): void;
}

/** Nobody but the owner reads or writes: the files hold hashes of credentials. */
const FILE_MODE = 0o600;
const DIRECTORY_MODE = 0o700;

export const systemFileSystem: FileSystem = {
  makeDirectory: (path) => void mkdirSync(path, { recursive: true, mode: DIRECTORY_MODE }),
  list: (path) => readdirSync(path),
  openToRead: (path) => openSync(path, 'r'),
  openToWrite: (path) => openSync(path, 'r+'),
  create: (path) => openSync(path, 'w+', FILE_MODE),
  sizeBytes: (descriptor) => fstatSync(descriptor).size,
  isAt: (descriptor, path) => {
    const named = statSync(path, { throwIfNoEntry: false });
    const { dev, ino } = fstatSync(descriptor);
    return named !== undefined && named.ino === ino && named.dev === dev;
  },
  read: (descriptor, into, offset, position) =>
    readSync(descriptor, into, offset, into.byteLength - offset, position),
  write: (descriptor, bytes, position) =>
    writeSync(descriptor, bytes, 0, bytes.byteLength, position),
  truncate: (descriptor, lengthBytes) => ftruncateSync(descriptor, lengthBytes),
  sync: (descriptor) => fdatasyncSync(descriptor),
  syncLater: (descriptor) =>
    new Promise((resolve, reject) => {
      fdatasync(descriptor, (error) => (error ? reject(error) : resolve()));
    }),
  syncDirectory: (path) => {
    const descriptor = openSync(path, 'r');
    try {
      fsyncSync(descriptor);
    } finally {
      closeSync(descriptor);
    }
  },
  rename: (from, to) => renameSync(from, to),
  link: (from, to) => linkSync(from, to),
  unlink: (path) => unlinkSync(path),
  close: (descriptor) => closeSync(descriptor),
};

/** Writes all of the bytes or throws; a device that takes nothing more is full. */
export function writeAll(
  fileSystem: FileSystem,
  descriptor: number,
  bytes: Uint8Array,
  position: number,
): void {
  let written = 0;
  while (written < bytes.byteLength) {
    const more = fileSystem.write(descriptor, bytes.subarray(written), position + written);
    if (more <= 0) throw new Error('A write of the store took no bytes.');
    written += more;
  }
}
