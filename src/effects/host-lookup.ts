/** From the host of an address to a number that may be called: once, so that it cannot change. */
import { lookup } from 'node:dns/promises';
import ipaddr from 'ipaddr.js';
import { CodedError } from '../runtime/failure.js';

/** An address of a host, as the system resolves it. */
export interface HostAddress {
  readonly address: string;
  readonly family: number;
}

/** Every address of a host; rejects with what the system says. */
export type ResolveHost = (host: string) => Promise<readonly HostAddress[]>;

const resolveBySystem: ResolveHost = (host) => lookup(host, { all: true });

/**
 * Looks up one host at a time: each look-up holds one of the few threads that the process has for
 * files and names, and a name server that is away must not hold them all.
 */
export class HostLookup {
  private last: Promise<unknown> = Promise.resolve();

  constructor(private readonly resolve: ResolveHost = resolveBySystem) {}

  /**
   * An address to connect to, in a private network only where that is allowed. Rejects with
   * `CodedError` `webhook_unreachable` or `webhook_address_refused`.
   */
  async find(host: string, allowPrivate: boolean): Promise<HostAddress> {
    const bare = host.replace(/^\[(.*)\]$/, '$1');
    const looking = this.last.then(() => this.resolve(bare));
    this.last = looking.catch(() => undefined);
    const addresses = await looking.catch((cause: unknown) => {
      throw new CodedError('webhook_unreachable', 'its host is not found', { cause });
    });
    const [found] = addresses.filter(({ address }) => allowPrivate || isPublic(address));
    if (found !== undefined) return found;
    const message = 'its host is in a private network, which the configuration does not allow';
    throw new CodedError('webhook_address_refused', message);
  }
}

/**
 * Whether anybody on the Internet has it: not loopback, link-local, private, shared (CGNAT), local
 * to a site, reserved, or one of those inside IPv6. Source: the special-purpose registries of RFC
 * 6890, as ipaddr.js has them.
 */
export function isPublic(address: string): boolean {
  return ipaddr.isValid(address) && ipaddr.process(address).range() === 'unicast';
}
