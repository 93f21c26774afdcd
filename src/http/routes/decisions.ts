/** Decisions: may this principal do this, and what people say where a person is needed. */
import { array, boolean, enums, optional, string } from 'superstruct';
import type { ApprovalView, DecisionCaller, Settled } from '../../actors/decisions/messages.js';
import type { DevicesClient } from '../../actors/devices/client.js';
import { allowedId, allowedUser } from '../../actors/devices/messages.js';
import type { JsonObject } from '../../evidence/canonical-json.js';
import { CodedError, isFailure } from '../../runtime/failure.js';
import { HttpProblem } from '../problem-details.js';
import { adminName, askingProblems, defineRoute, type Route, type RouteCaller } from '../route.js';
import { fields, jsonObject, name, time, timeText } from '../schema.js';

/** Attributes and context together stay below what evidence can hold. */
const DECISION_BYTES_MAX = 256 * 1024;

const byRef = fields({ ref: name('The decision’s ref.') });
const DECISIONS = enums(['allow', 'deny', 'needs_approval']);
const approvalShape = fields({
  status: enums(['pending', 'approved', 'denied', 'redeemed', 'expired']),
  by: optional(name('Who settled it.')),
  at: optional(time('When it was settled.')),
  expiresAt: time('Until when it can be settled and redeemed.'),
});

const requestShape = fields({
  principal: fields({ type: name('Its entity type.'), id: name('Its id.') }),
  action: name('The action’s id.'),
  resource: fields({
    type: name('Its entity type.'),
    id: name('Its id.'),
    attrs: optional(jsonObject('What the caller knows of it; `halos.yaml` wins over it.')),
  }),
  context: optional(jsonObject('What policies may look at; `caller` in it is the server’s.')),
  approval: optional(name('The ref of an approved decision, to redeem it.')),
});

const makeDecision = defineRoute({
  operationId: 'makeDecision',
  summary:
    'Decide whether a principal may do something; the decision is recorded before it is said',
  method: 'POST',
  path: '/api/v1/decisions',
  access: 'decision-asker',
  body: { struct: requestShape, optional: false, bytesMax: DECISION_BYTES_MAX },
  answers: [
    {
      status: 200,
      description: 'The decision, why, and the ref of its evidence.',
      body: fields({
        decision: DECISIONS,
        reasons: array(string()),
        ref: name('Of its evidence; of its approval too, where one is needed.'),
        pending: boolean(),
      }),
    },
  ],
  problems: [
    ...askingProblems('mutation'),
    'principal_not_own',
    'device_unknown',
    'device_revoked',
    'device_killed',
    'evidence_too_large',
    'evidence_invalid',
  ],
  caching: 'no-store',
  handle: async (call, { decisions, devices }) => {
    const { principal, action, resource, context, approval } = call.body;
    const caller = await callerOf(call.caller, devices);
    const idempotency = call.idempotency(`${caller.type}:${caller.id}`);
    const decided = await decisions.decide({
      request: {
        principal,
        action,
        resource: { ...resource, attrs: (resource.attrs ?? {}) as JsonObject },
        context: (context ?? {}) as JsonObject,
      },
      caller,
      ...(approval === undefined ? {} : { approval }),
      ...(idempotency === undefined ? {} : { idempotency }),
    });
    const { decision, reasons, ref, pending } = decided;
    return { status: 200, body: { decision, reasons, ref, pending } };
  },
});

const getDecision = defineRoute({
  operationId: 'getDecision',
  summary: 'A decision that the caller asked for, and where its approval stands',
  method: 'GET',
  path: '/api/v1/decisions/{ref}',
  access: 'decision-asker',
  pathParameters: byRef,
  answers: [
    {
      status: 200,
      description: 'As it was made.',
      body: fields({ decision: DECISIONS, approval: optional(approvalShape) }),
    },
  ],
  problems: [
    ...askingProblems('read'),
    'decision_unknown',
    'device_unknown',
    'device_revoked',
    'device_killed',
  ],
  caching: 'no-store',
  handle: async (call, { decisions, devices }) => {
    const { type, id } = await callerOf(call.caller, devices);
    const { ref } = call.path;
    const found = await decisions.get(type === 'admin' ? { ref } : { ref, caller: { type, id } });
    if (found === undefined) throw new HttpProblem('decision_unknown');
    const { decision, approval } = found;
    if (approval === undefined) return { status: 200, body: { decision } };
    return { status: 200, body: { decision, approval: approvalBody(approval) } };
  },
});

function settleRoute(word: 'approve' | 'deny'): Route {
  return defineRoute({
    operationId: `${word}Decision`,
    summary: `${word === 'approve' ? 'Approve' : 'Deny'} a decision that needs approval`,
    method: 'POST',
    path: `/api/v1/decisions/{ref}/${word}`,
    access: 'approver',
    pathParameters: byRef,
    body: { struct: fields({ reason: name('Why; it is recorded.') }), optional: false },
    answers: [{ status: 200, description: 'Where it stands now.', body: approvalShape }],
    problems: [
      ...askingProblems('mutation'),
      'approval_unknown',
      'approval_own',
      'already_decided',
      'evidence_too_large',
      'evidence_invalid',
    ],
    caching: 'no-store',
    handle: async (call, { decisions }) => {
      const by = adminName(call.caller);
      const idempotency = call.idempotency(`admin:${by}`);
      const { ref } = call.path;
      const { reason } = call.body;
      const input = { ref, by, reason, ...(idempotency === undefined ? {} : { idempotency }) };
      const settled =
        word === 'approve' ? await decisions.approve(input) : await decisions.deny(input);
      return { status: 200, body: doneNow(settled) };
    },
  });
}

function doneNow({ isDone, approval }: Settled): object {
  const body = approvalBody(approval);
  if (isDone) return body;
  throw new HttpProblem('already_decided', { decision: body });
}

/** A device’s credential is judged here: nothing else on these routes asks the devices actor. */
async function callerOf(caller: RouteCaller, devices: DevicesClient): Promise<DecisionCaller> {
  switch (caller.kind) {
    case 'admin':
      return { type: 'admin', id: caller.name };
    case 'gateway':
      return { type: 'gateway', id: caller.id };
    case 'device': {
      const packed = await authenticated(devices, caller.credentialDigest);
      return { type: 'device', id: allowedId(packed), user: allowedUser(packed) };
    }
    case 'none':
      throw new Error('the route admits nobody without a credential');
  }
}

function authenticated(devices: DevicesClient, digest: string): Promise<string> {
  return new Promise((resolve, reject) => {
    devices.authenticate(digest, {
      answered: (answer) => {
        if (isFailure(answer)) {
          reject(new CodedError(answer.failure, answer.detail ?? answer.failure));
        } else resolve(answer as string);
      },
    });
  });
}

function approvalBody({ status, by, atMs, expiresAtMs }: ApprovalView): object {
  return {
    status,
    ...(by === undefined ? {} : { by }),
    ...(atMs === undefined ? {} : { at: timeText(atMs) }),
    expiresAt: timeText(expiresAtMs),
  };
}

export const decisionRoutes: readonly Route[] = [
  makeDecision,
  getDecision,
  settleRoute('approve'),
  settleRoute('deny'),
];
