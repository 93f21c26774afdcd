/**
 * A process that asks servers for decisions: at a steady rate, or as fast as they are answered. A
 * fifth of the requests needs a person. Each answer is judged, and its ref kept: what was answered
 * has to be in the chain afterwards.
 */
import { setTimeout as wait } from 'node:timers/promises';
import { type HttpAnswer, HttpConnections } from './http-connections.js';
import { serveJobs } from './job-process.js';
import { type KindSamples, KindTally } from './kind-tally.js';
import { allAnswered, nowMs, OpenLoop } from './open-loop.js';
import { seededFractions } from './statistics.js';

export interface DecisionsJob {
  readonly urls: readonly string[];
  readonly gatewayToken: string;
  /** Over all servers. */
  readonly connections: number;
  /** Absent: each connection asks again as soon as it is answered. */
  readonly ratePerSecond?: number;
  readonly warmUpMs: number;
  readonly durationMs: number;
  readonly seed: number;
}

export interface DecisionsResult {
  /** By what was to be decided; without the warm-up. */
  readonly kinds: KindSamples;
  /** Of every answer, the warm-up's too. */
  readonly refs: readonly string[];
  readonly wrong: number;
  readonly firstWrong: string;
  readonly broken: number;
  readonly lateP99Ms: number;
  readonly generatorCpuMs: number;
  readonly elapsedMs: number;
}

/** What policies say of the three kinds of request that are sent. */
const KINDS = [
  { kind: 'allow', upTo: 0.7, body: (n: number) => request(n, { amount: 5 }) },
  { kind: 'needs_approval', upTo: 0.9, body: (n: number) => request(n, { amount: 500 }) },
  { kind: 'deny', upTo: 1, body: (n: number) => request(n, { amount: 5 }, 'wipe') },
] as const;
/** Agents and tools that are told apart: as many as a mid-sized fleet has. */
const NAMES = 1_000;
const REF = /"ref":"(ev_[0-9a-f-]{36})"/;

function request(n: number, context: object, tool = `t${n % NAMES}`): string {
  return JSON.stringify({
    principal: { type: 'Agent', id: `a${n % NAMES}` },
    action: 'tool:call',
    resource: { type: 'Tool', id: tool },
    context,
  });
}

class Asker {
  readonly tally = new KindTally();
  readonly loop: OpenLoop;
  readonly refs: string[] = [];
  wrong = 0;
  firstWrong = '';
  broken = 0;
  out = 0;
  private readonly servers: HttpConnections[];
  private readonly fraction: () => number;
  private sent = 0;
  private measuring = false;
  private untilMs = 0;

  constructor(private readonly job: DecisionsJob) {
    const each = Math.ceil(job.connections / job.urls.length);
    this.servers = job.urls.map((url) => new HttpConnections(new URL(url), each));
    this.fraction = seededFractions(job.seed);
    this.loop = new OpenLoop(job.ratePerSecond ?? 0, (dueMs) => this.send(dueMs));
  }

  async run(): Promise<number> {
    for (const server of this.servers) await server.fill();
    await this.phase(this.job.warmUpMs);
    this.measuring = true;
    const startedMs = nowMs();
    await this.phase(this.job.durationMs);
    return nowMs() - startedMs;
  }

  stop(): void {
    for (const server of this.servers) server.stop();
  }

  private async phase(durationMs: number): Promise<void> {
    if (this.job.ratePerSecond !== undefined) {
      await this.loop.run(durationMs);
    } else {
      this.untilMs = nowMs() + durationMs;
      for (let n = 0; n < this.job.connections; n += 1) this.send(nowMs());
      await wait(durationMs);
    }
    await allAnswered(() => this.out);
  }

  private send(dueMs: number): void {
    const n = this.sent;
    this.sent += 1;
    const server = this.servers[n % this.servers.length];
    const drawn = this.fraction();
    const chosen = KINDS.find(({ upTo }) => drawn < upTo) ?? KINDS[0];
    const body = chosen.body(n);
    this.out += 1;
    const { measuring } = this;
    server?.send({
      text: () => this.text(body),
      answered: (answer) => {
        this.out -= 1;
        this.judge(chosen.kind, answer, measuring ? nowMs() - dueMs : undefined);
        if (this.job.ratePerSecond !== undefined) this.loop.sendDue();
        else if (nowMs() < this.untilMs) this.send(nowMs());
      },
    });
  }

  private text(body: string): string {
    return (
      'POST /api/v1/decisions HTTP/1.1\r\nhost: load\r\ncontent-type: application/json\r\n' +
      `authorization: Bearer ${this.job.gatewayToken}\r\n` +
      `content-length: ${Buffer.byteLength(body)}\r\n\r\n${body}`
    );
  }

  private judge(kind: string, { status, body }: HttpAnswer, latencyMs: number | undefined): void {
    const ref = REF.exec(body)?.[1];
    if (status === 200 && ref !== undefined && body.includes(`"decision":"${kind}"`)) {
      this.refs.push(ref);
      if (latencyMs !== undefined) this.tally.record(kind, latencyMs);
    } else if (status === 0) this.broken += 1;
    else {
      this.wrong += 1;
      if (this.firstWrong === '') this.firstWrong = `${kind}: ${status} ${body}`;
    }
  }
}

async function run(job: DecisionsJob): Promise<DecisionsResult> {
  const asker = new Asker(job);
  const cpuBefore = process.cpuUsage();
  const elapsedMs = await asker.run();
  const cpu = process.cpuUsage(cpuBefore);
  asker.stop();
  const { tally, refs, wrong, firstWrong, broken, out, loop } = asker;
  return {
    kinds: tally.samples(),
    refs,
    wrong,
    firstWrong,
    broken: broken + out,
    lateP99Ms: loop.late.percentile(99) / 1000,
    generatorCpuMs: (cpu.user + cpu.system) / 1000,
    elapsedMs,
  };
}

serveJobs(run);
