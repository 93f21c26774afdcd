/** What is killed: for gateways that poll, and for the operators who kill and lift. */
import { array, optional } from 'superstruct';
import { entryOnTheWire } from '../push/frames.js';
import { adminName, askingProblems, defineRoute, type Route } from '../route.js';
import {
  fields,
  instant,
  instantMs,
  integerBetween,
  name,
  textLike,
  time,
  userName,
} from '../schema.js';
import { validated } from '../validation.js';

/** The kind whose ids are user names, which have more than one spelling. */
const USER = 'user';

const targetKind = (): ReturnType<typeof textLike> =>
  textLike(
    /^[a-z][a-z0-9-]{0,63}$/,
    'a lower-case word of up to 64 letters, digits and hyphens',
    '`device`, `user`, `agent`, `model`, `skill`, `experiment`, `mandate` or another word.',
  );
const target = {
  kind: targetKind(),
  id: name('What is killed; a user’s name is made canonical.'),
};
const byTarget = fields(target);
const userById = fields({ id: userName() });

const entryShape = fields({
  ...target,
  reason: name('Why.'),
  by: name('Who did it.'),
  at: time('When.'),
  expiresAt: optional(time('When it is lifted by itself; absent: never.')),
});

const place = {
  epoch: name('Identity of the history that versions belong to.'),
  version: integerBetween(0, Number.MAX_SAFE_INTEGER, 'One more with each change.'),
};

const getKillList = defineRoute({
  operationId: 'getKillList',
  summary: 'Everything that is killed, for gateways that poll',
  method: 'GET',
  path: '/api/v1/kill-list',
  access: 'gateway-or-viewer',
  answers: [
    {
      status: 200,
      description: 'The list; its entity tag is `"<epoch>.<version>"` on every replica.',
      body: fields({ ...place, asOf: time('When it was known so.'), entries: array(entryShape) }),
    },
  ],
  problems: askingProblems('read'),
  caching: 'entity-tag',
  handle: async (call, { killList }) => {
    const { entityTag, body } = await killList();
    return { status: 200, body: call.matches(entityTag) ? undefined : body(), entityTag };
  },
});

const kill = defineRoute({
  operationId: 'kill',
  summary: 'Kill something, everywhere; the same kill again changes nothing',
  method: 'PUT',
  path: '/api/v1/kill-list/{kind}/{id}',
  access: 'admin',
  pathParameters: byTarget,
  body: {
    struct: fields({
      reason: name('Why; people will read it.'),
      expiresAt: optional(instant('When it is to be lifted by itself.')),
    }),
    optional: false,
  },
  answers: [
    {
      status: 200,
      description: 'The kill in force, and the version from which on gateways know it.',
      body: fields({ ...place, entry: entryShape }),
    },
  ],
  problems: [...askingProblems('mutation'), 'kill_list_full', 'kill_already_expired'],
  caching: 'no-store',
  handle: async (call, { kills }) => {
    const by = adminName(call.caller);
    const { reason, expiresAt } = call.body;
    const idempotency = call.idempotency(`admin:${by}`);
    const killed = await kills.kill({
      ...canonical(call.path),
      reason,
      by,
      ...(expiresAt === undefined ? {} : { expiresAtMs: instantMs(expiresAt) }),
      ...(idempotency === undefined ? {} : { idempotency }),
    });
    const { epoch, version, entry } = killed;
    return { status: 200, body: { epoch, version, entry: entryOnTheWire(entry) } };
  },
});

const lift = defineRoute({
  operationId: 'lift',
  summary: 'Lift a kill; lifting what is not killed changes nothing',
  method: 'DELETE',
  path: '/api/v1/kill-list/{kind}/{id}',
  access: 'admin',
  pathParameters: byTarget,
  answers: [{ status: 200, description: 'Where the list is now.', body: fields(place) }],
  problems: askingProblems('mutation'),
  caching: 'no-store',
  handle: async (call, { kills }) => {
    const by = adminName(call.caller);
    const idempotency = call.idempotency(`admin:${by}`);
    const { epoch, version } = await kills.lift({
      ...canonical(call.path),
      by,
      ...(idempotency === undefined ? {} : { idempotency }),
    });
    return { status: 200, body: { epoch, version } };
  },
});

/** Killing `Alice` kills `alice`: the one place where a user's name comes in as an id. */
function canonical({ kind, id }: { kind: string; id: string }): { kind: string; id: string } {
  return { kind, id: kind === USER ? validated('path', { id }, userById).id : id };
}

export const killListRoutes: readonly Route[] = [getKillList, kill, lift];
