/** Which streams belong to which gateway and token, and what each gateway has acknowledged. */
import type { GatewayStreams } from '../../actors/gateways/messages.js';
import type { KillStream } from './kill-stream.js';

/** The streams of one front thread, by what they were opened with. */
export class GatewayIndex {
  private readonly byCredential = new Map<string, Set<KillStream>>();

  add(stream: KillStream): void {
    const streams = this.byCredential.get(stream.credential);
    if (streams === undefined) this.byCredential.set(stream.credential, new Set([stream]));
    else streams.add(stream);
  }

  remove(stream: KillStream): void {
    const streams = this.byCredential.get(stream.credential);
    if (!streams?.delete(stream)) return;
    if (streams.size === 0) this.byCredential.delete(stream.credential);
  }

  withCredential(credential: string): ReadonlySet<KillStream> {
    return this.byCredential.get(credential) ?? NONE;
  }

  credentials(): string[] {
    return [...this.byCredential.keys()];
  }

  /** For each gateway its streams, and the least version that any of them has acknowledged. */
  report(): GatewayStreams[] {
    const found = new Map<string, { gateway: string; connections: number; ackVersion: number }>();
    for (const streams of this.byCredential.values()) {
      for (const { gateway, acknowledged } of streams) {
        const before = found.get(gateway);
        if (before === undefined) {
          found.set(gateway, { gateway, connections: 1, ackVersion: acknowledged });
          continue;
        }
        before.connections += 1;
        before.ackVersion = Math.min(before.ackVersion, acknowledged);
      }
    }
    return [...found.values()];
  }
}

const NONE: ReadonlySet<KillStream> = new Set();
