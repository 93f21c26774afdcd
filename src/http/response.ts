/**
 * Writing an answer to a uWebSockets.js response: one cork with status, headers and end. The only
 * place, beside the hot path, where something is written to a socket.
 */
import type { HttpResponse } from 'uWebSockets.js';
import { statusLine } from './problem-details.js';

/** An answer that is complete: nothing of it is decided while it is written. */
export interface Response {
  readonly status: number;
  readonly headers: Readonly<Record<string, string>>;
  /** '' for none. A Buffer is UTF-8. Undefined: of a HEAD request, whose length nobody knows. */
  readonly body: string | Buffer | undefined;
  /** A HEAD request: the headers, and the length the body would have. */
  readonly head: boolean;
  /** Close the connection afterwards. */
  readonly close: boolean;
}

/** The library's cork buffer: larger pieces are copied and buffered without bound. */
const PIECE_BYTES_MAX = 16 * 1024;
/** The library lets CR and LF through, with which a value could become another header. */
const HEADER_VALUE = /^[\t -~]*$/;

/** Throws before anything is written when a header value is not ASCII without line breaks. */
export function writeResponse(res: HttpResponse, response: Response, onSent: () => void): void {
  checkHeaders(response);
  const { body = '' } = response;
  if (!response.head && !response.close && body.length > PIECE_BYTES_MAX / 4) {
    const bytes = Buffer.isBuffer(body) ? body : Buffer.from(body, 'utf8');
    if (bytes.length > PIECE_BYTES_MAX) {
      writeInPieces(res, response, bytes, onSent);
      return;
    }
  }
  res.cork(() => {
    writeHead(res, response);
    if (response.head || response.status === 304) endWithoutBody(res, response);
    else if (response.close) res.end(body, true);
    else res.end(body);
  });
  onSent();
}

function checkHeaders({ headers }: Pick<Response, 'headers'>): void {
  for (const value of Object.values(headers)) {
    if (!HEADER_VALUE.test(value)) throw new Error('a header value is not visible ASCII');
  }
}

/** Within a cork. Throws as `writeResponse`. */
export function writeHead(res: HttpResponse, response: Pick<Response, 'status' | 'headers'>): void {
  checkHeaders(response);
  res.writeStatus(statusLine(response.status));
  for (const [name, value] of Object.entries(response.headers)) res.writeHeader(name, value);
}

/**
 * `endWithoutBody(length)` of this build leaves the response open, and the next request on the
 * connection is cut off; without a length it ends. So the length is written by hand, here only.
 */
function endWithoutBody(res: HttpResponse, response: Response): void {
  if (response.close) res.writeHeader('connection', 'close');
  if (response.status !== 304 && response.body !== undefined) {
    res.writeHeader('content-length', String(Buffer.byteLength(response.body, 'utf8')));
  }
  res.endWithoutBody();
}

function writeInPieces(
  res: HttpResponse,
  response: Response,
  bytes: Buffer,
  onSent: () => void,
): void {
  const writeFrom = (offset: number): boolean => {
    for (let at = offset; ; at = res.getWriteOffset()) {
      const piece = bytes.subarray(at, at + PIECE_BYTES_MAX);
      const [accepted, done] = res.tryEnd(piece, bytes.length);
      if (done) {
        onSent();
        return true;
      }
      if (!accepted) return false;
    }
  };
  res.onWritable(writeFrom);
  res.cork(() => {
    writeHead(res, response);
    writeFrom(0);
  });
}
