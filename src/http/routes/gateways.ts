/** The gateways that follow the kill list: making them, their tokens, and how far each one is. */
import { array, optional } from 'superstruct';
import type { GatewayPlace, GatewayView } from '../../actors/gateways/messages.js';
import { CURSOR_LENGTH_MAX, type Cursor, cursorText, parseCursor } from '../cursor.js';
import { HttpProblem } from '../problem-details.js';
import { adminName, askingProblems, defineRoute, type Route } from '../route.js';
import { fields, integerBetween, name, opaque, textLike, time, timeText } from '../schema.js';

/** A page's answer stays well under a megabyte even with names of full length. */
const PAGE_LIMIT_MAX = 500;
const PAGE_LIMIT_DEFAULT = 100;
/** An hour: a gateway that is down longer gets its new token from an operator. */
const OVERLAP_SECONDS_MAX = 3600;
const OVERLAP_SECONDS_DEFAULT = 300;
const SECRET_LENGTH_MAX = 256;

const byId = fields({ id: name('The gateway’s id.') });
const count = (description: string): ReturnType<typeof integerBetween> =>
  integerBetween(0, Number.MAX_SAFE_INTEGER, description);

const trueOrFalse = textLike(/^(?:true|false)$/, '`true` or `false`', 'Only those behind.');

const gatewayShape = fields({
  id: name('`gw_` and a UUID.'),
  name: name('What people call it.'),
  createdAt: time('When it was made.'),
  rotatedAt: optional(time('When its token was replaced last.')),
  connections: count('Streams that it has open on all replicas together.'),
  ackVersion: optional(
    count('The least that any of its streams acknowledged; absent without one.'),
  ),
  ackAt: optional(time('When that was last known to be so.')),
});

const createGateway = defineRoute({
  operationId: 'createGateway',
  summary: 'Make a gateway, with a token of its own',
  method: 'POST',
  path: '/api/v1/gateways',
  access: 'admin',
  body: { struct: fields({ name: name('What people call it.') }), optional: false },
  answers: [
    {
      status: 201,
      description: 'The gateway and its token, which is shown this once.',
      body: fields({
        id: name('`gw_` and a UUID.'),
        name: name('As it was given.'),
        token: opaque(SECRET_LENGTH_MAX, 'The token.'),
      }),
    },
  ],
  problems: [...askingProblems('mutation'), 'gateways_full', 'replay_superseded'],
  caching: 'no-store',
  handle: async (call, { gateways }) => {
    const by = adminName(call.caller);
    const idempotency = call.idempotency(`admin:${by}`);
    const { id, name, token } = await gateways.create({
      name: call.body.name,
      by,
      ...(idempotency === undefined ? {} : { idempotency }),
    });
    return { status: 201, body: { id, name, token } };
  },
});

const listGateways = defineRoute({
  operationId: 'listGateways',
  summary: 'List gateways with what they acknowledged',
  method: 'GET',
  path: '/api/v1/gateways',
  access: 'viewer',
  query: fields({
    limit: optional(integerBetween(1, PAGE_LIMIT_MAX, 'Gateways on a page.', PAGE_LIMIT_DEFAULT)),
    cursor: optional(opaque(CURSOR_LENGTH_MAX, '`next` of the page before.')),
    behind: optional(trueOrFalse),
  }),
  answers: [
    {
      status: 200,
      description: 'One page, with `behind=true` of those connected below the version.',
      body: fields({
        items: array(gatewayShape),
        next: optional(opaque(CURSOR_LENGTH_MAX, 'Cursor of the next page; absent on the last.')),
        epoch: name('Identity of the history that versions belong to.'),
        version: count('The kill list’s version when this was read.'),
      }),
    },
  ],
  problems: [...askingProblems('read'), 'cursor_invalid'],
  caching: 'entity-tag',
  handle: async (call, { gateways }) => {
    const { limit = PAGE_LIMIT_DEFAULT, cursor, behind } = call.query;
    const from = cursor === undefined ? undefined : parseCursor(cursor);
    const list = await gateways.list({
      behind: behind === 'true',
      limit,
      ...(from === undefined ? {} : { after: placeOf(from) }),
    });
    const { items, next, epoch, version } = list;
    if (from !== undefined && from.epoch !== epoch) throw new HttpProblem('cursor_invalid');
    const page = { items: items.map(gatewayBody), epoch, version };
    if (next === undefined) return { status: 200, body: page };
    const { createdAtMs: after, id } = next;
    return { status: 200, body: { ...page, next: cursorText({ epoch, after, id }) } };
  },
});

const rotateGateway = defineRoute({
  operationId: 'rotateGateway',
  summary: 'Replace a gateway’s token; the old one works for a while longer',
  method: 'POST',
  path: '/api/v1/gateways/{id}/rotate',
  access: 'admin',
  pathParameters: byId,
  body: {
    struct: fields({
      overlapSeconds: optional(
        integerBetween(
          0,
          OVERLAP_SECONDS_MAX,
          'How long the old token still works.',
          OVERLAP_SECONDS_DEFAULT,
        ),
      ),
    }),
    optional: true,
  },
  answers: [
    {
      status: 200,
      description: 'The new token; it is shown this once.',
      body: fields({ token: opaque(SECRET_LENGTH_MAX, 'The token.') }),
    },
  ],
  problems: [...askingProblems('mutation'), 'gateway_not_found', 'replay_superseded'],
  caching: 'no-store',
  handle: async (call, { gateways }) => {
    const by = adminName(call.caller);
    const idempotency = call.idempotency(`admin:${by}`);
    const { token } = await gateways.rotate({
      id: call.path.id,
      overlapSeconds: call.body.overlapSeconds ?? OVERLAP_SECONDS_DEFAULT,
      by,
      ...(idempotency === undefined ? {} : { idempotency }),
    });
    return { status: 200, body: { token } };
  },
});

const removeGateway = defineRoute({
  operationId: 'removeGateway',
  summary: 'Shut a gateway out for good; its streams are closed on every replica',
  method: 'DELETE',
  path: '/api/v1/gateways/{id}',
  access: 'admin',
  pathParameters: byId,
  answers: [
    {
      status: 200,
      description: 'Since when; unchanged if it was removed before.',
      body: fields({ id: name('The gateway’s id.'), removedAt: time('When it was removed.') }),
    },
  ],
  problems: [...askingProblems('mutation'), 'gateway_not_found'],
  caching: 'no-store',
  handle: async (call, { gateways }) => {
    const by = adminName(call.caller);
    const idempotency = call.idempotency(`admin:${by}`);
    const { id, removedAtMs } = await gateways.remove({
      id: call.path.id,
      by,
      ...(idempotency === undefined ? {} : { idempotency }),
    });
    return { status: 200, body: { id, removedAt: timeText(removedAtMs) } };
  },
});

function placeOf({ after, id }: Cursor): GatewayPlace {
  if (id === undefined) throw new HttpProblem('cursor_invalid');
  return { createdAtMs: after, id };
}

function gatewayBody(view: GatewayView): object {
  const { id, name, createdAtMs, rotatedAtMs, connections, ackVersion, ackAtMs } = view;
  return {
    id,
    name,
    createdAt: timeText(createdAtMs),
    ...(rotatedAtMs === undefined ? {} : { rotatedAt: timeText(rotatedAtMs) }),
    connections,
    ...(ackVersion === undefined ? {} : { ackVersion }),
    ...(ackAtMs === undefined ? {} : { ackAt: timeText(ackAtMs) }),
  };
}

export const gatewayRoutes: readonly Route[] = [
  createGateway,
  listGateways,
  rotateGateway,
  removeGateway,
];
