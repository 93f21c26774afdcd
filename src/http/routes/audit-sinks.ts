/** Where the chain is forwarded to, and how far: for auditors. */
import { array, enums, nullable } from 'superstruct';
import type { SinkFailure, SinkStatus } from '../../actors/audit-export/messages.js';
import { askingProblems, defineRoute, type Route } from '../route.js';
import { fields, integerBetween, integerOrNull, name, time, timeText } from '../schema.js';

const whole = (minimum: number, description: string): ReturnType<typeof integerBetween> =>
  integerBetween(minimum, Number.MAX_SAFE_INTEGER, description);

const sinkShape = fields({
  name: name('What the sink is called.'),
  type: enums(['file', 'webhook']),
  leader: nullable(name('Who forwards to it: a holder’s id, which begins with its replica’s.')),
  cursor: whole(-1, 'The newest record that it has; -1: none yet.'),
  head: whole(-1, 'The newest record of the chain; -1: none yet.'),
  lagRecords: whole(0, 'How many it lacks.'),
  lagSeconds: integerOrNull(0, 'Age of the oldest that it lacks; null: that cannot be read.'),
  lastDeliveredAt: nullable(time('When it last took records.')),
  lastError: nullable(
    fields({
      code: name('What went wrong at the last attempt.'),
      message: name('The same for people.'),
      at: time('When.'),
      attempts: whole(1, 'Attempts that failed one after another.'),
    }),
  ),
  restored: nullable(
    fields({
      at: time('When the chain was found to be another than the one that the sink has.'),
      resumedAfterSeq: whole(-1, 'It got everything after this number again.'),
    }),
  ),
});

const listSinks = defineRoute({
  operationId: 'listAuditSinks',
  summary: 'Where the chain is forwarded to, and how far',
  method: 'GET',
  path: '/api/v1/audit/sinks',
  access: 'auditor',
  answers: [
    {
      status: 200,
      description: 'The sinks that this replica is configured with.',
      body: fields({ items: array(sinkShape) }),
    },
  ],
  problems: askingProblems('read'),
  caching: 'no-store',
  handle: async (_call, { auditExport }) => {
    const sinks = await auditExport.sinks();
    return { status: 200, body: { items: sinks.map(sinkView) } };
  },
});

function sinkView({ lastDeliveredAtMs, lastError, restored, ...rest }: SinkStatus): object {
  return {
    ...rest,
    lastDeliveredAt: lastDeliveredAtMs === null ? null : timeText(lastDeliveredAtMs),
    lastError: lastError === null ? null : errorView(lastError),
    restored:
      restored === null
        ? null
        : { at: timeText(restored.atMs), resumedAfterSeq: restored.resumedAfterSeq },
  };
}

function errorView({ code, message, atMs, attempts }: SinkFailure): object {
  return { code, message, at: timeText(atMs), attempts };
}

export const auditSinkRoutes: readonly Route[] = [listSinks];
