/** `halo audit export`: the whole chain in a file, or no file. */
import { open, rename, unlink } from 'node:fs/promises';
import { basename, dirname, join } from 'node:path';
import { StringDecoder } from 'node:string_decoder';
import { KIND_CHECKPOINT, RECORD_BYTES_MAX } from '../../evidence/format.js';
import { factsText } from '../console.js';
import { numberText, ProgressLine } from '../progress-line.js';
import { type Api, ApiError, isRecord } from './api.js';
import type { Output, Shown } from './command.js';

/** What stands for the standard output. */
const STANDARD_OUTPUT = '-';
const LINE_END = 0x0a;

/** Where the lines go. */
interface Sink {
  write(bytes: Buffer): Promise<void>;
  /** It is whole. */
  keep(): Promise<void>;
  /** It is not, and nobody may take it for the chain. */
  drop(): Promise<void>;
}

/** Reads the chain into `path`; resolves only when it is whole and ends in a checkpoint. */
export async function exportAudit(
  api: Api,
  path: string,
  output: Output,
): Promise<Shown | undefined> {
  const head = await headSeq(api);
  const isFile = path !== STANDARD_OUTPUT;
  const sink = isFile ? await fileSink(path) : standardSink(output);
  const bar = output.isTerminal && !output.isJson ? new ProgressLine(output) : undefined;
  const lines = new LineCount();
  try {
    for await (const piece of api.stream('/api/v1/audit/export')) {
      lines.take(piece);
      await sink.write(piece);
      bar?.show({ records: lines.count, done: lines.count / (head + 1) });
    }
    lines.checkWhole();
    await sink.keep();
  } catch (error) {
    await sink.drop();
    throw error;
  } finally {
    bar?.clear();
  }
  if (!isFile) return undefined;
  const { count, hash } = lines;
  const facts = { file: path, records: count, head: { seq: count - 1, hash } };
  const text = factsText([
    ['file', path],
    ['records', numberText(count)],
    ['checkpoint', `${count - 1} ${hash}`],
  ]);
  return { value: facts, text };
}

/** For the progress only: more may be chained by the time that the export begins. */
async function headSeq(api: Api): Promise<number> {
  const value = await api.get('/api/v1/audit?tail=1');
  const head = isRecord(value) ? value['head'] : undefined;
  return isRecord(head) && typeof head['seq'] === 'number' ? head['seq'] : 0;
}

/** Counts lines and keeps the last of them, however long the chain. */
class LineCount {
  count = 0;
  hash = '';
  private last: Buffer = Buffer.alloc(0);

  take(piece: Buffer): void {
    let start = 0;
    for (let end = piece.indexOf(LINE_END); end !== -1; end = piece.indexOf(LINE_END, start)) {
      this.count += 1;
      start = end + 1;
    }
    this.last = lastLine(Buffer.concat([this.last, piece]));
  }

  /** Throws `ApiError` when what came is cut, or is no export. */
  checkWhole(): void {
    const { kind, seq, hash } = parsed(this.last);
    const isCheckpoint = kind === KIND_CHECKPOINT && this.last.at(-1) === LINE_END;
    if (!isCheckpoint || seq !== this.count - 1 || typeof hash !== 'string') {
      const message = 'the export does not end in its checkpoint: it was cut off';
      throw new ApiError(message, { retryable: true });
    }
    this.hash = hash;
  }
}

/** The last line with its end, or what has come of it; no record is longer than this keeps. */
function lastLine(bytes: Buffer): Buffer {
  const before = bytes.lastIndexOf(LINE_END, bytes.length - 2);
  return Buffer.from(bytes.subarray(before + 1)).subarray(-RECORD_BYTES_MAX - 1);
}

function parsed(line: Buffer): Readonly<Record<string, unknown>> {
  try {
    const value: unknown = JSON.parse(line.toString('utf8'));
    return isRecord(value) ? value : {};
  } catch {
    return {};
  }
}

/** Gets its name when it is whole and on the disk: readable by its owner only, as evidence is. */
export async function fileSink(path: string): Promise<Sink> {
  const draft = join(dirname(path), `.${basename(path)}.${process.pid}.part`);
  const file = await open(draft, 'w', 0o600).catch((error: NodeJS.ErrnoException) => {
    throw new ApiError(`cannot write ${path} (${error.code ?? 'unknown'})`);
  });
  return {
    write: async (bytes) => {
      await file.writeFile(bytes);
    },
    keep: async () => {
      await file.sync();
      await file.close();
      await rename(draft, path);
    },
    drop: async () => {
      await file.close().catch(() => undefined);
      await unlink(draft).catch(() => undefined);
    },
  };
}

function standardSink(output: Output): Sink {
  const decoder = new StringDecoder('utf8');
  const nothing = (): Promise<void> => Promise.resolve();
  return { write: (bytes) => output.write(decoder.write(bytes)), keep: nothing, drop: nothing };
}
