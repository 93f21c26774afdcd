/**
 * How the values of options are read: pure, and strict, since a server that starts on a guess is
 * found out much later. Each function is given the option's name as the user wrote it, and throws
 * `UsageError`; a message repeats the value only where it cannot hold a secret.
 */
import ipaddr from 'ipaddr.js';
import { UsageError } from './exit-codes.js';

/** Where to listen. */
export interface ListenAddress {
  /** An address or a host name, IPv6 without its brackets. */
  readonly host: string;
  /** 0 means a free one. */
  readonly port: number;
}

const PORT_MAX = 65_535;
const HOST_AND_PORT = /^(?:\[([0-9a-fA-F:.]+)\]|([A-Za-z0-9.-]+)):(\d{1,5})$/;

/** Reads `127.0.0.1:8080`, `[::1]:8080` or `name:8080`. */
export function parseListenAddress(origin: string, text: string): ListenAddress {
  const parts = HOST_AND_PORT.exec(text);
  const host = parts?.[1] ?? parts?.[2];
  const port = Number(parts?.[3]);
  const bracketed = parts?.[1] !== undefined;
  const numeric = host !== undefined && /^[0-9.]+$/.test(host);
  if (
    host === undefined ||
    port > PORT_MAX ||
    (bracketed && !ipaddr.IPv6.isValid(host)) ||
    (numeric && !ipaddr.IPv4.isValidFourPartDecimal(host))
  ) {
    throw new UsageError(
      `${origin} takes HOST:PORT, such as 127.0.0.1:8080, [::1]:8080, or 0.0.0.0:8080 for everyone`,
    );
  }
  return { host, port };
}

const UNIT_MS: Readonly<Record<string, number>> = {
  ms: 1,
  s: 1000,
  m: 60_000,
  h: 3_600_000,
  d: 86_400_000,
};

/** Reads `500ms`, `15s`, `2m`, `1h` or `7d` as milliseconds; a number without a unit is refused. */
export function parseDurationMs(
  origin: string,
  text: string,
  bounds: { readonly minMs: number; readonly maxMs: number },
): number {
  const parts = /^(\d{1,9})(ms|s|m|h|d)$/.exec(text);
  const ms = Number(parts?.[1]) * (UNIT_MS[parts?.[2] ?? ''] ?? Number.NaN);
  if (Number.isNaN(ms)) {
    throw new UsageError(
      `${origin} takes a duration with its unit, such as 500ms, 15s, 2m, 1h or 7d`,
    );
  }
  if (ms < bounds.minMs || ms > bounds.maxMs) {
    const range = `${formatDuration(bounds.minMs)} to ${formatDuration(bounds.maxMs)}`;
    throw new UsageError(`${origin} takes ${range}`);
  }
  return ms;
}

/** The shortest form that `parseDurationMs` reads back as the same number. */
export function formatDuration(ms: number): string {
  for (const [unit, size] of Object.entries(UNIT_MS).reverse()) {
    if (ms % size === 0 && ms >= size) return `${ms / size}${unit}`;
  }
  return `${ms}ms`;
}

/** Reads a whole number within bounds, both included. */
export function parseWholeNumber(
  origin: string,
  text: string,
  bounds: { readonly min: number; readonly max: number },
): number {
  const value = /^\d{1,9}$/.test(text) ? Number(text) : Number.NaN;
  if (Number.isNaN(value) || value < bounds.min || value > bounds.max) {
    throw new UsageError(`${origin} takes a whole number from ${bounds.min} to ${bounds.max}`);
  }
  return value;
}

/** More than a proxy configuration names; a bound on what every request is compared with. */
const NETWORKS_MAX = 256;

/** Reads `10.0.0.0/8,fd00::/8`; an address alone is a network of one. Returns them normalised. */
export function parseNetworks(origin: string, text: string): readonly string[] {
  const parts = text.split(',').map((part) => part.trim());
  if (parts.length > NETWORKS_MAX) {
    throw new UsageError(`${origin} takes at most ${NETWORKS_MAX} networks`);
  }
  return parts.map((part) => {
    const network = readNetwork(part);
    if (network !== undefined) return network;
    throw new UsageError(`${origin} takes networks such as 10.0.0.0/8,fd00::/8`);
  });
}

function readNetwork(text: string): string | undefined {
  if (/^[0-9.]+(\/\d{1,2})?$/.test(text)) {
    const [address = '', bits = '32'] = text.split('/');
    if (!ipaddr.IPv4.isValidFourPartDecimal(address) || Number(bits) > 32) return undefined;
    return `${ipaddr.IPv4.networkAddressFromCIDR(`${address}/${bits}`).toString()}/${Number(bits)}`;
  }
  const [address = '', bits = '128', ...rest] = text.split('/');
  const sound = rest.length === 0 && /^\d{1,3}$/.test(bits) && Number(bits) <= 128;
  if (!sound || !address.includes(':') || !ipaddr.IPv6.isValid(address)) return undefined;
  if (address.includes('%')) return undefined;
  return `${ipaddr.IPv6.networkAddressFromCIDR(`${address}/${bits}`).toString()}/${Number(bits)}`;
}

/** Reads one of a few words. */
export function parseChoice<Choice extends string>(
  origin: string,
  text: string,
  choices: readonly Choice[],
): Choice {
  const choice = choices.find((one) => one === text);
  if (choice !== undefined) return choice;
  throw new UsageError(`${origin} takes one of ${choices.join(', ')}`);
}

/**
 * Reads the name of a file or folder. A URL in its place is refused without repeating it: whoever
 * writes one there has just put a password into the process table.
 */
export function parsePath(origin: string, text: string): string {
  if (/^[a-z][a-z0-9+.-]*:\/\//i.test(text)) {
    throw new UsageError(
      `${origin} takes the name of a file, never a URL: write the URL into a file of mode 0600`,
    );
  }
  if (text === '' || text.includes('\0'))
    throw new UsageError(`${origin} takes the name of a file`);
  return text;
}
