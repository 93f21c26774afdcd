/** Who leads, who has led, and the word that ends a term: for operators. */
import { array } from 'superstruct';
import type { TermFacts } from '../../actors/leader/messages.js';
import { adminName, askingProblems, defineRoute, type Route } from '../route.js';
import { fields, integerBetween, name, textLike, time, timeText } from '../schema.js';

const leaseName = (): ReturnType<typeof textLike> =>
  textLike(
    /^[a-z][a-z0-9-]{0,127}$/,
    'a lower-case word of up to 128 letters, digits and hyphens',
    '`controller`, or `audit-export-` and the name of a sink.',
  );
const byLease = fields({ lease: leaseName() });
const term = {
  holder: name('Who: its replica’s id, a full stop, and which candidacy of it.'),
  token: integerBetween(0, Number.MAX_SAFE_INTEGER, 'The term’s fencing token.'),
};

const listLeases = defineRoute({
  operationId: 'listLeases',
  summary: 'Every lease, and who has it',
  method: 'GET',
  path: '/api/v1/leases',
  access: 'viewer',
  answers: [
    {
      status: 200,
      description: 'By name.',
      body: fields({
        items: array(
          fields({
            lease: leaseName(),
            ...term,
            remainingMs: integerBetween(
              0,
              Number.MAX_SAFE_INTEGER,
              'What is left of it unless it is renewed; 0: nobody has it.',
            ),
          }),
        ),
      }),
    },
  ],
  problems: askingProblems('read'),
  caching: 'no-store',
  handle: async (_call, { leader }) => ({ status: 200, body: { items: await leader.leases() } }),
});

const listTerms = defineRoute({
  operationId: 'listTerms',
  summary: 'Who has had a lease, the newest term first',
  method: 'GET',
  path: '/api/v1/leases/{lease}/terms',
  access: 'viewer',
  pathParameters: byLease,
  answers: [
    {
      status: 200,
      description: 'The newest 50 terms.',
      body: fields({ items: array(fields({ ...term, beganAt: time('When it began.') })) }),
    },
  ],
  problems: [...askingProblems('read'), 'lease_unknown'],
  caching: 'no-store',
  handle: async (call, { leader }) => ({
    status: 200,
    body: { items: (await leader.terms(call.path.lease)).map(termView) },
  }),
});

const stepDown = defineRoute({
  operationId: 'stepDown',
  summary: 'Ask the holder of a lease to give it back; another replica takes it, if there is one',
  method: 'POST',
  path: '/api/v1/leases/{lease}/step-down',
  access: 'admin',
  pathParameters: byLease,
  answers: [
    {
      status: 200,
      description: 'The term that was asked to end.',
      body: fields({ lease: leaseName(), ...term }),
    },
  ],
  problems: [...askingProblems('mutation'), 'lease_unknown', 'lease_not_held'],
  caching: 'no-store',
  handle: async (call, { leader }) => ({
    status: 200,
    body: await leader.stepDown({ lease: call.path.lease, by: adminName(call.caller) }),
  }),
});

function termView({ token, holder, beganAtMs }: TermFacts): object {
  return { token, holder, beganAt: timeText(beganAtMs) };
}

export const leaseRoutes: readonly Route[] = [listLeases, listTerms, stepDown];
