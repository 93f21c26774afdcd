/** `halo audit tail | export | sinks | checkpoint | rotate-key | accept-restore | rotate`. */
import { systemClock } from '../../runtime/clock.js';
import { factsText } from '../console.js';
import { UsageError } from '../exit-codes.js';
import { parseDurationMs, parsePath, parseWholeNumber } from '../option-values.js';
import { type Api, ApiError, isRecord, textOf, unexpected } from './api.js';
import { exportAudit, fileSink } from './audit-export.js';
import { SINKS_COMMAND } from './audit-sinks.js';
import { tailAudit } from './audit-tail.js';
import type { CommandSpec, Shown } from './command.js';

/** The server gives so many at once. */
const TAIL_BOUNDS = { min: 1, max: 500 };
const TAIL_DEFAULT = '10';
/** A day: whoever follows for longer does so until they stop it. */
const FOLLOW_BOUNDS = { minMs: 100, maxMs: 24 * 3_600_000 };

const TAIL: CommandSpec = {
  usage: 'tail',
  description: 'the newest records, the newest last; with --json a line each',
  options: [
    { name: 'lines', letter: 'n', value: 'N', help: `at most so many (default ${TAIL_DEFAULT})` },
    { name: 'kind', value: 'KIND', help: 'of this kind only, such as device.revoked' },
    { name: 'follow', letter: 'f', help: 'go on with what is chained from now on' },
    { name: 'for', value: 'DURATION', help: 'end after so long (default: never)' },
  ],
  prepare: ({ given }) => {
    const lines = parseWholeNumber('--lines', given.text('lines') ?? TAIL_DEFAULT, TAIL_BOUNDS);
    const kind = given.text('kind');
    const forText = given.text('for');
    if (forText !== undefined && !given.on('follow')) {
      throw new UsageError('--for goes with --follow');
    }
    const followMs =
      forText === undefined ? Infinity : parseDurationMs('--for', forText, FOLLOW_BOUNDS);
    const request = {
      lines,
      ...(kind === undefined ? {} : { kind }),
      ...(given.on('follow') ? { followMs } : {}),
    };
    return (api, output) => tailAudit(api, request, output, systemClock);
  },
};

const EXPORT: CommandSpec = {
  usage: 'export <FILE|->',
  description: 'the whole chain as JSON lines, for `halo audit verify`: all of it, or no file',
  prepare: ({ words: [path = ''] }) => {
    const checked = path === '-' ? path : parsePath('FILE', path);
    return (api, output) => exportAudit(api, checked, output);
  },
};

const CHECKPOINT: CommandSpec = {
  usage: 'checkpoint [FILE]',
  description: 'state a checkpoint; with FILE keep its record there, for --checkpoint',
  prepare: ({ words: [path] }) => {
    const checked = path === undefined ? undefined : parsePath('FILE', path);
    return async (api) => {
      const shown = await state(api, 'checkpoint', {});
      if (checked !== undefined) await keepRecord(checked, shown.value);
      return shown;
    };
  },
};

const ROTATE_KEY: CommandSpec = {
  usage: 'rotate-key',
  description: 'go on with the next key of the signing key file, once every replica has it',
  options: [
    { name: 'to', value: 'KEY-ID', help: 'the key to go on with, where the file holds several' },
  ],
  prepare: ({ given }) => {
    const to = given.text('to');
    return (api) => state(api, 'rotate-key', to === undefined ? {} : { nextKeyId: to });
  },
};

const ACCEPT_RESTORE: CommandSpec = {
  usage: 'accept-restore',
  description: 'accept that a restore lost published records, and name them in the chain',
  prepare: () => (api) => state(api, 'accept-restore', undefined),
};

const ROTATE: CommandSpec = {
  usage: 'rotate',
  description: 'begin another segment: never needed, and refused, with the reason',
  prepare: () => async (api) => {
    const status = await api.get('/v1/status');
    const isTable = isRecord(status) && status['backend'] === 'postgres';
    throw new ApiError(
      isTable
        ? 'on PostgreSQL the chain is one table: it has no segments to rotate. ' +
            'Keep what `halo audit export` writes instead'
        : 'segments rotate by themselves; every one but the newest is finished and can be archived',
    );
  },
};

/** In the order of the help; `verify` is added where the program is built. */
export const AUDIT_COMMANDS: readonly CommandSpec[] = [
  TAIL,
  EXPORT,
  SINKS_COMMAND,
  CHECKPOINT,
  ROTATE_KEY,
  ACCEPT_RESTORE,
  ROTATE,
];

/** Asks for a statement of the chain about itself, and tells of its record. */
async function state(
  api: Api,
  name: string,
  body: Readonly<Record<string, unknown>> | undefined,
): Promise<Shown> {
  const value = await api.post(`/api/v1/audit/${name}`, body ?? {});
  const { seq, hash, at, record } = isRecord(value) ? value : {};
  if (typeof seq !== 'number' || !isRecord(record)) throw unexpected();
  const data = isRecord(record['data']) ? record['data'] : {};
  const facts: (readonly [string, string])[] = [
    ['record', String(seq)],
    ['hash', textOf(hash) ?? ''],
    ['at', textOf(at) ?? ''],
    ['kind', textOf(record['kind']) ?? ''],
  ];
  const next = textOf(data['next_key_id']);
  if (next !== undefined) facts.push(['from key', String(record['key_id'])], ['to key', next]);
  if ('lost_from' in data) {
    facts.push(['lost', `${String(data['lost_from'])} to ${String(data['lost_to'])}`]);
  }
  return { value, text: factsText(facts) };
}

/** The fields of a checkpoint come in canonical order, so that this is the record as it is. */
async function keepRecord(path: string, value: unknown): Promise<void> {
  const record = isRecord(value) ? value['record'] : undefined;
  const sink = await fileSink(path);
  try {
    await sink.write(Buffer.from(`${JSON.stringify(record)}\n`));
    await sink.keep();
  } catch (error) {
    await sink.drop();
    throw error;
  }
}
