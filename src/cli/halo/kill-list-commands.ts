/** `halo kill` and `halo lift`. */
import { type Clock, delay, systemClock } from '../../runtime/clock.js';
import { keepProcessAlive } from '../../runtime/keep-alive.js';
import { factsText } from '../console.js';
import { UsageError } from '../exit-codes.js';
import type { GivenOptions } from '../option-table.js';
import { parseDurationMs } from '../option-values.js';
import { type Api, ApiError, isRecord, textOf, unexpected } from './api.js';
import type { CommandSpec, Shown } from './command.js';
import { type GatewayFacts, gatewaysBehind } from './gateways.js';

/** A kill that ends by itself after more than a year is one that was forgotten. */
const EXPIRES_IN_BOUNDS = { minMs: 1_000, maxMs: 366 * 24 * 3_600_000 };
/** Longer than gateways take to reconnect; after it somebody has to look. */
const WAIT_BOUNDS = { minMs: 100, maxMs: 3_600_000 };
const WAIT_DEFAULT = '30s';
const WAIT_PERIOD_MS = 250;
/**
 * A stream that was opened just before the kill is known on every replica after this: a second
 * until its front thread reports it, another until its replica writes that, and some.
 */
const SETTLE_MS = 2_500;

/** What a kill was asked to be. */
interface KillRequest {
  readonly kind: string;
  readonly id: string;
  readonly reason: string;
  readonly expiresAt?: string;
  /** Wait until every connected gateway has acknowledged, at most so long. */
  readonly waitMs?: number;
}

const KILL: CommandSpec = {
  usage: 'kill <kind> <id>',
  description: 'refuse something everywhere: a device, user, agent, model, …',
  options: [
    { name: 'reason', value: 'TEXT', help: 'why; everyone who sees the kill reads it (required)' },
    { name: 'expires-in', value: 'DURATION', help: 'lift it by itself after so long, such as 1h' },
    {
      name: 'expires-at',
      value: 'TIME',
      help: 'lift it by itself then, such as 2026-01-31T12:00Z',
    },
    {
      name: 'wait',
      help: 'until every connected gateway has acknowledged; names those that have not',
    },
    { name: 'timeout', value: 'DURATION', help: `of --wait (default ${WAIT_DEFAULT})` },
  ],
  prepare: ({ words: [kind = '', id = ''], given }) => {
    const reason = given.text('reason');
    if (reason === undefined) throw new UsageError('say why with --reason');
    const expiresAt = expiryOf(given);
    const timeout = given.text('timeout');
    if (timeout !== undefined && !given.on('wait'))
      throw new UsageError('--timeout goes with --wait');
    const request: KillRequest = {
      kind,
      id,
      reason,
      ...(expiresAt === undefined ? {} : { expiresAt }),
      ...(given.on('wait')
        ? { waitMs: parseDurationMs('--timeout', timeout ?? WAIT_DEFAULT, WAIT_BOUNDS) }
        : {}),
    };
    return (api) => kill(api, request, systemClock);
  },
};

const LIFT: CommandSpec = {
  usage: 'lift <kind> <id>',
  description: 'end a kill; lifting what is not killed changes nothing',
  prepare:
    ({ words: [kind = '', id = ''] }) =>
    async (api) => {
      const value = await api.delete(pathOf(kind, id));
      return { value, text: factsText([['version', String(placeOf(value).version)]]) };
    },
};

/** In the order of the help. */
export const KILL_LIST_COMMANDS: readonly CommandSpec[] = [KILL, LIFT];

function expiryOf(given: GivenOptions<string>): string | undefined {
  const after = given.text('expires-in');
  const at = given.text('expires-at');
  if (after !== undefined && at !== undefined) {
    throw new UsageError('give --expires-in or --expires-at, not both');
  }
  if (after !== undefined) {
    const afterMs = parseDurationMs('--expires-in', after, EXPIRES_IN_BOUNDS);
    return new Date(systemClock.wallMs() + afterMs).toISOString();
  }
  if (at === undefined) return undefined;
  // Without its offset a time would be this machine's, which is not what the reader expects.
  if (!/^\d{4}-\d\d-\d\d[Tt].*([Zz]|[+-]\d\d:\d\d)$/.test(at) || Number.isNaN(Date.parse(at))) {
    throw new UsageError('--expires-at takes a time with its offset, such as 2026-01-31T12:00:00Z');
  }
  return new Date(Date.parse(at)).toISOString();
}

async function kill(api: Api, request: KillRequest, clock: Clock): Promise<Shown> {
  const { kind, id, reason, expiresAt, waitMs } = request;
  const body = expiresAt === undefined ? { reason } : { reason, expiresAt };
  const value = await api.put(pathOf(kind, id), body);
  const place = placeOf(value);
  const entry = isRecord(value) && isRecord(value['entry']) ? value['entry'] : {};
  const facts: (readonly [string, string])[] = [
    ['killed', `${textOf(entry['kind']) ?? kind} ${textOf(entry['id']) ?? id}`],
    ['reason', textOf(entry['reason']) ?? ''],
    ['by', textOf(entry['by']) ?? ''],
    ['expires', textOf(entry['expiresAt']) ?? 'never'],
    ['version', String(place.version)],
  ];
  if (waitMs === undefined) return { value, text: factsText(facts) };
  const laggards = await laggardsAfter(api, place, waitMs, clock);
  const named = laggards.map(({ name, gateway, ackVersion }) => {
    return `${name} (${gateway}) is at version ${ackVersion}`;
  });
  const outcome = named.length === 0 ? 'by every connected gateway' : `not by ${named.join(', ')}`;
  return {
    value: { ...(value as object), laggards },
    text: factsText([...facts, ['known', outcome]]),
    hasFailed: laggards.length > 0,
  };
}

interface Place {
  readonly epoch: string;
  readonly version: number;
}

/** Those that have not acknowledged in time; none as soon as every connected gateway has. */
async function laggardsAfter(
  api: Api,
  { epoch, version }: Place,
  waitMs: number,
  clock: Clock,
): Promise<readonly GatewayFacts[]> {
  const startMs = clock.monotonicMs();
  const letGo = keepProcessAlive();
  try {
    for (;;) {
      const list = await gatewaysBehind(api);
      if (list.epoch !== epoch) {
        throw new ApiError('the history of the store changed: kill again to be sure');
      }
      // Others may have killed since: who knows this kill need not know theirs.
      const laggards = list.items.filter(({ ackVersion }) => ackVersion < version);
      const waitedMs = clock.monotonicMs() - startMs;
      if (waitedMs >= waitMs || (laggards.length === 0 && waitedMs >= SETTLE_MS)) return laggards;
      await delay(clock, WAIT_PERIOD_MS);
    }
  } finally {
    letGo();
  }
}

function placeOf(value: unknown): Place {
  const { epoch, version } = isRecord(value) ? value : {};
  if (typeof epoch !== 'string' || typeof version !== 'number') throw unexpected();
  return { epoch, version };
}

function pathOf(kind: string, id: string): string {
  return `/api/v1/kill-list/${encodeURIComponent(kind)}/${encodeURIComponent(id)}`;
}
