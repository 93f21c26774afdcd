/**
 * Posts to a webhook: signed, to the address that was looked up and checked, without following
 * anybody elsewhere. Whoever calls bounds the time by a signal.
 */
import { createHmac } from 'node:crypto';
import { type IncomingMessage, type RequestOptions, request as requestHttp } from 'node:http';
import { request as requestHttps } from 'node:https';
import { isIP } from 'node:net';
import type { Clock } from '../runtime/clock.js';
import { CodedError } from '../runtime/failure.js';
import type { HostAddress, HostLookup } from './host-lookup.js';

/** Names the event: the same for each repeat of it. */
export const EVENT_ID_HEADER = 'x-halo-event-id';
/** Seconds since the Unix epoch, as it is signed. */
export const TIMESTAMP_HEADER = 'x-halo-timestamp';
/** `v1=` and hexadecimal digits, several of them between commas while a secret is changed. */
export const SIGNATURE_HEADER = 'x-halo-signature';

/** Where it goes, and what it is signed with. */
export interface WebhookTarget {
  /** `https:`, or `http:` where private addresses are allowed. */
  readonly url: string;
  readonly secret: string;
  /** Signs beside the other one while receivers change over; null: none does. */
  readonly previousSecret: string | null;
  readonly allowPrivate: boolean;
}

/** What is sent. */
export interface WebhookMessage {
  readonly eventId: string;
  readonly contentType: string;
  readonly body: string;
}

/** What sending needs of its thread. */
export interface WebhookEnvironment {
  readonly clock: Clock;
  readonly hosts: HostLookup;
}

const MS_PER_SECOND = 1_000;
/** Longer waits are somebody's mistake; whoever calls has a bound of its own besides. */
const RETRY_AFTER_MAX_SECONDS = 86_400;

/**
 * Resolves when the receiver has answered with a 2xx. Rejects with `CodedError`: as `HostLookup`,
 * `webhook_unreachable` (no answer), `webhook_refused` (another status; a redirect is one).
 */
export async function postWebhook(
  target: WebhookTarget,
  message: WebhookMessage,
  { clock, hosts }: WebhookEnvironment,
  signal: AbortSignal,
): Promise<void> {
  const url = new URL(target.url);
  const address = await hosts.find(url.hostname, target.allowPrivate);
  const timestamp = String(Math.floor(clock.wallMs() / MS_PER_SECOND));
  const body = Buffer.from(message.body);
  const headers = {
    host: url.host,
    'content-type': message.contentType,
    'content-length': String(body.length),
    'user-agent': 'halos',
    [EVENT_ID_HEADER]: message.eventId,
    [TIMESTAMP_HEADER]: timestamp,
    [SIGNATURE_HEADER]: signatures(target, timestamp, body),
  };
  const answer = await send(url, address, { headers, signal }, body).catch((cause: unknown) => {
    const code = (cause as { code?: unknown } | undefined)?.code;
    const why = typeof code === 'string' ? ` (${code})` : '';
    throw new CodedError('webhook_unreachable', `it cannot be reached${why}`, { cause });
  });
  // Its headers say all: what else it would say is not waited for.
  answer.destroy();
  judge(answer);
}

/** The value of `SIGNATURE_HEADER`: HMAC-SHA256 over the timestamp, a full stop and the body. */
function signatures(
  { secret, previousSecret }: WebhookTarget,
  timestamp: string,
  body: Buffer,
): string {
  const sign = (key: string): string =>
    `v1=${createHmac('sha256', key).update(`${timestamp}.`).update(body).digest('hex')}`;
  return previousSecret === null ? sign(secret) : `${sign(secret)},${sign(previousSecret)}`;
}

/** On a connection of its own to that address, whatever the name leads to by then. */
function send(
  url: URL,
  { address, family }: HostAddress,
  options: Pick<RequestOptions, 'headers' | 'signal'>,
  body: Buffer,
): Promise<IncomingMessage> {
  const isSecure = url.protocol === 'https:';
  const name = url.hostname.replace(/^\[(.*)\]$/, '$1');
  const where = {
    ...options,
    method: 'POST',
    host: address,
    family,
    port: url.port || (isSecure ? 443 : 80),
    path: url.pathname + url.search,
    agent: false,
    // The certificate is the name's, not the number's.
    ...(isSecure && isIP(name) === 0 ? { servername: name } : {}),
  };
  return new Promise((resolve, reject) => {
    const request = (isSecure ? requestHttps : requestHttp)(where, resolve);
    request.on('error', reject);
    request.end(body);
  });
}

function judge({ statusCode = 0, headers }: IncomingMessage): void {
  if (statusCode >= 200 && statusCode < 300) return;
  const asked = Number(headers['retry-after']);
  const retryAfterSeconds = Math.min(asked, RETRY_AFTER_MAX_SECONDS);
  throw new CodedError(
    'webhook_refused',
    `it answered with the status ${statusCode}`,
    retryAfterSeconds > 0 ? { retryAfterSeconds } : {},
  );
}
