/**
 * What the table says of the kill list's stream. Requests that upgrade are served by
 * `push/stream-upgrade.ts`, which judges who asks; here is answered whoever does not upgrade.
 */
import { optional } from 'superstruct';
import { HttpProblem } from '../problem-details.js';
import { askingProblems, defineRoute, type Route } from '../route.js';
import { fields, opaque } from '../schema.js';

/** The path, as it stands in logs and metrics. */
export const STREAM_PATH = '/api/v1/kill-list/stream';

/** As long as a head may be: whatever is not `<epoch>.<version>` is held to be nothing. */
const SINCE_LENGTH_MAX = 4_096;

const followKillList = defineRoute({
  operationId: 'followKillList',
  summary: 'Follow the kill list over a WebSocket, with the subprotocol `halo.kill-list.v1`',
  method: 'GET',
  path: STREAM_PATH,
  access: 'upgrading-gateway',
  query: fields({
    since: optional(
      opaque(SINCE_LENGTH_MAX, '`<epoch>.<version>` that is held; anything else is as nothing.'),
    ),
  }),
  answers: [],
  problems: [
    ...askingProblems('read'),
    'upgrade_required',
    'credential_missing',
    'token_unknown',
    'too_many_failures',
    'too_many_streams',
    'stale',
  ],
  caching: 'no-store',
  handle: () => {
    throw new HttpProblem('upgrade_required');
  },
});

export const killListStreamRoutes: readonly Route[] = [followKillList];
