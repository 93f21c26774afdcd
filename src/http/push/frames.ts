/** The wire of `halo.kill-list.v1`: JSON text frames, close codes and reasons. Pure. */
import type { KillEntry } from '../../actors/kill-list/messages.js';
import type { KillListDelta } from './kill-list-mirror.js';

/** The only subprotocol that is spoken; a client has to ask for it. */
export const SUBPROTOCOL = 'halo.kill-list.v1';

/** Why a stream is closed by the server, as a WebSocket close code (RFC 6455 §7.4). */
export const CLOSE = {
  /** The client broke the protocol: no JSON, an unknown type, too long, an ack of the future. */
  protocol: 1008,
  /** This replica goes away, or the history of the store changed: connect again. */
  restart: 1012,
  /** This replica cannot say what the list is, or is behind the client: try another one. */
  tryLater: 1013,
  /** The token does not work any more. */
  shutOut: 4403,
  /** The client does not read as fast as it is written to. */
  slow: 4408,
} as const;
export type CloseCode = (typeof CLOSE)[keyof typeof CLOSE];

/**
 * The library copies pieces above 16 KB and sends them eight times slower; what is left is room for
 * the frame around the entries.
 */
const PAGE_ENTRIES_BYTES_MAX = 15 * 1024;

/** What a client may send is an acknowledgement of some forty bytes. */
export const CLIENT_FRAME_BYTES_MAX = 256;

/** A page, or more of them, that together are the list at one version. */
export interface Snapshot {
  readonly version: number;
  readonly pages: readonly Buffer[];
}

/** The whole list in pages, each below 16 KB. Even an empty list has a page. */
export function snapshotOf(
  { epoch, version }: { readonly epoch: string; readonly version: number },
  entries: readonly KillEntry[],
): Snapshot {
  const texts: string[][] = [[]];
  let bytes = 0;
  for (const entry of entries) {
    const text = JSON.stringify(entryOnTheWire(entry));
    const length = Buffer.byteLength(text, 'utf8') + 1;
    if (bytes > 0 && bytes + length > PAGE_ENTRIES_BYTES_MAX) {
      texts.push([]);
      bytes = 0;
    }
    texts.at(-1)?.push(text);
    bytes += length;
  }
  const head = `{"type":"snapshot","epoch":"${epoch}","version":${version},"entries":[`;
  const pages = texts.map((page, index) =>
    Buffer.from(`${head}${page.join(',')}],"more":${index + 1 < texts.length}}`, 'utf8'),
  );
  return { version, pages };
}

/** The net change after a version. */
export function deltaFrame({ from, version, set, lift }: KillListDelta): Buffer {
  const frame = { type: 'delta', from, version, set: set.map(entryOnTheWire), lift };
  return Buffer.from(JSON.stringify(frame), 'utf8');
}

/** Where the list is, and when it was known to be so. */
export function heartbeatFrame(version: number, asOfMs: number): Buffer {
  return Buffer.from(
    JSON.stringify({ type: 'heartbeat', version, asOf: new Date(asOfMs).toISOString() }),
    'utf8',
  );
}

/** The version that a client acknowledges; undefined when the frame is no acknowledgement. */
export function acknowledgedVersion(frame: ArrayBuffer, isBinary: boolean): number | undefined {
  if (isBinary || frame.byteLength > CLIENT_FRAME_BYTES_MAX) return undefined;
  let message: unknown;
  try {
    message = JSON.parse(Buffer.from(frame).toString('utf8'));
  } catch {
    return undefined;
  }
  if (typeof message !== 'object' || message === null) return undefined;
  const { type, version } = message as { type?: unknown; version?: unknown };
  if (type !== 'ack' || !Number.isSafeInteger(version) || (version as number) < 0) return undefined;
  return version as number;
}

/** What a client may hold already, as `since` says it; undefined when it is not of that form. */
export function parseSince(text: string): { epoch: string; version: number } | undefined {
  const found = /^([0-9a-f]{16})\.(0|[1-9][0-9]{0,14})$/.exec(text);
  return found ? { epoch: found[1] as string, version: Number(found[2]) } : undefined;
}

/** Whether a `Sec-WebSocket-Protocol` header asks for the subprotocol. */
export function asksForSubprotocol(header: string): boolean {
  return header.split(',').some((name) => name.trim() === SUBPROTOCOL);
}

/** A close reason that says when to come back; a reason may have 123 bytes. */
export function retryReason(retryAfterMs: number): string {
  return JSON.stringify({ retryAfterMs: Math.round(retryAfterMs) });
}

/** An entry as every caller sees it, whether it follows the list or polls it. */
export function entryOnTheWire({ kind, id, reason, by, atMs, expiresAtMs }: KillEntry): object {
  return {
    kind,
    id,
    reason,
    by,
    at: new Date(atMs).toISOString(),
    ...(expiresAtMs === undefined ? {} : { expiresAt: new Date(expiresAtMs).toISOString() }),
  };
}
