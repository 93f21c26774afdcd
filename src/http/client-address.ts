/**
 * Whose request it is: the socket's address, or what a trusted proxy says of it. Without trusted
 * proxies no header is ever believed, since any client can send one.
 */
import ipaddr from 'ipaddr.js';

type Address = ipaddr.IPv4 | ipaddr.IPv6;
type Network = [Address, number];

/** More hops than any chain of proxies has; a longer list is somebody's invention. */
const HOPS_MAX = 32;

/** What a request says about where it came from. Empty when the header is absent. */
export interface ForwardedHeaders {
  readonly forwarded: string;
  readonly xForwardedFor: string;
}

/** Names the client behind a socket; one for each front server, since the proxies are fixed. */
export class ClientAddresses {
  private readonly trusted: readonly Network[];

  /** `trustedProxies` are addresses or CIDRs; throws an Error that names one that is neither. */
  constructor(trustedProxies: readonly string[]) {
    this.trusted = trustedProxies.map(parseNetwork);
  }

  /** Whether the forwarding headers are worth reading at all. */
  get believesHeaders(): boolean {
    return this.trusted.length > 0;
  }

  /** The address in text, IPv4 never mapped; 'unknown' when the socket has none. */
  of(socketAddress: ArrayBuffer, headers: ForwardedHeaders): string {
    const socket = fromBytes(socketAddress);
    if (socket === undefined) return 'unknown';
    if (!this.isTrusted(socket)) return socket.toString();
    let client: Address = socket;
    for (const hop of hopsOf(headers).slice(-HOPS_MAX).reverse()) {
      const address = parseHop(hop);
      // An obfuscated or broken hop ends what can be known: the proxy that told stands for it.
      if (address === undefined) break;
      client = address;
      if (!this.isTrusted(address)) break;
    }
    return client.toString();
  }

  private isTrusted(address: Address): boolean {
    return this.trusted.some(
      ([network, bits]) => network.kind() === address.kind() && address.match(network, bits),
    );
  }
}

/** One host usually controls its whole /64 of IPv6, and could fail from every address in it. */
const IPV6_BYTES_COUNTED = 8;

/**
 * What failures of a client count against: its IPv4 address, or the /64 of its IPv6 address. Takes
 * what `ClientAddresses.of` returns; anything else counts against itself.
 */
export function addressCounted(client: string): string {
  if (!client.includes(':') || !ipaddr.IPv6.isValid(client)) return client;
  const address = unmapped(ipaddr.parse(client));
  if (address.kind() === 'ipv4') return address.toString();
  const bytes = address.toByteArray().fill(0, IPV6_BYTES_COUNTED);
  return `${ipaddr.fromByteArray(bytes).toString()}/${IPV6_BYTES_COUNTED * 8}`;
}

function parseNetwork(text: string): Network {
  try {
    if (text.includes('/')) {
      const [address, bits] = ipaddr.parseCIDR(text);
      return [address, bits];
    }
    const address = ipaddr.process(text);
    return [address, address.kind() === 'ipv4' ? 32 : 128];
  } catch {
    throw new Error(`not an address or a CIDR: ${text}`);
  }
}

function fromBytes(bytes: ArrayBuffer): Address | undefined {
  if (bytes.byteLength !== 4 && bytes.byteLength !== 16) return undefined;
  return unmapped(ipaddr.fromByteArray([...new Uint8Array(bytes)]));
}

function unmapped(address: Address): Address {
  if (address.kind() === 'ipv6') {
    const six = address as ipaddr.IPv6;
    if (six.isIPv4MappedAddress()) return six.toIPv4Address();
  }
  return address;
}

/**
 * The hops that the proxy tells of. Proxies write one of the two headers and pass the other one on
 * as the client sent it: where both came, either may be invented, and neither is believed.
 */
function hopsOf({ forwarded, xForwardedFor }: ForwardedHeaders): string[] {
  if (forwarded === '') return xForwardedFor.split(',').map((hop) => hop.trim());
  return xForwardedFor === '' ? forwardedHops(forwarded) : [];
}

/** The `for` of each element of `Forwarded` (RFC 7239 §4), in order; '' where there is none. */
function forwardedHops(header: string): string[] {
  return header.split(',').map((element) => {
    for (const pair of element.split(';')) {
      const match = /^\s*for\s*=\s*"?([^"]*)"?\s*$/i.exec(pair);
      if (match !== null) return match[1] ?? '';
    }
    return '';
  });
}

/** An address, an address and a port, or a bracketed IPv6 address with or without one. */
function parseHop(hop: string): Address | undefined {
  const bracketed = /^\[([^\]]*)\](?::\d{1,5})?$/.exec(hop);
  const withPort = /^(\d{1,3}(?:\.\d{1,3}){3}):\d{1,5}$/.exec(hop);
  const text = bracketed?.[1] ?? withPort?.[1] ?? hop;
  const four = ipaddr.IPv4.isValidFourPartDecimal(text);
  if (!four && !(text.includes(':') && ipaddr.IPv6.isValid(text))) return undefined;
  return unmapped(ipaddr.parse(text));
}
