/** Whether and how the replica is: for probes, operators and tools. */
import { array, enums, type as open, optional, record, string, unknown } from 'superstruct';
import { HttpProblem } from '../problem-details.js';
import { askingProblems, defineRoute, type Route } from '../route.js';
import { fields, name } from '../schema.js';

const healthz = defineRoute({
  operationId: 'health',
  summary: 'Whether the process is alive; never asks the store',
  method: 'GET',
  path: '/healthz',
  access: 'none',
  answers: [{ status: 200, description: 'Alive.', body: fields({ status: enums(['ok']) }) }],
  problems: [],
  caching: 'no-store',
  handle: () => ({ status: 200, body: { status: 'ok' } }),
});

const readyz = defineRoute({
  operationId: 'readiness',
  summary: 'Whether this replica should get traffic',
  method: 'GET',
  path: '/readyz',
  access: 'none',
  answers: [{ status: 200, description: 'Ready.', body: fields({ status: enums(['ready']) }) }],
  problems: ['not_ready'],
  caching: 'no-store',
  handle: (_call, { readiness }) => {
    const { ready, reasons } = readiness();
    if (!ready) throw new HttpProblem('not_ready', { reasons });
    return { status: 200, body: { status: 'ready' } };
  },
});

const openApi = defineRoute({
  operationId: 'openApi',
  summary: 'This interface as OpenAPI 3.1',
  method: 'GET',
  path: '/openapi.json',
  access: 'none',
  answers: [{ status: 200, description: 'The document.', body: record(string(), unknown()) }],
  problems: [],
  caching: 'entity-tag',
  handle: (_call, context) => ({ status: 200, body: context.openApi() }),
});

const statusShape = open({
  replica: name('This replica.'),
  time: optional(name('Its own clock, which judges nothing; RFC 3339.')),
  backend: name('`file` or `postgres`.'),
  epoch: name('Identity of the store’s history.'),
  version: name('Of this server.'),
  push: optional(enums(['listen', 'poll'])),
  actors: array(
    open({ name: name('The actor.'), thread: name('Where it runs.'), state: optional(string()) }),
  ),
});

function statusRoute(path: string, operationId: string): Route {
  return defineRoute({
    operationId,
    summary: 'How this replica is',
    method: 'GET',
    path,
    access: 'viewer',
    answers: [{ status: 200, description: 'The status.', body: statusShape }],
    problems: askingProblems('read'),
    caching: 'no-store',
    handle: async (_call, context) => ({ status: 200, body: await context.status() }),
  });
}

export const operationRoutes: readonly Route[] = [
  healthz,
  readyz,
  openApi,
  statusRoute('/v1/status', 'status'),
  statusRoute('/api/v1/status', 'statusUnderApi'),
];
