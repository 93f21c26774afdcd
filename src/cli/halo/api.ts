/** Calls to a server's HTTP surface, and what can come back. */
import { systemClock } from '../../runtime/clock.js';
import { systemRandom, uuidV7 } from '../../runtime/random.js';
import { readText } from '../private-file.js';
import { connectionAdvice, problemAdvice } from './advice.js';

/** A server that answered with a problem (RFC 9457), or did not answer. */
export class ApiError extends Error {
  constructor(
    message: string,
    readonly problem: {
      readonly status?: number;
      readonly code?: string;
      readonly requestId?: string;
      readonly retryable?: boolean;
    } = {},
  ) {
    super(message);
    this.name = 'ApiError';
  }
}

/** How to reach a server. */
export interface ApiOptions {
  readonly url: string;
  readonly tokenFile: string;
}

/** A person waits; anything longer than a server's own deadlines is a lost answer. */
const ANSWER_TIMEOUT_MS = 15_000;

/** What a request has beside method and path. */
interface Extra {
  readonly body?: string;
  readonly headers?: Readonly<Record<string, string>>;
}

/** One server and the token for it. */
export class Api {
  private constructor(
    /** Without a slash at its end. */
    readonly url: string,
    readonly token: string,
    /** Where the token was read from, for messages. */
    readonly tokenFile: string,
  ) {}

  /** Reads the token; throws `ApiError` when there is none to read. */
  static async open({ url, tokenFile }: ApiOptions): Promise<Api> {
    let text: string;
    try {
      text = await readText(tokenFile);
    } catch (error) {
      const why = error instanceof Error && 'code' in error ? ` (${String(error.code)})` : '';
      throw new ApiError(
        `cannot read the token in ${tokenFile}${why}: name another with --token-file`,
      );
    }
    const first = text.split('\n').find((line) => line.trim() !== '') ?? '';
    const token = first.slice(first.indexOf(':') + 1).trim();
    // What cannot stand in a header is not a token; fetch would say so in words about characters.
    if (!/^[\x21-\x7e]+$/.test(token)) throw new ApiError(`there is no token in ${tokenFile}`);
    return new Api(url.replace(/\/+$/, ''), token, tokenFile);
  }

  /** Reads; returns the parsed answer. Throws `ApiError`. */
  get(path: string): Promise<unknown> {
    return this.call('GET', path, {});
  }

  /** Changes something, under an `Idempotency-Key` of its own. Throws `ApiError`. */
  post(path: string, body: Readonly<Record<string, unknown>>): Promise<unknown> {
    return this.change('POST', path, body);
  }

  /** As `post`. */
  put(path: string, body: Readonly<Record<string, unknown>>): Promise<unknown> {
    return this.change('PUT', path, body);
  }

  /** As `post`, without a body. */
  delete(path: string): Promise<unknown> {
    return this.change('DELETE', path);
  }

  /** Reads what may be too long to hold: piece by piece. Throws `ApiError`, also on the way. */
  async *stream(path: string): AsyncGenerator<Buffer> {
    const answer = await this.fetched('GET', path, {}, async (response) => {
      if (!response.ok) readAnswer(response, await response.text(), this);
      return response;
    });
    try {
      for await (const piece of answer.body ?? []) yield Buffer.from(piece as Uint8Array);
    } catch (error) {
      const reason = reasonOf(error);
      throw new ApiError(`the answer from ${this.url} was cut off: ${reason}`, { retryable: true });
    }
  }

  private change(
    method: string,
    path: string,
    body?: Readonly<Record<string, unknown>>,
  ): Promise<unknown> {
    const key = { 'idempotency-key': uuidV7(systemRandom, systemClock.wallMs()) };
    if (body === undefined) return this.call(method, path, { headers: key });
    return this.call(method, path, {
      body: JSON.stringify(body),
      headers: { ...key, 'content-type': 'application/json' },
    });
  }

  private call(method: string, path: string, extra: Extra): Promise<unknown> {
    return this.fetched(method, path, extra, async (answer) =>
      readAnswer(answer, await answer.text(), this),
    );
  }

  /** What `read` makes of the answer, as long as that comes in time. */
  private async fetched<T>(
    method: string,
    path: string,
    extra: Extra,
    read: (answer: Response) => Promise<T>,
  ): Promise<T> {
    const abort = new AbortController();
    const timer = systemClock.schedule(() => abort.abort(), ANSWER_TIMEOUT_MS);
    try {
      const answer = await fetch(this.url + path, {
        method,
        redirect: 'error',
        signal: abort.signal,
        headers: { ...extra.headers, authorization: `Bearer ${this.token}` },
        ...(extra.body === undefined ? {} : { body: extra.body }),
      });
      return await read(answer);
    } catch (error) {
      if (error instanceof ApiError) throw error;
      const reason = reasonOf(error);
      throw new ApiError(`no answer from ${this.url}: ${reason}${connectionAdvice(reason)}`);
    } finally {
      timer.cancel();
    }
  }
}

/** The value of an answer, or its problem as an `ApiError`. */
function readAnswer(answer: Response, text: string, from: Api): unknown {
  const value = parseJson(text);
  if (answer.ok) {
    if (value === undefined) throw notHalos(from, 'the answer is not JSON');
    return value;
  }
  const problem = isRecord(value) ? value : {};
  const title = textOf(problem['title']);
  if (title === undefined) throw notHalos(from, `status ${answer.status}`);
  const code = textOf(problem['code']);
  const more = problemAdvice(code, from) ?? textOf(problem['detail']);
  const requestId = textOf(problem['requestId']);
  throw new ApiError(more === undefined || more === title ? title : `${title}: ${more}`, {
    status: answer.status,
    retryable: problem['retryable'] === true,
    ...(code === undefined ? {} : { code }),
    ...(requestId === undefined ? {} : { requestId }),
  });
}

/** Something answered that does not speak as the API does: mostly the address is another's. */
function notHalos({ url }: Api, what: string): ApiError {
  return new ApiError(`${what} from ${url}: is this a Halos server? Name another with --url`);
}

function parseJson(text: string): unknown {
  try {
    return JSON.parse(text) as unknown;
  } catch {
    return undefined;
  }
}

/** Whether a value of unknown origin is an object with fields. */
export function isRecord(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

/** A field that should be text, or undefined. */
export function textOf(value: unknown): string | undefined {
  return typeof value === 'string' ? value : undefined;
}

/** Why a connection failed, as the system calls it; the library's own message says less. */
function reasonOf(error: unknown): string {
  if (!(error instanceof Error)) return 'unknown';
  if (error.name === 'AbortError') return `none within ${ANSWER_TIMEOUT_MS / 1000} s`;
  const { cause } = error;
  if (cause instanceof Error) return 'code' in cause ? String(cause.code) : cause.message;
  return error.message;
}

/** An answer of another shape than the API has. */
export function unexpected(): ApiError {
  return new ApiError('the answer has another shape than expected: is the server of this version?');
}
