/**
 * The locks of units of work. A unit gets all of its names at once or waits, so that units cannot
 * wait for each other in a circle; of waiting units the earlier goes first where names meet.
 */
export interface LockRequest {
  readonly names: readonly string[];
  readonly onGranted: () => void;
}

/** Knows nothing of time: who waits or holds for too long calls `release`. */
export class LockTable {
  private readonly holders = new Map<string, LockRequest>();
  private waiting: LockRequest[] = [];

  /** Calls `onGranted` now, or when the names are free. */
  request(request: LockRequest): void {
    this.waiting.push(request);
    this.grant();
  }

  /** Gives back what it holds, or stops waiting. */
  release(request: LockRequest): void {
    this.waiting = this.waiting.filter((other) => other !== request);
    for (const name of request.names) {
      if (this.holders.get(name) === request) this.holders.delete(name);
    }
    this.grant();
  }

  isHeldByAnother(name: string, own: LockRequest | undefined): boolean {
    const holder = this.holders.get(name);
    return holder !== undefined && holder !== own;
  }

  private grant(): void {
    const wanted = new Set<string>();
    const granted: LockRequest[] = [];
    this.waiting = this.waiting.filter((request) => {
      const free = request.names.every((name) => !this.holders.has(name) && !wanted.has(name));
      if (free) {
        for (const name of request.names) this.holders.set(name, request);
        granted.push(request);
      } else {
        for (const name of request.names) wanted.add(name);
      }
      return !free;
    });
    for (const request of granted) request.onGranted();
  }
}

/** The lock that a unit takes to append to a stream. */
export function streamLock(stream: string): string {
  return `s/${stream}`;
}
/** The lock that a unit takes to read a value. */
export function valueLock(key: string): string {
  return `k/${key}`;
}
/** The lock that a unit takes to read a document, by its `documentName`. */
export function documentLock(name: string): string {
  return `d/${name}`;
}
