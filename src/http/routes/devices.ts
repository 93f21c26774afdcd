/** Looking at devices, revoking them and rotating their credentials. */
import { optional } from 'superstruct';
import type { Caller } from '../../actors/devices/messages.js';
import { CURSOR_LENGTH_MAX, cursorText, parseCursor } from '../cursor.js';
import { device, deviceBody, devicePage } from '../device-shapes.js';
import { HttpProblem } from '../problem-details.js';
import { adminName, askingProblems, defineRoute, type Route, type RouteCaller } from '../route.js';
import { fields, integerBetween, name, opaque, userName } from '../schema.js';

/** A page's answer stays well under a megabyte even with names of full length. */
const PAGE_LIMIT_MAX = 500;
const PAGE_LIMIT_DEFAULT = 100;
/** An hour: a device that is off longer gets its new credential from an operator. */
const OVERLAP_SECONDS_MAX = 3600;
const OVERLAP_SECONDS_DEFAULT = 300;
const SECRET_LENGTH_MAX = 256;

const byId = fields({ id: name('The device’s id.') });

const listDevices = defineRoute({
  operationId: 'listDevices',
  summary: 'List devices in the order in which they enrolled',
  method: 'GET',
  path: '/api/v1/devices',
  access: 'viewer',
  query: fields({
    limit: optional(integerBetween(1, PAGE_LIMIT_MAX, 'Devices on a page.', PAGE_LIMIT_DEFAULT)),
    cursor: optional(opaque(CURSOR_LENGTH_MAX, '`next` of the page before.')),
    user: optional(userName()),
  }),
  answers: [{ status: 200, description: 'One page.', body: devicePage }],
  problems: [...askingProblems('read'), 'cursor_invalid'],
  caching: 'entity-tag',
  handle: async (call, { devices }) => {
    const { limit, cursor, user } = call.query;
    const from = cursor === undefined ? undefined : parseCursor(cursor);
    if (from?.id !== undefined) throw new HttpProblem('cursor_invalid');
    const page = await devices.list({
      limit: limit ?? PAGE_LIMIT_DEFAULT,
      after: from?.after ?? 0,
      ...(user === undefined ? {} : { user }),
    });
    if (from !== undefined && from.epoch !== page.epoch) throw new HttpProblem('cursor_invalid');
    return {
      status: 200,
      body: {
        items: page.items.map(deviceBody),
        ...(page.next === undefined
          ? {}
          : { next: cursorText({ epoch: page.epoch, after: page.next }) }),
      },
    };
  },
});

const getDevice = defineRoute({
  operationId: 'getDevice',
  summary: 'Look at one device',
  method: 'GET',
  path: '/api/v1/devices/{id}',
  access: 'viewer',
  pathParameters: byId,
  answers: [{ status: 200, description: 'The device.', body: device }],
  problems: [...askingProblems('read'), 'device_not_found'],
  caching: 'entity-tag',
  handle: async (call, { devices }) => ({
    status: 200,
    body: deviceBody(await devices.get(call.path.id)),
  }),
});

const revokeDevice = defineRoute({
  operationId: 'revokeDevice',
  summary: 'Revoke a device for good',
  method: 'POST',
  path: '/api/v1/devices/{id}/revoke',
  access: 'admin',
  pathParameters: byId,
  body: { struct: fields({ reason: name('Why; people will read it.') }), optional: false },
  answers: [
    { status: 200, description: 'The device; unchanged if it was revoked before.', body: device },
  ],
  problems: [...askingProblems('mutation'), 'device_not_found'],
  caching: 'no-store',
  handle: async (call, { devices }) => {
    const by = adminName(call.caller);
    const idempotency = call.idempotency(`admin:${by}`);
    const revoked = await devices.revoke({
      id: call.path.id,
      reason: call.body.reason,
      by,
      ...(idempotency === undefined ? {} : { idempotency }),
    });
    return { status: 200, body: deviceBody(revoked) };
  },
});

const rotateDevice = defineRoute({
  operationId: 'rotateDevice',
  summary: 'Replace a device’s credential; the old one works for a while longer',
  method: 'POST',
  path: '/api/v1/devices/{id}/rotate',
  access: 'device-or-admin',
  pathParameters: byId,
  body: {
    struct: fields({
      overlapSeconds: optional(
        integerBetween(
          0,
          OVERLAP_SECONDS_MAX,
          'How long the old credential still works.',
          OVERLAP_SECONDS_DEFAULT,
        ),
      ),
    }),
    optional: true,
  },
  answers: [
    {
      status: 200,
      description: 'The new credential; it is shown this once.',
      body: fields({ credential: opaque(SECRET_LENGTH_MAX, 'The credential.') }),
    },
  ],
  problems: [
    ...askingProblems('mutation'),
    'device_unknown',
    'device_revoked',
    'device_not_found',
    'not_own_device',
    'rotation_refused',
    'replay_superseded',
  ],
  caching: 'no-store',
  handle: async (call, { devices }) => {
    const { caller, principal } = rotating(call.caller, call.path.id);
    const idempotency = call.idempotency(principal);
    const { id } = call.path;
    if (caller.kind === 'device') {
      await devices.mayRotate({ credentialDigest: caller.credentialDigest, id });
    }
    const rotated = await devices.rotate({
      id,
      overlapSeconds: call.body.overlapSeconds ?? OVERLAP_SECONDS_DEFAULT,
      caller,
      ...(idempotency === undefined ? {} : { idempotency }),
    });
    return { status: 200, body: { credential: rotated.credential } };
  },
});

/** The actor refuses a device whose credential is not that of the path's id before all else. */
function rotating(caller: RouteCaller, id: string): { caller: Caller; principal: string } {
  if (caller.kind === 'none' || caller.kind === 'gateway') {
    throw new Error('the route admits devices and administrators only');
  }
  if (caller.kind === 'admin') return { caller, principal: `admin:${caller.name}` };
  return { caller, principal: `device:${id}` };
}

export const deviceRoutes: readonly Route[] = [listDevices, getDevice, revokeDevice, rotateDevice];
