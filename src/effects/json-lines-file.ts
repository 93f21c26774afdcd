/**
 * A file to which lines of JSON are appended, each batch durable before it counts. Whatever a crash
 * left is mended when the file is opened: a torn last line is cut off, and lines of a batch that
 * are there already are not written again.
 */
import { type FileHandle, open, stat } from 'node:fs/promises';
import { dirname } from 'node:path';

/** A line without its end, and what it is recognised by. */
export interface JsonLine {
  readonly key: string;
  readonly text: string;
}

const FILE_MODE = 0o600;
const LINE_FEED = 0x0a;
/**
 * How far back lines are recognised: several of the largest batches. What a crash left behind is
 * within the last one.
 */
const TAIL_BYTES_MAX = 4 * 1024 * 1024;

interface OpenFile {
  readonly handle: FileHandle;
  readonly device: number;
  readonly inode: number;
  /** Keys of the lines near the end, and of what was written since. */
  keys: Set<string>;
}

/** One writer at a time. What it rejects with is the file system's. */
export class JsonLinesFile {
  private opened: OpenFile | undefined;

  constructor(
    private readonly path: string,
    /** The key of a line that is in the file; undefined for a line that has none. */
    private readonly keyOf: (text: string) => string | undefined,
  ) {}

  /** Resolves when all lines are on the disk. One that is there already is left out. */
  async append(lines: readonly JsonLine[]): Promise<void> {
    try {
      const file = await this.current();
      const fresh = lines.filter(({ key }) => !file.keys.has(key));
      if (fresh.length > 0) {
        await file.handle.appendFile(fresh.map(({ text }) => `${text}\n`).join(''));
      }
      await file.handle.datasync();
      file.keys = new Set(lines.map(({ key }) => key));
    } catch (error) {
      // Whatever was written of it is looked at anew: after a failed sync nothing is believed.
      await this.close();
      throw error;
    }
  }

  /** Idempotent. */
  async close(): Promise<void> {
    const { opened } = this;
    this.opened = undefined;
    await opened?.handle.close().catch(() => undefined);
  }

  /** The file under that name now: one that was renamed or removed is left alone. */
  private async current(): Promise<OpenFile> {
    const { opened } = this;
    if (opened !== undefined) {
      const facts = await stat(this.path).catch(() => undefined);
      if (facts?.ino === opened.inode && facts.dev === opened.device) return opened;
      await this.close();
    }
    this.opened = await this.open();
    return this.opened;
  }

  private async open(): Promise<OpenFile> {
    const handle = await open(this.path, 'a+', FILE_MODE);
    try {
      const { dev: device, ino: inode, size } = await handle.stat();
      if (size === 0) await syncFolder(this.path);
      const keys = await this.mend(handle, size);
      return { handle, device, inode, keys };
    } catch (error) {
      await handle.close().catch(() => undefined);
      throw error;
    }
  }

  /** Cuts off a torn last line; the keys of the whole ones before it. */
  private async mend(handle: FileHandle, size: number): Promise<Set<string>> {
    const from = Math.max(0, size - TAIL_BYTES_MAX);
    const tail = Buffer.alloc(size - from);
    for (let filled = 0; filled < tail.length; ) {
      const { bytesRead } = await handle.read(tail, filled, tail.length - filled, from + filled);
      if (bytesRead === 0) break;
      filled += bytesRead;
    }
    const end = tail.lastIndexOf(LINE_FEED) + 1;
    if (end < tail.length) await handle.truncate(from + end);
    const lines = tail.toString('utf8', 0, end).split('\n');
    // The first one may be cut by where the reading began.
    const whole = from === 0 ? lines : lines.slice(1);
    return new Set(whole.map((line) => this.keyOf(line)).filter((key) => key !== undefined));
  }
}

/** So that the name of a new file is as durable as what is in it. */
async function syncFolder(path: string): Promise<void> {
  const folder = await open(dirname(path), 'r');
  try {
    await folder.sync();
  } finally {
    await folder.close();
  }
}
