/** The devices that a load run authenticates: enrolled over the API, and checked one by one. */
import { mintSecret } from '../src/actors/secrets.js';
import { systemRandom } from '../src/runtime/random.js';
import type { ExpectedAnswer } from './generator.js';

export const DEVICE_AUTH_PATH = '/api/v1/auth/device';

export interface LoadDevice {
  readonly id: string;
  readonly user: string;
  readonly credential: string;
}

/** Calls under way at once while enrolling and checking: enough to fill the server's batches. */
const CALLS_MAX = 64;
/** As people have. */
export const DEVICES_PER_USER = 4;

/** Enrols `count` devices, each with an enrolment token of its own, several at a time. */
export function enrolDevices(
  url: string,
  adminToken: string,
  count: number,
): Promise<LoadDevice[]> {
  const indexes = Array.from({ length: count }, (_, index) => index);
  return mapConcurrently(indexes, async (index) => {
    const user = `load-user-${Math.floor(index / DEVICES_PER_USER)}@example.com`;
    const minted = await postJson<{ token: string }>(
      `${url}/api/v1/enrollment-tokens`,
      { user },
      adminToken,
    );
    const enrolled = await postJson<{ device: { id: string }; credential: string }>(
      `${url}/api/v1/enroll`,
      { token: minted.token, name: `load-device-${index}`, platform: 'linux' },
    );
    return { id: enrolled.device.id, user, credential: enrolled.credential };
  });
}

export async function revokeDevice(url: string, adminToken: string, id: string): Promise<void> {
  await postJson(`${url}/api/v1/devices/${id}/revoke`, { reason: 'load run' }, adminToken);
}

/**
 * Asks with each credential on its own and returns the answers, byte for byte. Throws when one is
 * not the device's: what the generators compare with later is checked here.
 */
export function checkedAnswers(
  url: string,
  devices: readonly LoadDevice[],
): Promise<ExpectedAnswer[]> {
  return mapConcurrently(devices, async ({ id, user, credential }) => {
    const answer = await authenticate(url, credential);
    const right = JSON.stringify({ device: { id, user } });
    const isRight =
      answer.status === 200 &&
      answer.headers.get('x-halo-device') === id &&
      answer.headers.get('x-halo-user') === user &&
      JSON.stringify(parsed(answer.text)) === right;
    if (!isRight) {
      throw new Error(`Expected ${right}, but ${url} answered ${answer.status} ${answer.text}`);
    }
    return { credential, device: id, user, body: answer.text };
  });
}

export interface Refusal {
  readonly what: string;
  /** Absent: no Authorization header at all. */
  readonly credential?: string;
  readonly status: number;
  readonly code: string;
  /** Counts as a failed attempt, of which an address has only ten on all replicas together. */
  readonly isGuess: boolean;
}

/** Credentials that must not get in, made from one that does and one of a revoked device. */
export function refusals(valid: LoadDevice, revoked: LoadDevice): Refusal[] {
  const unknown = { status: 401, code: 'device_unknown', isGuess: true };
  return [
    { what: 'no credential', status: 401, code: 'credential_missing', isGuess: false },
    { what: 'unknown', credential: mintSecret('device', systemRandom), ...unknown },
    { what: 'cut short', credential: valid.credential.slice(0, -1), ...unknown },
    {
      what: 'another kind',
      credential: mintSecret('gateway', systemRandom),
      ...unknown,
    },
    {
      what: 'revoked',
      credential: revoked.credential,
      status: 403,
      code: 'device_revoked',
      isGuess: false,
    },
  ];
}

/** Throws when one is let in, or refused for another reason. */
export async function checkRefusals(url: string, expected: readonly Refusal[]): Promise<void> {
  await mapConcurrently(expected, async ({ what, credential, status, code }) => {
    const answer = await authenticate(url, credential);
    const body = parsed(answer.text) as { code?: string } | undefined;
    if (answer.status !== status || body?.code !== code) {
      throw new Error(
        `A credential that is bad (${what}) must get ${status} ${code}, ` +
          `but ${url} answered ${answer.status} ${answer.text}`,
      );
    }
  });
}

/** The headers of an allowed answer that the server chose, without those of the connection. */
export async function answerHeaders(url: string, device: LoadDevice): Promise<[string, string][]> {
  const { headers } = await authenticate(url, device.credential);
  return [...headers].filter(([name]) => !CONNECTION_HEADERS.has(name));
}

/** What uWebSockets.js and fetch add or need by themselves. */
const CONNECTION_HEADERS = new Set([
  'connection',
  'content-length',
  'date',
  'keep-alive',
  'transfer-encoding',
  'uwebsockets',
]);

interface Answer {
  readonly status: number;
  readonly headers: Headers;
  readonly text: string;
}

async function authenticate(url: string, credential: string | undefined): Promise<Answer> {
  const response = await fetch(url + DEVICE_AUTH_PATH, {
    headers: credential === undefined ? {} : { authorization: `Bearer ${credential}` },
  });
  return { status: response.status, headers: response.headers, text: await response.text() };
}

export async function postJson<Body>(url: string, body: unknown, token?: string): Promise<Body> {
  const response = await fetch(url, {
    method: 'POST',
    headers: {
      'content-type': 'application/json',
      ...(token === undefined ? {} : { authorization: `Bearer ${token}` }),
    },
    body: JSON.stringify(body),
  });
  const text = await response.text();
  if (!response.ok) throw new Error(`POST ${url} answered ${response.status} ${text}`);
  return JSON.parse(text) as Body;
}

function parsed(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

/** Maps with at most `CALLS_MAX` calls under way; the first error ends it. */
export async function mapConcurrently<Item, Result>(
  items: readonly Item[],
  map: (item: Item) => Promise<Result>,
): Promise<Result[]> {
  const results: Result[] = new Array<Result>(items.length);
  const remaining = items.entries();
  const work = async (): Promise<void> => {
    for (const [index, item] of remaining) results[index] = await map(item);
  };
  await Promise.all(Array.from({ length: Math.min(CALLS_MAX, items.length) }, work));
  return results;
}
