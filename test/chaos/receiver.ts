/**
 * Where the replicas forward the chain to. Each knows it by a path of its own, so that what arrives
 * tells who acted: the leader's work, seen from outside.
 */
import { once } from 'node:events';
import { createServer, type Server } from 'node:http';

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

  private constructor(private readonly server: Server) {
    server.on('request', (request, response) => {
      const atMs = performance.now();
      const chunks: Buffer[] = [];
      request.on('data', (chunk: Buffer) => chunks.push(chunk));
      request.on('end', () => {
        this.take((request.url ?? '').slice(1), atMs, Buffer.concat(chunks).toString('utf8'));
        response.writeHead(204).end();
      });
    });
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
