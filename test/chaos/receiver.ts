/**
 * Where the replicas forward the chain to. Each knows it by a path of its own, so that what arrives
 * tells who acted: the leader's work, seen from outside.
 */
import { once } from 'node:events';
import { createServer, type Server, type ServerResponse } from 'node:http';

/** One delivery, when its head arrived. */
export interface Delivery {
  readonly replica: string;
  readonly atMs: number;
  readonly firstSeq: number;
  readonly lastSeq: number;
}

export class Receiver {
  readonly deliveries: Delivery[] = [];
  /** The newest record without a gap before it. */
  seq = -1;
  /** Gaps between one delivery and all before it. */
  readonly gaps: string[] = [];

  /** Whose deliveries are not answered for the moment, and what waits for the first one. */
  private holding: { readonly replica: string; readonly isUnderWay: () => void } | undefined;
  private readonly unanswered: ServerResponse[] = [];

  private constructor(private readonly server: Server) {
    server.on('request', (request, response) => {
      const atMs = performance.now();
      const replica = (request.url ?? '').slice(1);
      const chunks: Buffer[] = [];
      request.on('data', (chunk: Buffer) => chunks.push(chunk));
      request.on('end', () => {
        this.take(replica, atMs, Buffer.concat(chunks).toString('utf8'));
        if (this.holding?.replica === replica) {
          this.unanswered.push(response);
          this.holding.isUnderWay();
        } else response.writeHead(204).end();
      });
    });
  }

  /** Resolves when a delivery of that replica waits for its answer, which comes with `answer`. */
  hold(replica: string): Promise<void> {
    return new Promise((resolve) => {
      this.holding = { replica, isUnderWay: resolve };
    });
  }

  /** Answers what waits, and all that comes. */
  answer(): void {
    this.holding = undefined;
    for (const response of this.unanswered.splice(0)) response.writeHead(204).end();
  }

  static async start(): Promise<Receiver> {
    const server = createServer().listen(0, '127.0.0.1');
    await once(server, 'listening');
    return new Receiver(server);
  }

  urlOf(replica: string): string {
    const address = this.server.address();
    if (typeof address !== 'object' || address === null) throw new Error('it does not listen');
    return `http://127.0.0.1:${address.port}/${replica}`;
  }

  stop(): void {
    this.server.closeAllConnections();
    this.server.close();
  }

  private take(replica: string, atMs: number, body: string): void {
    const seqs = body.split('\n').flatMap((line) => (line === '' ? [] : [seqOf(line)]));
    const [firstSeq = -1] = seqs;
    const lastSeq = seqs.at(-1) ?? -1;
    this.deliveries.push({ replica, atMs, firstSeq, lastSeq });
    for (const seq of seqs) {
      if (seq > this.seq + 1) this.gaps.push(`${seq} came after ${this.seq}`);
      this.seq = Math.max(this.seq, seq);
    }
  }
}

function seqOf(line: string): number {
  return Number((JSON.parse(line) as { seq: unknown }).seq);
}
