/**
 * The file behind `--audit-sinks-file`: where the evidence chain is forwarded to. YAML, and so JSON
 * too. Read at start; what is wrong is said with its line, and no value is repeated.
 */
import { dirname, resolve } from 'node:path';
import { array, define, dynamic, type Failure, optional, type Struct, validate } from 'superstruct';
import { type Document, isNode, LineCounter, parseDocument, visit } from 'yaml';
import {
  BATCH_RECORDS_DEFAULT,
  BATCH_RECORDS_MAX,
  FILE_SINKS_MAX,
  SECRET_LENGTH_MIN,
  SINK_NAME,
  SINKS_MAX,
  type SinkSettings,
} from '../actors/audit-export/sink-settings.js';
import { fields, integerBetween, opaque, textLike, UNKNOWN_FIELD } from '../http/schema.js';
import { CodedError } from '../runtime/failure.js';
import type { Log } from '../runtime/log.js';
import { hasCode, othersCanRead, readText } from './private-file.js';

/** Longer paths and addresses are mistakes. */
const TEXT_LENGTH_MAX = 4_096;
const VISIBLE_ASCII = /^[\x21-\x7e]+$/;

const text = (description: string): ReturnType<typeof opaque> =>
  opaque(TEXT_LENGTH_MAX, description);
const ofEverySink = {
  name: textLike(SINK_NAME, '1 to 63 lower-case letters, digits and hyphens', 'What it is called.'),
  type: textLike(/^(file|webhook)$/, 'file or webhook', 'What it is.'),
  batchMax: optional(integerBetween(1, BATCH_RECORDS_MAX, 'Records in one batch.')),
};
const fileSink = fields({ ...ofEverySink, path: text('Where the lines are appended.') });
const webhookSink = fields({
  ...ofEverySink,
  url: text('Where batches are posted.'),
  secretFile: text('What they are signed with.'),
  previousSecretFile: optional(text('What they are signed with too.')),
  allowPrivate: optional(
    define<boolean>('flag', (value) => typeof value === 'boolean' || { message: 'true or false' }),
  ),
});
const sinksFile = fields({
  sinks: array(
    dynamic((value) => {
      const isFile = (value as { type?: unknown } | null)?.type === 'file';
      return (isFile ? fileSink : webhookSink) as unknown as Struct<unknown, null>;
    }),
  ),
});

interface WrittenSink {
  readonly name: string;
  readonly type: 'file' | 'webhook';
  readonly batchMax?: number;
  readonly path?: string;
  readonly url?: string;
  readonly secretFile?: string;
  readonly previousSecretFile?: string;
  readonly allowPrivate?: boolean;
}

/**
 * The sinks, with their secrets. Paths are relative to the file's folder. Throws `CodedError`
 * `audit_sinks_invalid`; warns of secrets that others on the machine can read.
 */
export async function readAuditSinks(path: string, log: Log): Promise<readonly SinkSettings[]> {
  const content = await readText(path).catch((error: unknown) => {
    throw invalid(path, hasCode(error, 'ENOENT') ? 'there is no such file' : 'it cannot be read');
  });
  const written = parseAuditSinks(content, path);
  return Promise.all(
    written.map((sink, index) => settingsOf(sink, `sink ${index + 1}`, { path, log })),
  );
}

/** Throws as `readAuditSinks`; `path` is only named. */
function parseAuditSinks(content: string, path: string): readonly WrittenSink[] {
  const lines = new LineCounter();
  const document = parseDocument(content, { lineCounter: lines, prettyErrors: false });
  const lineAt = (offset: number): string => `line ${Math.max(1, lines.linePos(offset).line)}`;
  const [error] = document.errors;
  if (error !== undefined) throw invalid(path, `${lineAt(error.pos[0])} is not YAML`);
  visit(document, {
    Alias: (_key, { range }) => {
      throw invalid(path, `${lineAt(range?.[0] ?? 0)}: write it out, without an alias`);
    },
  });
  const [wrong] = validate(document.toJS(), sinksFile);
  const failure = wrong?.failures().find(({ message }) => message !== undefined);
  if (failure !== undefined) {
    const where = lineAt(offsetOf(document, failure.path as readonly (string | number)[]));
    throw invalid(path, `${where}: ${complaint(failure)}`);
  }
  const { sinks } = document.toJS() as { sinks: readonly WrittenSink[] };
  if (sinks.length > SINKS_MAX) throw invalid(path, `it has more than ${SINKS_MAX} sinks`);
  const files = sinks.filter(({ type }) => type === 'file').length;
  if (files > FILE_SINKS_MAX) throw invalid(path, `it has more than ${FILE_SINKS_MAX} files`);
  const names = new Set<string>();
  for (const [index, { name, type, url, allowPrivate = false }] of sinks.entries()) {
    const at = (field: string): string => lineAt(offsetOf(document, ['sinks', index, field]));
    if (names.has(name)) throw invalid(path, `${at('name')}: another sink has that name`);
    names.add(name);
    if (type === 'webhook' && !isAddress(url, allowPrivate)) {
      throw invalid(path, `${at('url')}: url must be ${addressExpected(allowPrivate)}`);
    }
  }
  return sinks;
}

/** Of the value at that path, or of the nearest thing around it that is there. */
function offsetOf(document: Document, path: readonly (string | number)[]): number {
  for (let length = path.length; length >= 0; length -= 1) {
    const node: unknown = document.getIn(path.slice(0, length), true);
    if (isNode(node) && node.range) return node.range[0];
  }
  return 0;
}

function complaint({ path, type, value, message }: Failure): string {
  const last = path.at(-1);
  const field = typeof last === 'string' ? last : 'a sink';
  if (type === UNKNOWN_FIELD) return 'there is no such field here';
  const expected = type === 'array' ? 'a list' : message;
  if (path.length === 0) return 'it must be a map with a list of sinks';
  return value === undefined ? `${field} is missing` : `${field} must be ${expected}`;
}

function isAddress(url: string | undefined, allowPrivate: boolean): boolean {
  if (url === undefined || !URL.canParse(url)) return false;
  const { protocol, username, password, hash } = new URL(url);
  if (username !== '' || password !== '' || hash !== '') return false;
  return protocol === 'https:' || (allowPrivate && protocol === 'http:');
}

function addressExpected(allowPrivate: boolean): string {
  const scheme = allowPrivate ? 'an http or https address' : 'an https address';
  return `${scheme} without user, password and fragment`;
}

interface Place {
  readonly path: string;
  readonly log: Log;
}

async function settingsOf(sink: WrittenSink, which: string, place: Place): Promise<SinkSettings> {
  const { name, batchMax = BATCH_RECORDS_DEFAULT } = sink;
  const folder = dirname(place.path);
  if (sink.type === 'file') {
    return { type: 'file', name, batchMax, path: resolve(folder, sink.path ?? '') };
  }
  const secret = (file: string): Promise<string> =>
    readSecret(resolve(folder, file), `the secret of ${which}`, place);
  const { url = '', secretFile = '', previousSecretFile, allowPrivate = false } = sink;
  return {
    type: 'webhook',
    name,
    batchMax,
    url,
    secret: await secret(secretFile),
    previousSecret: previousSecretFile === undefined ? null : await secret(previousSecretFile),
    allowPrivate,
  };
}

async function readSecret(file: string, what: string, { path, log }: Place): Promise<string> {
  const content = await readText(file).catch((error: unknown) => {
    const why = hasCode(error, 'ENOENT') ? 'is not there' : 'cannot be read';
    throw invalid(path, `${what} ${why}: ${file}`);
  });
  const secret = content.trim();
  if (secret.length < SECRET_LENGTH_MIN || !VISIBLE_ASCII.test(secret)) {
    const expected = `${SECRET_LENGTH_MIN} or more visible ASCII characters and nothing else`;
    throw invalid(path, `${what} must be ${expected}: ${file}`);
  }
  if (await othersCanRead(file)) log.warn({ file }, 'Others can read the secret of a sink.');
  return secret;
}

function invalid(path: string, why: string): CodedError {
  return new CodedError('audit_sinks_invalid', `${path} cannot be used: ${why}`);
}
