/**
 * Exclusive use of a data directory, held by a listening Unix socket in it: the kernel closes the
 * socket with its process, however that ends, and process ids, network namespaces and clocks play
 * no part. Why this and not a lock file: docs/decisions/0001-exclusive-data-directory.md.
 *
 * The sockets are numbered, `lock-<n>.sock`, and the highest number decides: whoever listens there
 * holds the directory. Who finds nobody listening there listens under a name of its own and links
 * that to the next number, which succeeds for one process only and makes the name appear with its
 * listener. The highest number is never removed, not even by its owner, so that it never goes down
 * and a process that was slow cannot take a number that was taken before.
 *
 * Not for a directory that several hosts share: a socket is known to its own kernel only.
 */
import { once } from 'node:events';
import { closeSync, existsSync, openSync } from 'node:fs';
import { connect, createServer, type Server } from 'node:net';
import { join } from 'node:path';
import type { Random } from '../../runtime/random.js';
import { StoreError } from '../store-error.js';
import type { FileSystem } from './file-system.js';

/** A held directory. It is free when the process ends, or earlier through `release`. */
export interface DirectoryLock {
  /** Frees the directory; idempotent. The socket's name stays. */
  release(): void;
}

/** What holding a directory needs; `random` makes the temporary names. */
export interface DirectoryLockOptions {
  readonly dataDir: string;
  readonly fileSystem: FileSystem;
  readonly random: Random;
}

/** Each lost attempt means that another process won one: a crowd that starts at once is smaller. */
const ATTEMPTS_MAX = 100;
const LOCK_NAME = /^lock-(\d+)\.sock$/;
const TEMPORARY_NAME = /^lock-[0-9a-f]{16}\.tmp\.sock$/;
const TEMPORARY_BYTES = 8;
/** What `sun_path` of unix(7) holds beside its final NUL. */
const SOCKET_PATH_BYTES_MAX = 107;
/** Of a temporary name, the longest. */
const LOCK_NAME_BYTES_MAX = 'lock-.tmp.sock'.length + 2 * TEMPORARY_BYTES;

/** Rejects with `directory_held`, or `store_unavailable` when the directory takes no sockets. */
export async function lockDirectory(options: DirectoryLockOptions): Promise<DirectoryLock> {
  const { dataDir, fileSystem } = options;
  fileSystem.makeDirectory(dataDir);
  const directory = new LockedDirectory(options);
  try {
    for (let attempt = 1; attempt <= ATTEMPTS_MAX; attempt += 1) {
      const highest = directory.highest();
      if (highest > 0 && (await directory.isHeld(highest))) throw heldError(dataDir);
      const server = await directory.claim(highest + 1);
      if (server !== undefined) return directory.hold(server, highest + 1);
    }
    throw heldError(dataDir);
  } catch (error) {
    directory.close();
    throw error;
  }
}

class LockedDirectory {
  private readonly descriptor: number;
  /** A path to the directory that leaves room for a name in the 107 bytes of a socket's address. */
  private readonly shortPath: string;
  private closed = false;

  constructor(private readonly options: DirectoryLockOptions) {
    this.descriptor = openSync(options.dataDir, 'r');
    const short = `/proc/self/fd/${this.descriptor}`;
    this.shortPath = existsSync(short) ? short : options.dataDir;
    const longest = Buffer.byteLength(this.shortPath) + 1 + LOCK_NAME_BYTES_MAX;
    if (longest > SOCKET_PATH_BYTES_MAX) {
      this.close();
      // A longer path is cut without a word, and the socket made somewhere else.
      throw socketsRefused(options.dataDir, new Error('The path is too long for a socket.'));
    }
  }

  /** The highest number there is; 0 when there is none. */
  highest(): number {
    const names = this.options.fileSystem.list(this.options.dataDir);
    return Math.max(0, ...names.map((name) => Number(LOCK_NAME.exec(name)?.[1] ?? 0)));
  }

  /** False only when the kernel says that nobody listens. */
  isHeld(number: number): Promise<boolean> {
    return new Promise((resolve) => {
      const socket = connect({ path: this.address(lockName(number)) });
      const done = (held: boolean): void => {
        socket.destroy();
        resolve(held);
      };
      socket.once('connect', () => done(true));
      socket.once('error', (error: NodeJS.ErrnoException) => {
        done(error.code !== 'ECONNREFUSED' && error.code !== 'ENOENT');
      });
    });
  }

  /** A server that listens under the number; undefined when another process took it first. */
  async claim(number: number): Promise<Server | undefined> {
    const { dataDir, fileSystem, random } = this.options;
    const name = `lock-${Buffer.from(random.bytes(TEMPORARY_BYTES)).toString('hex')}.tmp.sock`;
    const server = await this.listen(name);
    const own = join(dataDir, lockName(number));
    try {
      fileSystem.link(join(dataDir, name), own);
    } catch (error) {
      server.close();
      if (isCode(error, 'EEXIST', 'ENOENT')) return undefined;
      throw socketsRefused(dataDir, error);
    }
    this.remove(name);
    if (this.highest() === number) return server;
    // The number was free only because its holder, long gone, was cleared away by a later one.
    this.remove(lockName(number));
    server.close();
    return undefined;
  }

  /** Clears away what earlier holders and crashed starters left. */
  hold(server: Server, number: number): DirectoryLock {
    for (const name of this.options.fileSystem.list(this.options.dataDir)) {
      const other = Number(LOCK_NAME.exec(name)?.[1] ?? number);
      if (other < number || TEMPORARY_NAME.test(name)) this.remove(name);
    }
    server.unref();
    return {
      release: () => {
        server.close();
        this.close();
      },
    };
  }

  close(): void {
    if (this.closed) return;
    this.closed = true;
    closeSync(this.descriptor);
  }

  private async listen(name: string): Promise<Server> {
    const server = createServer((socket) => socket.destroy());
    server.listen({ path: this.address(name) });
    try {
      await once(server, 'listening');
    } catch (error) {
      throw socketsRefused(this.options.dataDir, error);
    }
    return server;
  }

  private address(name: string): string {
    return `${this.shortPath}/${name}`;
  }

  private remove(name: string): void {
    try {
      this.options.fileSystem.unlink(join(this.options.dataDir, name));
    } catch (error) {
      if (!isCode(error, 'ENOENT')) throw error;
    }
  }
}

function lockName(number: number): string {
  return `lock-${number}.sock`;
}

function isCode(error: unknown, ...codes: string[]): boolean {
  return codes.includes((error as NodeJS.ErrnoException).code ?? '');
}

function heldError(dataDir: string): StoreError {
  return new StoreError('directory_held', `Another process uses the data directory ${dataDir}.`);
}

function socketsRefused(dataDir: string, cause: unknown): StoreError {
  return new StoreError(
    'store_unavailable',
    `The data directory ${dataDir} does not take Unix sockets and hard links, by ` +
      'which it is held; use a file system that does.',
    { cause },
  );
}
