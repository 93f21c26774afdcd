/**
 * What the table says of device authentication. It is served by `device-authentication.ts` and not
 * by a handler, since a gateway asks it for every request that it lets through.
 */
import { allowedDevice } from '../device-shapes.js';
import type { ProblemCode } from '../problems.js';

/** The second is what Envoy's HTTP ext_authz makes of the first by appending the original path. */
export const DEVICE_AUTHENTICATION_PATHS = [
  '/api/v1/auth/device',
  '/api/v1/auth/device/*',
] as const;

export const deviceAuthentication = {
  operationId: 'authenticateDevice',
  summary: 'Let a device in, or not; any method, and any path below',
  answer: { status: 200, description: 'The device, also in the headers.', body: allowedDevice },
  headers: {
    'x-halo-device': 'The device’s id.',
    'x-halo-user':
      'The device’s user: UTF-8, percent-encoded outside visible ASCII and for the percent sign.',
  },
  problems: [
    'credential_missing',
    'device_unknown',
    'too_many_failures',
    'device_revoked',
    'device_killed',
    'store_unavailable',
    'outcome_unknown',
    'overloaded',
    'deadline_exceeded',
    'actor_restarted',
    'stale',
    'internal_error',
  ],
} as const satisfies { problems: readonly ProblemCode[]; [field: string]: unknown };
